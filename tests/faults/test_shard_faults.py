"""One shard of a Cluster is down, or has lost its data, while the others serve. No shard has a replica here."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from dueline.testing.history import Fault, Outcome, Send
from tests.kit.fault_suite import FaultSuite
from tests.kit.fixtures import partial_cluster as partial_cluster
from tests.kit.slots import topics_on
from tests.kit.valkey import PrivateCluster, PrivateValkey
from tests.kit.waiting import until
from tools.faults.load import Load
from tools.faults.scenario import Scenario

from .under_load import DRAINED_WITHIN_S, TAME, LoadedServers, loaded

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

CLEAN = {"store_down", "unknown_outcome", "loading", "lease_lost"}
RESTLESS = msgspec.structs.replace(TAME, producers=2, consumers=2, retry_s=0.2, lease_ms=(5_000,))
"""Does not wait for a shard that is down. A lease whose answer was lost runs out soon."""
REPLACED = "store_replaced"
REFUSALS = 20
DIRECTORY = "dueline:{directory}:topics"


async def test_a_shard_that_is_down_is_named_and_the_others_serve(
    suite: FaultSuite, partial_cluster: PrivateCluster, folder: Path
) -> None:
    """The shard of the directory is not taken down: without it a server knows no topics."""
    home = partial_cluster.primary_of(DIRECTORY)
    lost, other = (node for node in partial_cluster.nodes if node is not home)
    [topic], served = topics_on(lost, 1), [*topics_on(home, 1), *topics_on(other, 1)]
    options = {"plan": TAME, "topics": served, "durability": "standard"}
    async with loaded(folder, partial_cluster.url, suite.seed, **options) as running, beside(running, topic) as load:
        for _ in range(suite.rounds(1, 5)):
            await shard_down(running, lost, topic)
        await load.stop_sending()
        await load.drained(DRAINED_WITHIN_S)
        failed = Counter(event.code for event in running.recorder.events if event.outcome is not Outcome.OK)
        running.others += [f"{count} calls were answered {code}" for code, count in failed.items() if code not in CLEAN]
        running.others += [f"status 500 or worse: {bug}" for bug in load.bugs]
        suite.report(await running.finished("Cluster: a shard is down", gap_topics=served, extra_topics=[topic]))


@asynccontextmanager
async def beside(running: LoadedServers, topic: str) -> AsyncIterator[Load]:
    """A second load in the same history, on the shard that goes down, so that the first never waits for it."""
    plan = msgspec.structs.replace(RESTLESS, topics=(topic,))
    load = Load(plan, [server.address for server in running.servers], running.recorder, running.seed)
    await load.start()
    try:
        await load.acknowledged_reaches(10)
        yield load
    finally:
        await load.stop()


async def shard_down(running: LoadedServers, node: PrivateValkey, topic: str) -> None:
    """Down until the server names it and the others have served for a while."""
    began_ns = running.recorder.now_ns()
    node.kill()

    def is_named(text: str) -> bool:
        return "shard_down" in text and f"127.0.0.1:{node.port}" in text

    await until(lambda: readiness(running), lambda found: is_named(found[1]))
    down_ns = running.recorder.now_ns()
    await asyncio.sleep(2.0)

    def accepted() -> set[str]:
        sends = [e for e in running.recorder.events if isinstance(e, Send) and e.invoke_ns > down_ns]
        return {e.topic for e in sends if e.outcome is Outcome.OK}

    await until(accepted, lambda topics: len(topics) >= 2, within_s=60.0)
    status, text = await readiness(running)
    if status != 200 or not is_named(text):
        running.others.append(f"/readyz with a shard down: {status} {text}")
    if len(accepted()) != 2 or topic in accepted():
        running.others.append(f"{len(accepted())} topics accepted sends while one of three shards was down")
    node.start()
    running.recorder.fault("a shard was down", began_ns)
    await until(lambda: readiness(running), lambda found: "shard_down" not in found[1])
    await running.serves()


async def readiness(running: LoadedServers) -> tuple[int, str]:
    answer = await running.get("/readyz")
    return answer.status, answer.body.decode()


async def test_no_send_is_accepted_by_a_shard_that_was_emptied(
    suite: FaultSuite, partial_cluster: PrivateCluster, folder: Path
) -> None:
    """FLUSHALL of each shard in turn, that of the directory last. Every server refuses from its next call on."""
    home = partial_cluster.primary_of(DIRECTORY)
    nodes = sorted(partial_cluster.nodes, key=lambda node: node is home)
    topics = {node.port: topics_on(node, 1)[0] for node in nodes}
    late_ms, refused = 0.0, 0
    options = {"plan": RESTLESS, "topics": list(topics.values()), "durability": "standard"}
    async with loaded(folder, partial_cluster.url, suite.seed, **options) as running:
        for node in nodes:
            emptied_ns = await emptied(running, node, topics[node.port])
            sends = [e for e in running.recorder.events if isinstance(e, Send) and e.topic == topics[node.port]]
            after = [e for e in sends if e.complete_ns > emptied_ns]
            first_ns = min(e.complete_ns for e in after if e.code == REPLACED)
            late = [e for e in after if e.outcome is Outcome.OK and e.invoke_ns > first_ns]
            running.others += [f"{len(late)} sends were accepted after the first refusal"] if late else []
            late_ms = max(late_ms, (first_ns - emptied_ns) / 1e6)
            refused += sum(1 for e in after if e.code == REPLACED)
        calls = [e for e in running.recorder.events if not isinstance(e, Fault)]
        suite.report(
            Scenario(
                name="Cluster: FLUSHALL of each shard",
                seed=suite.seed,
                operations=len(calls),
                faults=len(nodes),
                unknowns=sum(1 for e in calls if e.outcome is Outcome.INFO),
                refused=refused,
                refusal_ms=late_ms,
                refusal_limit_ms=1000,
                others=tuple(await running.trouble()),
            )
        )


async def emptied(running: LoadedServers, node: PrivateValkey, topic: str) -> int:
    """Empty a shard under load, and go on when each of the servers has refused some sends. Returns when it was."""
    began_ns = running.recorder.now_ns()
    await asyncio.to_thread(node.ask, "FLUSHALL")
    running.recorder.fault(f"FLUSHALL of {node.port}", began_ns)

    def refusals() -> int:
        events = running.recorder.events
        return sum(1 for e in events if e.topic == topic and e.code == REPLACED and e.complete_ns > began_ns)

    await until(refusals, lambda count: count >= REFUSALS)
    return began_ns
