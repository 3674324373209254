"""The workers of a namespace as the store keeps them: their beats, their end, and how they are forgotten."""

from __future__ import annotations

from dueline.engine.worker_store import FORGET_MS, WORKER_PAGE, WorkerEntry
from tests.kit.store import StoreKit


async def test_a_worker_is_known_for_a_minute_after_its_last_beat(kit: StoreKit) -> None:
    workers, namespace = kit.store.workers, kit.partition.topic
    assert await workers.beat(namespace, "a", b"\x00one")
    first_ms = kit.clock.now_ms
    kit.clock.advance(5)
    assert await workers.beat(namespace, "b", b"two")
    assert await workers.beat(f"{namespace}-other", "c", b"three")
    kit.clock.advance(FORGET_MS - 6)
    entries = [WorkerEntry("a", first_ms, False, b"\x00one"), WorkerEntry("b", first_ms + 5, False, b"two")]
    assert await workers.page(namespace, 0) == (entries, None)
    assert [await workers.get(namespace, name) for name in ("a", "b", "c", "")] == [*entries, None, None]
    kit.clock.advance(1)
    assert await workers.page(namespace, 0) == (entries[1:], None)
    assert [await workers.get(namespace, name) for name in ("a", "b")] == [None, entries[1]]
    assert await workers.beat(namespace, "b", b"new")
    assert await workers.page(namespace, 0) == ([WorkerEntry("b", kit.clock.now_ms, False, b"new")], None)


async def test_a_worker_that_stops_is_shown_as_stopped_until_it_is_forgotten_or_beats_again(kit: StoreKit) -> None:
    workers, namespace = kit.store.workers, kit.partition.topic
    assert not await workers.leave(namespace, "a")
    await workers.beat(namespace, "a", b"one")
    assert await workers.leave(namespace, "a")
    assert await workers.page(namespace, 0) == ([WorkerEntry("a", kit.clock.now_ms, True, b"one")], None)
    await workers.beat(namespace, "a", b"two")
    assert await workers.page(namespace, 0) == ([WorkerEntry("a", kit.clock.now_ms, False, b"two")], None)


async def test_workers_come_in_pages(kit: StoreKit) -> None:
    workers, namespace = kit.store.workers, kit.partition.topic
    for number in range(WORKER_PAGE + 3):
        await workers.beat(namespace, f"{number:04}", b"")
    first, start = await workers.page(namespace, 0)
    assert (len(first), start) == (WORKER_PAGE, WORKER_PAGE)
    rest, end = await workers.page(namespace, WORKER_PAGE)
    assert ([one.name for one in rest], end) == (["0200", "0201", "0202"], None)
