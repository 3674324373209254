"""Lists, tags, pages and figures."""

from __future__ import annotations

import pytest

from dueline.engine.job import State
from dueline.engine.limits import LAST_MS
from dueline.engine.store import Purge, Query
from tests.kit.store import StoreKit, item


async def one_of_each(kit: StoreKit) -> None:
    """done, cancelled, dead, leased, ready, scheduled: one job each, named after its state."""
    await kit.make_dead("dead", tags=("all",))
    await kit.send_many([item(id, tags=("all",)) for id in ("leased", "done", "cancelled")])
    leased = {one.id: one.lease for one in await kit.pull()}
    await kit.ack("done", leased["done"])
    await kit.cancel("cancelled")
    await kit.send_many([item("ready", tags=("all", "x")), item("scheduled", tags=("all",), delay_ms=100)])


@pytest.mark.parametrize("state", list(State))
async def test_a_list_of_a_state_has_exactly_the_jobs_of_that_state(kit: StoreKit, state: State) -> None:
    await one_of_each(kit)
    assert [(job.id, job.state) for job in await kit.listed(state=state)] == [(state.value, state)]


async def test_a_list_without_a_state_has_every_job(kit: StoreKit) -> None:
    await one_of_each(kit)
    ids = await kit.listed_ids()
    assert sorted(ids) == sorted(state.value for state in State)


async def test_listed_jobs_are_those_that_read_gives(kit: StoreKit) -> None:
    await one_of_each(kit)
    for body in (False, True):
        for job in await kit.listed(body=body):
            assert job == await kit.read(job.id, body=body)


async def test_a_tag_finds_live_and_dead_jobs(kit: StoreKit) -> None:
    await one_of_each(kit)
    assert sorted(await kit.listed_ids(tag="all")) == ["dead", "leased", "ready", "scheduled"]
    assert await kit.listed_ids(tag="x") == ["ready"]
    assert await kit.listed_ids(tag="al") == []
    assert await kit.listed_ids(tag="all", state=State.SCHEDULED) == ["scheduled"]


async def test_a_tag_that_begins_like_another_is_not_it(kit: StoreKit) -> None:
    await kit.send_many([item("a", tags=("t",)), item("b", tags=("t1",)), item("1a", tags=("té",))])
    assert await kit.listed_ids(tag="t") == ["a"]
    assert await kit.listed_ids(tag="t1") == ["b"]
    assert await kit.listed_ids(tag="té") == ["1a"]


async def test_waiting_jobs_are_listed_in_due_order_over_all_pages(kit: StoreKit) -> None:
    order = [f"{n:03}" for n in range(130)]
    await kit.send_many([item(id, delay_ms=1_000 + int(id)) for id in reversed(order)])
    for limit in (1, 7, 50, 130, 500):
        assert await kit.listed_ids(state=State.SCHEDULED, limit=limit) == order
    await kit.advance(5_000)
    assert await kit.listed_ids(state=State.READY, limit=20) == order


async def test_jobs_of_one_millisecond_are_listed_once_each_in_send_order(kit: StoreKit) -> None:
    order = [f"{n * 7 % 100}" for n in range(100)]
    await kit.send_many([item(id, delay_ms=10) for id in order])
    assert await kit.listed_ids(state=State.SCHEDULED, limit=9) == order


@pytest.mark.parametrize("state", [State.LEASED, State.DEAD, State.DONE, State.CANCELLED, None])
async def test_every_state_can_be_paged(kit: StoreKit, state: State | None) -> None:
    ids = {f"{n}" for n in range(25)}
    await kit.send_many([item(id, max_attempts=1) for id in ids])
    leased = {one.id: one.lease for one in await kit.pull()}
    for id, lease in leased.items():
        if state is State.DEAD:
            await kit.release(id, lease)
        elif state is State.DONE:
            await kit.ack(id, lease)
        elif state is State.CANCELLED:
            await kit.cancel(id)
    found = await kit.listed_ids(state=state, limit=4)
    assert (len(found), set(found)) == (25, ids)


async def test_dead_jobs_are_listed_from_the_newest_to_the_oldest(kit: StoreKit) -> None:
    order = [f"{n:02}" for n in range(12)]
    for id in order:
        await kit.make_dead(id)
        await kit.advance(10)
    for limit in (1, 5, 12, 50):
        assert await kit.listed_ids(state=State.DEAD, newest=True, limit=limit) == order[::-1]
    first = await kit.store.list(kit.partition, Query(state=State.DEAD, newest=True, limit=4))
    assert ([job.id for job in first.jobs], first.cursor is None) == (order[:-5:-1], False)
    await kit.store.purge(kit.partition, Purge(("08", "07", "02")))
    await kit.make_dead("late")
    assert first.cursor is not None
    rest = await kit.listed_ids(after=first.cursor, state=State.DEAD, newest=True, limit=4)
    assert rest == ["06", "05", "04", "03", "01", "00"]


async def test_dead_jobs_of_one_millisecond_are_listed_once_each(kit: StoreKit) -> None:
    ids = {f"{n}" for n in range(120)}
    await kit.send_many([item(id, max_attempts=1) for id in ids])
    for leased in await kit.pull():
        await kit.release(leased.id, leased.lease)
    found = await kit.listed_ids(state=State.DEAD, newest=True, limit=7)
    assert (len(found), set(found)) == (120, ids)


async def test_pages_go_on_when_jobs_vanish_or_appear_between_them(kit: StoreKit) -> None:
    order = [f"{n:02}" for n in range(30)]
    await kit.send_many([item(id, delay_ms=1_000 + 10 * int(id)) for id in order])
    first = await kit.store.list(kit.partition, Query(state=State.SCHEDULED, limit=10))
    assert [job.id for job in first.jobs] == order[:10]
    assert first.cursor is not None
    for id in ("03", "09", "10", "20"):
        await kit.cancel(id)
    await kit.send_many([item("early", delay_ms=1), item("between", delay_ms=1_155)])
    rest = await kit.listed_ids(after=first.cursor, state=State.SCHEDULED, limit=10)
    assert rest == ["11", "12", "13", "14", "15", "between", *order[16:20], *order[21:]]


async def test_due_bounds_cut_a_list(kit: StoreKit) -> None:
    now_ms = kit.clock.now_ms
    await kit.send_many([item(f"{n}", delay_ms=100 * n) for n in range(10)])
    found = await kit.listed_ids(due_after_ms=now_ms + 250, due_before_ms=now_ms + 650)
    assert sorted(found) == ["3", "4", "5", "6"]
    found = await kit.listed_ids(state=State.SCHEDULED, due_after_ms=now_ms + 750, limit=1)
    assert found == ["8", "9"]
    assert sorted(await kit.listed_ids(due_before_ms=now_ms + 150)) == ["0", "1"]


async def test_a_tag_and_a_due_bound_hold_together(kit: StoreKit) -> None:
    now_ms = kit.clock.now_ms
    await kit.send_many([item(f"{n}", delay_ms=100 * n, tags=("even",) if n % 2 == 0 else ()) for n in range(10)])
    assert sorted(await kit.listed_ids(tag="even", due_after_ms=now_ms + 350)) == ["4", "6", "8"]


async def test_a_list_of_nothing_is_one_empty_page(kit: StoreKit) -> None:
    for state in (None, *State):
        page = await kit.store.list(kit.partition, Query(state=state))
        assert (page.jobs, page.cursor, page.now_ms) == ([], None, kit.clock.now_ms)
    assert await kit.listed_ids(tag="none") == []


async def test_what_time_has_ended_is_listed_by_what_it_is(kit: StoreKit) -> None:
    await kit.send_many([item("expired", ttl_ms=10), item("gone", ttl_ms=10, dead_retain_ms=5), item("ready")])
    await kit.advance(20)
    assert await kit.listed_ids(state=State.READY) == ["ready"]
    await kit.clean()
    assert await kit.listed_ids(state=State.DEAD) == ["expired"]
    assert sorted(await kit.listed_ids()) == ["expired", "ready"]


async def test_the_figures_of_a_partition(kit: StoreKit) -> None:
    await one_of_each(kit)
    now_ms = kit.clock.now_ms
    await kit.send_many([item("s2", delay_ms=1_000), item("s3", delay_ms=9_000)])
    await kit.advance(2)
    stats = await kit.stats([0, 50, 500, 5_000], from_now=True)
    assert (stats.scheduled, stats.ready, stats.leased) == (3, 1, 1)
    assert (stats.done, stats.dead, stats.cancelled, stats.broken) == (1, 1, 1, 0)
    assert (stats.next_due_at_ms, stats.oldest_ready_at_ms) == (now_ms + 100, now_ms)
    assert (stats.paused_until_ms, stats.waiting, stats.now_ms) == (None, False, now_ms + 2)
    assert stats.bands == (0, 1, 1, 1)
    assert {reason: n for reason, n in stats.dead_by_reason.items() if n} == {"exhausted": 1}


async def test_scheduled_jobs_are_counted_between_times(kit: StoreKit) -> None:
    now_ms = kit.clock.now_ms
    await kit.send_many([item(f"j{delay_ms}", delay_ms=delay_ms) for delay_ms in (0, 10, 20, 21, 5_000)])
    await kit.send_many([item("leased")])
    assert len(await kit.pull(max=2)) == 2

    async def bands(*edges_ms: int) -> tuple[int, ...]:
        return (await kit.stats([now_ms + edge_ms for edge_ms in edges_ms])).bands

    assert await bands(0, 10, 20, 21, 22) == (0, 1, 1, 1, 1)
    assert await bands(11, 20) == (0, 3)
    await kit.advance(10)
    assert await bands(-500, 10, 20, 6_000) == (0, 0, 3, 0)  # what is due already is not scheduled
    assert (await kit.stats([LAST_MS])).bands == (0,)
    assert (await kit.stats()).bands == ()


async def test_the_figures_of_a_partition_that_was_never_used(kit: StoreKit) -> None:
    stats = await kit.stats()
    assert (stats.scheduled, stats.ready, stats.leased, stats.done, stats.dead, stats.cancelled) == (0,) * 6
    assert (stats.next_due_at_ms, stats.oldest_ready_at_ms, stats.waiting) == (None, None, False)


async def test_figures_follow_the_time(kit: StoreKit) -> None:
    await kit.send_many([item("a", delay_ms=100), item("b")])
    await kit.pull(1, lease_ms=50)
    await kit.advance(60)
    stats = await kit.stats()
    assert (stats.scheduled, stats.ready, stats.leased) == (1, 1, 0)
    assert stats.oldest_ready_at_ms == kit.clock.now_ms - 10
    await kit.advance(40)
    stats = await kit.stats()
    assert (stats.scheduled, stats.ready, stats.next_due_at_ms) == (0, 2, None)


async def test_a_waiter_shows_in_the_figures_until_it_gives_up(kit: StoreKit) -> None:
    await kit.pulled(wait_ms=1_000)
    assert (await kit.stats()).waiting is True
    await kit.advance(3_600_000)
    assert (await kit.stats()).waiting is False


async def test_the_far_future_is_listed_too(kit: StoreKit) -> None:
    await kit.send("a", at_ms=LAST_MS)
    assert await kit.listed_ids(state=State.SCHEDULED) == ["a"]
    stats = await kit.stats()
    assert (stats.scheduled, stats.next_due_at_ms) == (1, LAST_MS)
