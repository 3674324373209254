"""Several servers on one store, one of them paused, and clients that go away at any moment."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from dueline.api.answers import LeasedJob
from dueline.testing.checker import check
from dueline.testing.history import Outcome, Recorder
from tests.kit.async_tests import one_loop
from tests.kit.waiting import until
from tools.faults.connection import Connection
from tools.faults.load import Load, Plan
from tools.faults.recording_client import Job, RecordingClient

from ..kit.valkey import PrivateValkey
from .kit import ServersKit, shared_servers

TOGETHER = 10_000


loop_runner = one_loop  # the tests share servers


@pytest.fixture(scope="module")
def kit(private_valkey: PrivateValkey, loop_runner: asyncio.Runner) -> Iterator[ServersKit]:
    """Two servers on one store."""
    with shared_servers(2, private_valkey.url, loop_runner) as kit:
        yield kit


async def test_two_servers_deliver_ten_thousand_jobs_due_together_once_each(kit: ServersKit) -> None:
    recorder = Recorder()
    servers = kit.servers
    producer = RecordingClient("producer", *servers[0].address, recorder, timeout_s=20)
    info = (await Connection(*servers[0].address).request("GET", "/v1/info")).json()
    now_ms = int(time.time() * 1000) + info["clock_offset_ms"]
    jobs = [Job(f"j{n:05}", b"%d" % n, at_ms=now_ms + 2_500) for n in range(TOGETHER)]
    for begin in range(0, TOGETHER, 1000):
        verdicts = await producer.send("together", jobs[begin : begin + 1000])
        assert {v.outcome for v in verdicts} == {Outcome.OK}
    left = TOGETHER

    async def consume(number: int) -> None:
        nonlocal left
        recording_client = RecordingClient(f"c{number}", *servers[number % 2].address, recorder, timeout_s=20)
        while left > 0:
            leases = await recording_client.pull("together", max=200, lease_ms=60_000, wait_ms=1_000)
            assert leases is not None
            left -= len(leases)

    await asyncio.gather(*(consume(n) for n in range(8)))
    final = await producer.dump("together")
    report = check(recorder.events, final)
    assert report.violations == ()
    assert (report.sends_ok, report.deliveries, report.redeliveries) == (TOGETHER, TOGETHER, 0)
    takers = Counter(e.client[-1] for e in recorder.events if e.client.startswith("c") and e.id)
    assert any(int(c) % 2 == 0 for c in takers), "one server served nobody: this test shows little"
    assert any(int(c) % 2 == 1 for c in takers), "one server served nobody: this test shows little"


async def test_a_poll_parked_on_one_server_is_woken_by_a_send_on_the_other_and_a_paused_server_is_fenced(
    kit: ServersKit,
) -> None:
    recorder = Recorder()
    one, two = kit.servers
    first = RecordingClient("first", *one.address, recorder, timeout_s=20)
    second = RecordingClient("second", *two.address, recorder, timeout_s=20)
    sender = RecordingClient("sender", *one.address, recorder)

    parked = asyncio.create_task(second.pull("wake", wait_ms=60_000))
    await until_parked(two.address, "wake")
    await sender.send("wake", [Job("a", b"1")])
    async with asyncio.timeout(10):
        assert [lease.id for lease in await parked or []] == ["a"]

    await sender.send("fence", [Job("b", b"2")])
    [leased] = await first.pull("fence", lease_ms=300) or []
    one.signal(signal.SIGSTOP)
    late = [
        asyncio.create_task(call(RecordingClient(name, *one.address, recorder, timeout_s=20), leased))
        for name, call in LATE.items()
    ]
    [newer] = await second.pull("fence", lease_ms=30_000, wait_ms=10_000) or []
    assert (newer.id, newer.delivery) == ("b", 2)
    one.signal(signal.SIGCONT)
    verdicts = [await call for call in late]
    assert [(v.outcome, v.code) for v in verdicts] == [(Outcome.FAIL, "lease_lost")] * 3
    assert [v.outcome for v in await second.ack([newer])] == [Outcome.OK]
    final = await second.dump("fence") | await second.dump("wake")
    assert check(recorder.events, final).violations == ()


async def late_ack(recording_client: RecordingClient, lease: LeasedJob):
    return (await recording_client.ack([lease]))[0]


LATE = {
    "late ack": late_ack,
    "late release": lambda recording_client, lease: recording_client.release(lease),
    "late extend": lambda recording_client, lease: recording_client.extend(lease, 60_000),
}


async def until_parked(address: tuple[str, int], topic: str, polls: int = 1) -> None:
    """Wait until that many polls are parked on a topic of this server."""
    http = Connection(*address)
    await until(
        lambda: http.request("GET", f"/v1/topics/{topic}"),
        lambda answer: answer.status == 200 and answer.json()["waiters"] >= polls,
    )
    http.close()


async def test_clients_that_go_away_at_any_moment_leave_nothing_behind(kit: ServersKit) -> None:
    """Clients hang up in the middle of calls, beside a load whose every answer is checked to be its own."""

    recorder = Recorder()
    plan = Plan(topics=("storm-a", "storm-b"), max_delay_ms=200, lease_ms=(300, 500), wait_ms=200)
    server = kit.servers[0]
    fds_before = open_files(server.pid)
    load = Load(plan, [server.address], recorder, seed=6)
    await load.start()
    await load.acknowledged_reaches(50)
    dice = random.Random(6)
    began_ns = recorder.now_ns()
    await asyncio.gather(*(hang_up(server.address, random.Random(dice.random())) for _ in range(400)))
    recorder.fault("400 clients hung up", began_ns)
    await load.stop_sending()
    assert await load.drained(20), "a lease was left behind"
    await load.stop()
    assert load.bugs == []
    report = check(recorder.events, await load.dump())
    assert report.violations == ()
    assert report.left == 0
    assert report.deliveries > 0
    await until(lambda: open_files(server.pid) <= fds_before + 4)


async def test_a_poll_whose_client_is_gone_takes_no_job(kit: ServersKit) -> None:
    recorder = Recorder()
    server = kit.servers[1]
    sender = RecordingClient("sender", *server.address, recorder)
    gone = [Connection(*server.address) for _ in range(60)]
    wish = b'{"max":1,"lease_ms":600000,"wait_ms":60000}'
    for connection in gone:
        await connection.send_only("POST", "/v1/topics/gone/pull", wish)
    await until_parked(server.address, "gone", len(gone))
    for connection in gone:
        connection.close()
    await sender.send("gone", [Job(str(n), b"1") for n in range(60)])
    found: list[LeasedJob] = []
    async with asyncio.timeout(15):
        while len(found) < 60:
            found += await sender.pull("gone", max=60, lease_ms=60_000, wait_ms=5_000) or []
    assert {lease.attempt for lease in found} == {1}, "a client that was gone cost an attempt"
    await sender.close()


async def hang_up(address: tuple[str, int], dice: random.Random) -> None:
    """Begin a call and leave: while it is written, while it waits, or when its answer is there."""
    await asyncio.sleep(dice.uniform(0, 1.0))
    topic = dice.choice(("storm-a", "storm-b"))
    path, body = dice.choice(
        (
            (f"/v1/topics/{topic}/pull", b'{"max":5,"lease_ms":900,"wait_ms":3000}'),
            (f"/v1/topics/{topic}/pull", b'{"max":5,"lease_ms":900}'),
            (f"/v1/topics/{topic}/jobs/none/fire", b""),
            (f"/v1/topics/{topic}/ack", b'{"jobs":[{"id":"x","lease":"y"}]}'),
        )
    )
    connection = Connection(*address)
    call = asyncio.create_task(connection.request("POST", path, body))
    await asyncio.wait([call], timeout=dice.choice((0.0, 0.001, 0.01, 0.1)))
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    connection.close()


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
