"""A Cluster under faults: three primaries with a replica each, two servers at `replicated`, load, a checked history."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dueline.testing.history import Outcome
from tests.kit.fault_suite import FaultSuite
from tests.kit.slots import move_slot, move_slots_atomically, primaries, slot_of_topic, slots_of, topics_on
from tests.kit.valkey import PrivateCluster, PrivateValkey, running_stores
from tests.kit.waiting import until

from .parked_polls import ParkedPolls
from .under_load import TAME, LoadedServers, loaded

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

NODE_TIMEOUT_MS = 1500
POLLS = 100
WAKE_LIMIT_MS = 50
CLEAN = {"store_down", "unknown_outcome"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[PrivateCluster]:
    quick = ("--repl-diskless-sync-delay", "0")
    with running_stores(PrivateCluster(replicas=1, node_timeout_ms=NODE_TIMEOUT_MS, options=quick)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def calm_cluster() -> Iterator[PrivateCluster]:
    """For tests without a failover. On a busy machine a node that gets no time must not be replaced."""
    with running_stores(
        PrivateCluster(replicas=1, node_timeout_ms=60_000, options=("--repl-diskless-sync-delay", "0"))
    ) as cluster:
        yield cluster


def owner(nodes: Sequence[PrivateValkey], slot: int) -> PrivateValkey | None:
    """Which of these nodes says that it serves the slot."""
    return next((node for node in nodes if slot in slots_of(node)), None)


async def primary_killed(running: LoadedServers, cluster: PrivateCluster, slot: int) -> None:
    """It comes back as a replica. Without it the new primary has none, and cannot accept anything."""
    old = owner(cluster.nodes, slot)
    assert old is not None
    others = [node for node in cluster.nodes if node is not old]
    began_ns = running.recorder.now_ns()
    old.kill()
    running.recorder.fault("primary killed", began_ns)
    await until(lambda: asyncio.to_thread(owner, others, slot), every_s=0.05)
    old.start()


async def primary_paused(running: LoadedServers, cluster: PrivateCluster, slot: int) -> None:
    old = owner(cluster.nodes, slot)
    assert old is not None
    others = [node for node in cluster.nodes if node is not old]
    began_ns = running.recorder.now_ns()
    old.pause()
    try:
        await until(lambda: asyncio.to_thread(owner, others, slot), every_s=0.05)
    finally:
        old.resume()
    running.recorder.fault("primary paused", began_ns)


FAULTS = {"killed": primary_killed, "paused": primary_paused}


@pytest.mark.parametrize("how", ["killed", "paused"])
async def test_nothing_is_lost_and_all_polls_are_woken_when_a_primary_is_replaced(
    suite: FaultSuite, cluster: PrivateCluster, folder: Path, how: str
) -> None:
    hurt, *rest = await asyncio.to_thread(primaries, cluster)
    topics = [*topics_on(hurt, 2), *topics_on(rest[0], 1)]
    slot = slot_of_topic(topics[0])
    wake_ms, polled = 0.0, list[str]()
    async with loaded(folder, cluster.url, suite.seed, topics=topics) as running:
        for _ in range(suite.rounds(1, 10)):
            node = owner(cluster.nodes, slot)
            assert node is not None
            polled += (parked := topics_on(node, POLLS))
            polls = ParkedPolls(running, parked)
            await polls.park()
            await asyncio.sleep(running.dice.uniform(0.1, 0.8))
            fault = asyncio.create_task(FAULTS[how](running, cluster, slot))
            wake_ms = max(wake_ms, await polls.wake(topics[0]))
            await fault
            await running.serves()
            await asyncio.to_thread(cluster.wait_until_whole)
        times = {"wake_ms": wake_ms, "wake_limit_ms": WAKE_LIMIT_MS, "gap_limit_ms": NODE_TIMEOUT_MS + 4_000}
        name = f"Cluster: primary {how}, {POLLS} polls"
        suite.report(await running.finished(name, gap_topics=topics[:2], extra_topics=polled, **times))


@pytest.mark.parametrize("how", ["atomically", "key by key"])
async def test_polls_of_slots_that_move_are_woken(
    suite: FaultSuite, calm_cluster: PrivateCluster, folder: Path, how: str
) -> None:
    """All slots of the polls move to the next shard, and back: at once, or one after the other."""
    cluster = calm_cluster
    source, target, _ = await asyncio.to_thread(primaries, cluster)
    topics = topics_on(source, 2)
    wake_ms, polled = 0.0, list[str]()
    async with loaded(folder, cluster.url, suite.seed, topics=topics, plan=TAME) as running:
        for _ in range(suite.rounds(2, 10)):
            polled += (parked := topics_on(source, POLLS))
            polls = ParkedPolls(running, parked)
            await polls.park()
            began_ns = running.recorder.now_ns()
            slots = {slot_of_topic(topic) for topic in (*topics, *parked)}
            if how == "atomically":
                await asyncio.to_thread(move_slots_atomically, cluster, slots, source, target)
            else:
                for slot in slots:
                    await asyncio.to_thread(move_slot, cluster, slot, target)
            running.recorder.fault(f"{len(slots)} slots moved", began_ns)
            wake_ms = max(wake_ms, await polls.wake(topics[0]))
            await running.serves()
            source, target = target, source
        running.others += not_accepted(running) if how == "atomically" else unclean(running)
        name = f"Cluster: slots moved {how}, {POLLS} polls"
        times = {"wake_ms": wake_ms, "wake_limit_ms": WAKE_LIMIT_MS}
        suite.report(await running.finished(name, extra_topics=polled, **times))


def not_accepted(running: LoadedServers) -> list[str]:
    """The calls that were not answered 2xx, by kind."""
    failed = Counter(f"{type(e).__name__} {e.code}" for e in running.recorder.events if e.outcome is not Outcome.OK)
    return [f"{count} x {what}" for what, count in failed.items()]


def unclean(running: LoadedServers) -> list[str]:
    """The refusals that no caller should see."""
    codes = {event.code for event in running.recorder.events if event.outcome is not Outcome.OK} - CLEAN
    return [f"a call was answered {code}" for code in codes]


async def test_atomic_moves_of_slots_refuse_no_call(
    suite: FaultSuite, calm_cluster: PrivateCluster, folder: Path
) -> None:
    cluster = calm_cluster
    nodes = await asyncio.to_thread(primaries, cluster)
    topics = topics_on(nodes[0], 2)
    async with loaded(folder, cluster.url, suite.seed, topics=topics, plan=TAME) as running:
        for number in range(suite.rounds(6, 100)):
            await move(running, slot_of_topic(topics[number % 2]), cluster, nodes, atomically=True)
        running.others += not_accepted(running)
        suite.report(await running.finished("Cluster: slots moved atomically"))


async def test_moves_of_slots_key_by_key_are_clean(
    suite: FaultSuite, calm_cluster: PrivateCluster, folder: Path
) -> None:
    """A call may be refused while its slot is half moved, but only cleanly."""
    cluster = calm_cluster
    nodes = await asyncio.to_thread(primaries, cluster)
    topics = topics_on(nodes[0], 2)
    async with loaded(folder, cluster.url, suite.seed, topics=topics, plan=TAME) as running:
        for number in range(suite.rounds(6, 100)):
            await move(running, slot_of_topic(topics[number % 2]), cluster, nodes, atomically=False)
        running.others += unclean(running)
        suite.report(await running.finished("Cluster: slots moved key by key"))


async def move(
    running: LoadedServers, slot: int, cluster: PrivateCluster, nodes: Sequence[PrivateValkey], *, atomically: bool
) -> None:
    """Move the slot to a node that does not have it, and go on when sends are accepted."""
    source = owner(nodes, slot)
    assert source is not None
    target = running.dice.choice([node for node in nodes if node is not source])
    began_ns = running.recorder.now_ns()
    if atomically:
        await asyncio.to_thread(move_slots_atomically, cluster, {slot}, source, target)
    else:
        await asyncio.to_thread(move_slot, cluster, slot, target)
    running.recorder.fault(f"slot {slot} moved", began_ns)
    await running.serves(sends=5)
