"""Sentinel under faults: one primary, two replicas, three sentinels, two servers, load, a checked history."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dueline.testing.history import Outcome, Send
from dueline.testing.process import DUELINE
from tests.kit.fault_suite import FaultSuite
from tests.kit.valkey import SERVICE, PrivateSentinels, running_stores
from tools.faults.scenario import Scenario

from .under_load import TAME, LoadedServers, loaded

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

DOWN_AFTER_MS = 1000
PATIENCE_MS = 4_500
REFUSED = {"unknown_outcome", "store_down"}  # the latter waited behind such a send, and was not sent
REPLICAS_PAUSED_S = 7.0  # longer than the patience, so that refusals are seen
PATIENT = msgspec.structs.replace(
    TAME, timeout_s=10.0, lease_ms=(5_000,)
)  # waits for the answer of a server that waits
CONTROLS = 3  # tries until one loses something
OLD_PRIMARY_ACCEPTS_S = 2.0  # Sentinel makes a replica of it only after 8 s


@pytest.fixture(scope="module")
def sentinels() -> Iterator[PrivateSentinels]:
    with running_stores(PrivateSentinels(down_after_ms=DOWN_AFTER_MS)) as sentinels:
        yield sentinels


async def primary_killed(running: LoadedServers, sentinels: PrivateSentinels) -> None:
    """It comes back as a replica of the new one, as with the configuration that Sentinel writes."""
    old = sentinels.primary()
    began_ns = running.recorder.now_ns()
    old.kill()
    running.recorder.fault("primary killed", began_ns)
    new = await asyncio.to_thread(sentinels.wait_until_replaced, old)
    old.start("--replicaof", f"127.0.0.1 {new.port}")


async def primary_paused(running: LoadedServers, sentinels: PrivateSentinels) -> None:
    """The primary stands still until it is replaced, and one of the servers with it, as on a machine that swaps. Then
    both go on: the old primary does not know that it was replaced, and the server still has a connection to it."""
    old, server = sentinels.primary(), running.servers[0]
    began_ns = running.recorder.now_ns()
    old.pause()
    server.signal(signal.SIGSTOP)
    try:
        await asyncio.to_thread(sentinels.wait_until_replaced, old)
    finally:
        old.resume()
        server.signal(signal.SIGCONT)
    running.recorder.fault("primary and a server paused", began_ns)
    await asyncio.sleep(OLD_PRIMARY_ACCEPTS_S)


async def primary_demoted(running: LoadedServers, sentinels: PrivateSentinels) -> None:
    """A failover by hand: the primary is alive, and its second replica follows it a while longer."""
    old = sentinels.primary()
    began_ns = running.recorder.now_ns()
    sentinels.sentinels[0].ask("SENTINEL", "FAILOVER", SERVICE)
    await asyncio.to_thread(sentinels.wait_until_replaced, old)
    running.recorder.fault("failover by hand", began_ns)


FAULTS = {"killed": primary_killed, "paused": primary_paused, "demoted by hand": primary_demoted}


@pytest.mark.parametrize(
    ("how", "durability"),
    [("killed", "replicated"), ("paused", "replicated"), ("demoted by hand", "replicated"), ("paused", "standard")],
)
async def test_nothing_answered_is_lost_when_sentinels_replace_a_primary(
    suite: FaultSuite, sentinels: PrivateSentinels, folder: Path, how: str, durability: str
) -> None:
    """The control: at `standard`, what the old primary accepts after its pause is answered and lost. The servers notice
    it, and refuse sends until an operator accepts the loss."""
    control = durability == "standard"
    for _ in range(CONTROLS if control else 1):  # on a busy machine the servers may see in time that it was replaced
        scenario = await replaced(suite, sentinels, folder, how, durability)
        if not control or scenario.lost:
            break
    suite.report(scenario)


async def replaced(suite: FaultSuite, sentinels: PrivateSentinels, folder: Path, how: str, durability: str) -> Scenario:
    control = durability == "standard"
    async with loaded(folder, sentinels.url, suite.seed, durability=durability) as running:
        for _ in range(suite.rounds(1, 10)):
            await asyncio.sleep(running.dice.uniform(0.1, 0.8))
            await FAULTS[how](running, sentinels)
            if control:
                await asyncio.to_thread(sentinels.wait_until_whole)
                await loss_accepted(sentinels.url)
            await running.serves()
            await asyncio.to_thread(sentinels.wait_until_whole)
        name = f"Sentinel: primary {how}" + (", at `standard` (control)" if control else "")
        limit = None if control else DOWN_AFTER_MS + 4_000
        return await running.finished(name, control=control, gap_limit_ms=limit)


async def loss_accepted(store_url: str) -> None:
    command = (*DUELINE, "store", "accept", store_url, "--yes")
    accepting = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await accepting.communicate()
    assert accepting.returncode == 0, said.decode()


async def test_without_replicas_no_send_is_accepted(
    suite: FaultSuite, sentinels: PrivateSentinels, folder: Path
) -> None:
    """Both replicas stand still. Each call is refused within the patience of the server, which is shown only."""
    slowest_ns = 0
    async with loaded(folder, sentinels.url, suite.seed, plan=PATIENT) as running:
        for _ in range(suite.rounds(1, 5)):
            during = await replicas_paused(running, sentinels)
            refused = [event for event in during if event.outcome is not Outcome.OK]
            codes = {event.code for event in refused}
            if len(refused) < len(during) or "unknown_outcome" not in codes or not codes <= REFUSED:
                counts = Counter(event.code or "accepted" for event in during)
                running.others.append(f"sends without a replica were answered: {dict(counts)}")
            slowest_ns = max(slowest_ns, *(event.complete_ns - event.invoke_ns for event in refused), 0)
            await running.serves()
            await asyncio.to_thread(sentinels.wait_until_whole)
        figures = {"refusal_ms": slowest_ns / 1e6, "refusal_limit_ms": PATIENCE_MS + 500}
        suite.report(await running.finished("Sentinel: both replicas paused", **figures))


async def replicas_paused(running: LoadedServers, sentinels: PrivateSentinels) -> list[Send]:
    """The sends that began and were answered while the replicas stood still."""
    primary = sentinels.primary()
    replicas = [node for node in sentinels.nodes if node is not primary]
    for replica in replicas:
        replica.pause()
    began_ns = running.recorder.now_ns()
    try:
        await asyncio.sleep(REPLICAS_PAUSED_S)
    finally:
        ended_ns = running.recorder.now_ns()
        for replica in replicas:
            replica.resume()
    running.recorder.fault("both replicas paused", began_ns)
    sends = [event for event in running.recorder.events if isinstance(event, Send)]
    return [event for event in sends if began_ns < event.invoke_ns and event.complete_ns < ended_ns]
