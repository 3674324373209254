"""A topic gets more partitions under load, while its servers are killed: nothing is lost, early or doubled.

Three servers share one store. The call that adds partitions goes to one of them, which is killed in the middle of it,
again and again, until a call succeeds. A namespace with namespace-scoped ids is expanded as a whole: by a call for one
of its topics.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dueline.engine.job import Partition
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.keys import partition_keys
from dueline.store.valkey.store import ValkeyStore
from dueline.testing.checker import Kind, Report, check
from dueline.testing.history import Final, Recorder, write
from tools.faults.connection import Connection, NoAnswer, NotSent
from tools.faults.load import Load, Plan
from tools.faults.recording_client import Job, RecordingClient
from tools.faults.scenario import DOUBLED, judged
from tools.faults.server_process import ServerProcess

from ..kit.fault_suite import FaultSuite
from ..kit.valkey import PrivateValkey
from .broken_server import served
from .under_load import clock_steps

PARTITIONS = 8
MORE = b'{"partitions":8}'
KILLS = 6
PLAN = Plan(max_delay_ms=1_000, retry_s=30.0, pause_ms=6.0, conflict_share=0.05, max_jobs=60_000)


class ExpansionRun:
    """One seed on one store, with topics of its own. `run` always stops what it started."""

    def __init__(self, folder: Path, store_url: str, seed: int, namespace_ids: bool = False) -> None:
        self.folder, self.store_url, self.seed = folder, store_url, seed
        self.namespace_ids = namespace_ids
        self.dice = random.Random(f"{seed}/expansion")
        self.recorder = Recorder()
        env = {"DUELINE_DIALECTS__OUQIANG__NAMESPACE": "default"} if namespace_ids else None
        self.servers = [ServerProcess(folder / str(number), store_url=store_url, env=env) for number in range(3)]
        self.topics = tuple(f"{name}-{uuid.uuid4().hex}" for name in "ab")
        plan = msgspec.structs.replace(PLAN, topics=self.topics)
        self.load = Load(plan, [server.address for server in self.servers], self.recorder, seed)
        self.kills = 0
        self.torn = 0  # calls that add partitions and were not answered
        self.final: Final = {}
        self.others: list[str] = []

    async def run(self) -> Report:
        try:
            await asyncio.gather(*(server.start() for server in self.servers))
            await self.load.start()
            await self.load.acknowledged_reaches(200)
            for topic in self.topics[:1] if self.namespace_ids else self.topics:
                await self.expand(topic)
                await self.serves(100)
            while self.kills < KILLS:
                await self.kill(self.dice.choice(self.servers))
                await self.serves(50)
            await self.load.stop_sending()
            drained = await self.load.drained(60.0)
            await self.load.stop()
            self.final = await self.load.dump(30.0)
            views = [await self.view(topic) for topic in self.topics]
            self.others = await clock_steps(self.servers)
            await asyncio.gather(*(server.stop() for server in self.servers))
        finally:
            await self.load.stop()
            await asyncio.gather(*(server.kill() for server in self.servers))
        assert drained, "live jobs were left"
        assert [view["partitions"] for view in views] == [PARTITIONS] * len(views)
        return check(self.recorder.events, self.final)

    async def serves(self, sends: int) -> None:
        await self.load.acknowledged_reaches(self.load.acknowledged + sends, 60.0)

    async def kill(self, server: ServerProcess) -> None:
        began_ns = self.recorder.now_ns()
        await server.kill()
        self.recorder.fault("kill -9 of a server", began_ns)
        self.kills += 1
        await server.start()

    async def expand(self, topic: str) -> None:
        """Add partitions. The server that does it is killed in the first tries, a little later each time."""
        for number in range(100):
            server = self.dice.choice(self.servers)
            adding = asyncio.create_task(self.add(server, topic))
            if number < KILLS // 2 - (topic == self.topics[1]):
                await asyncio.sleep(self.dice.uniform(0.0, 0.012))
                await self.kill(server)
            if await adding:
                return
            self.torn += 1
        raise AssertionError("no call that adds partitions succeeds")

    async def add(self, server: ServerProcess, topic: str) -> bool:
        connection = Connection(*server.address)
        try:
            answer = await connection.request("PUT", f"/v1/topics/{topic}", MORE)
        except (NotSent, NoAnswer):
            return False
        finally:
            connection.close()
        assert answer.status in (200, 201, 503), answer
        return answer.status != 503

    async def view(self, topic: str) -> dict[str, Any]:
        connection = Connection(*self.servers[0].address)
        try:
            return (await connection.request("GET", f"/v1/topics/{topic}")).json()
        finally:
            connection.close()


@pytest.mark.faults
@pytest.mark.timeout(1200)
async def test_nothing_is_lost_or_doubled_when_servers_are_killed_while_they_add_partitions(
    suite: FaultSuite, folder: Path, private_valkey: PrivateValkey
) -> None:
    """Ten seeds in the long suite, each with topics of its own."""
    for seed in range(suite.seed, suite.seed + suite.rounds(1, 10)):
        run = ExpansionRun(folder / str(seed), private_valkey.url, seed)
        await judge(suite, run, "1 to 8 partitions, servers killed", private_valkey)


@pytest.mark.faults
@pytest.mark.timeout(1200)
async def test_the_same_for_a_namespace_whose_topics_share_their_ids(suite: FaultSuite, folder: Path) -> None:
    """Ten seeds in the long suite, each on a store of its own, because the partitions belong to the namespace."""
    for seed in range(suite.seed, suite.seed + suite.rounds(1, 10)):
        with PrivateValkey() as store:
            run = ExpansionRun(folder / str(seed), store.url, seed, namespace_ids=True)
            await judge(suite, run, "1 to 8 partitions of a namespace, servers killed", store)


async def judge(suite: FaultSuite, run: ExpansionRun, scenario: str, store: PrivateValkey) -> None:
    seed = run.seed
    report = await run.run()
    findings = [str(finding) for finding in (await fsck(store.url)).findings]
    if report.violations or findings or run.load.bugs:
        write(Path("/tmp") / f"expansion-{seed}.jsonl", run.recorder.events, run.final)
    others = [*findings, *map(str, run.load.bugs), *run.others]
    suite.report(judged(scenario, seed, run.recorder.events, run.final, others=others))
    assert (report.left, report.faults) == (0, run.kills)
    assert run.kills >= KILLS
    assert report.unknown + report.unavailable > 0, "the kills hit nothing: this run shows nothing"
    for topic in run.topics:
        numbers = [_last_number(store, topic, number, run.namespace_ids) for number in range(PARTITIONS + 1)]
        assert all(numbers), f"a partition was never used: {numbers}"


def _last_number(store: PrivateValkey, topic: str, partition: int, namespace_ids: bool) -> int:
    keys = partition_keys("dueline", Partition("default", topic, partition, namespace_ids)).keys
    return int(store.ask("HGET", keys[0], "seq") or 0)


def forgetful(name: str, source: str) -> str:
    """A closed partition that says MOVED also for ids that it holds."""
    if name != "send":
        return source
    held = "elseif not records[i] and not runs[i] then"
    assert held in source
    return source.replace(held, "elseif closed or (not records[i] and not runs[i]) then")


@pytest.mark.parametrize(("patch", "is_sound"), [(None, True), (forgetful, False)])
async def test_the_checker_sees_whether_old_partitions_answer_for_their_ids(
    patch: Callable[[str, str], str] | None, is_sound: bool, private_valkey: PrivateValkey
) -> None:
    recorder, topic = Recorder(), f"t-{uuid.uuid4().hex}"
    plan = Plan(topics=(topic,), max_delay_ms=300, conflict_share=0.5, max_jobs=800, pause_ms=4.0, wait_ms=60)
    async with served(ValkeyStore(private_valkey.url, lua_patch=patch)) as address:
        load, client = Load(plan, [address], recorder, seed=5), RecordingClient("conflicts", *address, recorder)
        old = [Job(f"old-{n}", b"1", delay_ms=3_000) for n in range(20)]
        await client.send(topic, old)
        await load.start()
        await load.acknowledged_reaches(250)
        added = await Connection(*address).request("PUT", f"/v1/topics/{topic}", MORE)
        assert added.status == 200
        for job in old:  # the old partition has the id, and another body
            await client.send(topic, [Job(job.id, b"2", delay_ms=3_000)])
        await client.close()
        await load.acknowledged_reaches(700)
        await load.stop_sending()
        await load.drained(10.0)
        await load.stop()
        final = await load.dump()
    report = check(recorder.events, final)
    assert (report.violations == ()) is is_sound, report.violations[:3]
    assert is_sound or report.count(*DOUBLED, Kind.CONFLICT_ACCEPTED) > 0
