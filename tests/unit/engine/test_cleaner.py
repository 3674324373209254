"""Clean-up by hints, the list of topics, and the end of an engine."""

from __future__ import annotations

import asyncio

import pytest
from engine_kit import NS, World, ids, settled

from dueline.engine.commands import Filter, Pull, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import Draining, NotFound, StoreDown
from dueline.engine.job import BodyKind, Partition, State
from dueline.engine.metrics import MAX_TOPICS, OTHER, EngineMetrics
from dueline.engine.policy import TopicPolicy
from dueline.engine.registrar import IDLE_MS
from dueline.engine.store import Code, Query, Ref, Release
from dueline.metrics.table import DELIVERY_LATENESS

MINUTE_MS = 60_000


def names(world: World) -> set[str]:
    return {topic for namespace, topic in world.store.directory._topics if namespace == NS}


async def test_what_is_over_is_tidied_within_the_grain_and_counted(world: World) -> None:
    await world.engine.start()
    await world.send("mail", "expires", ttl_ms=5_000)
    await world.send("mail", "done", retain_ms=5_000)
    await world.engine.ack(NS, "mail", [Ref("done")])
    await world.advance(20_000)
    metrics = world.engine.metrics.of(NS, "mail")
    records = next(iter(world.store._record_sets.values())).records
    assert ([record.id for record in records.values()], metrics.dead["expired"]) == (["expires"], 1)


async def test_a_hint_is_in_the_directory_before_the_partition_hears_of_it(world: World) -> None:
    order: list[str] = []
    real_note, real_noted = world.store.directory.note, world.store.agenda_noted

    async def note(hints: object) -> None:
        order.append("note")
        await real_note(hints)  # type: ignore[arg-type]

    async def agenda_noted(partition: Partition, at_ms: int) -> None:
        order.append("agenda_noted")
        await real_noted(partition, at_ms)

    world.store.directory.note = note  # type: ignore[method-assign]
    world.store.agenda_noted = agenda_noted  # type: ignore[method-assign]
    await world.engine.start()
    await world.send("mail", "a", ttl_ms=5_000)
    await settled()
    assert order == ["note", "agenda_noted"]


async def test_hints_of_other_processes_are_found_within_half_a_minute(world: World) -> None:
    await world.engine.start()
    await settled()
    other = Engine(world.store, timer=world.timer)  # notes, but never cleans
    await other.send(NS, "mail", Send("a", b"1", BodyKind.JSON, ttl_ms=1_000))
    await other._cleaner._write_notes()
    await world.advance(41_000)
    assert next(iter(world.store._record_sets.values())).records["a"].ended is State.DEAD


async def test_an_idle_engine_looks_twice_a_minute_and_no_more(world: World) -> None:
    takes = 0
    real = world.store.directory.take

    async def take(limit: int, hold_ms: int):
        nonlocal takes
        takes += 1
        return await real(limit, hold_ms)

    world.store.directory.take = take  # type: ignore[method-assign]
    await world.engine.start()
    await world.advance(5 * MINUTE_MS)
    assert 9 <= takes <= 11


async def test_clean_up_survives_a_store_that_is_down_and_keeps_its_notes(world: World) -> None:
    real = world.store.directory.note

    async def down(hints: object) -> None:
        raise StoreDown

    world.store.directory.note = down  # type: ignore[method-assign]
    await world.engine.start()
    await world.send("mail", "a", ttl_ms=1_000)
    await world.advance(5_000)
    world.store.directory.note = real  # type: ignore[method-assign]
    await world.advance(15_000)
    assert world.engine.metrics.of(NS, "mail").dead["expired"] == 1


async def test_a_hint_whose_clean_up_failed_comes_back(world: World) -> None:
    await world.engine.start()
    await world.send("mail", "a", ttl_ms=1_000)
    await settled()
    real = world.store.clean
    failed = 0

    async def down(partition: Partition, limit: int = 200):
        nonlocal failed
        failed += 1
        raise StoreDown

    world.store.clean = down  # type: ignore[method-assign]
    await world.advance(15_000)
    assert failed
    world.store.clean = real  # type: ignore[method-assign]
    await world.advance(60_000)
    assert world.engine.metrics.of(NS, "mail").dead["expired"] == 1


async def test_a_topic_is_listed_before_its_first_send_and_again_after_ten_minutes_of_use(world: World) -> None:
    order: list[str] = []
    real_register, real_send = world.store.directory.register, world.store.send

    async def register(topics: object) -> None:
        order.append("register")
        await real_register(topics)  # type: ignore[arg-type]

    async def send(partition: Partition, items: object, policy_version: int = 0):
        order.append("send")
        return await real_send(partition, items, policy_version)  # type: ignore[arg-type]

    world.store.directory.register = register  # type: ignore[method-assign]
    world.store.send = send  # type: ignore[method-assign]
    await world.send("mail", "a")
    await world.send("mail", "b")
    await world.advance(10 * MINUTE_MS)
    await world.send("mail", "c")
    assert order == ["register", "send", "send", "register", "send"]


async def test_concurrent_first_sends_share_one_registration(world: World) -> None:
    calls: list[list[tuple[str, str]]] = []
    real = world.store.directory.register

    async def register(topics: list[tuple[str, str]]) -> None:
        calls.append(list(topics))
        await asyncio.sleep(0)
        await real(topics)

    world.store.directory.register = register  # type: ignore[method-assign,assignment]
    await asyncio.gather(*(world.send(f"t{number % 3}", f"job{number}") for number in range(12)))
    assert [topic for call in calls for topic in call] == [(NS, "t0"), (NS, "t1"), (NS, "t2")]


async def test_an_unused_empty_topic_leaves_the_list_and_the_next_send_brings_it_back(world: World) -> None:
    await world.engine.start()
    await world.send("gone", "a", retain_ms=0)
    await world.send("kept", "b", 100 * MINUTE_MS)
    await world.engine.set_topic(NS, "owned", TopicPatch(TopicPolicy(lease_ms=5)))
    [job] = await world.pull("gone")
    await world.engine.ack(NS, "gone", [Ref("a", job.lease)])
    await world.advance(29 * MINUTE_MS)
    assert names(world) == {"gone", "kept", "owned"}
    await world.advance(12 * MINUTE_MS)
    assert names(world) == {"kept", "owned"}
    await world.send("gone", "c")
    assert names(world) == {"gone", "kept", "owned"}
    assert ids(await world.pull("gone")) == ["c"]


async def test_a_topic_with_waiters_is_not_removed(world: World) -> None:
    await world.engine.start()
    await world.send("mail", "a", retain_ms=0)
    [job] = await world.pull("mail")
    await world.engine.ack(NS, "mail", [Ref("a", job.lease)])
    for _ in range(10):
        pull = world.pull("mail", wait_ms=300_000)
        await world.advance(300_000)
        await pull
    assert names(world) == {"mail"}


@pytest.mark.parametrize("moment", ["retire", "remove"])
async def test_a_send_beside_the_removal_of_its_topic_stays_listed(moment: str, world: World) -> None:
    other = Engine(world.store, timer=world.timer)  # a process that believes the topic is registered
    world.store.events = world.engine
    await other.send(NS, "mail", Send("a", b"1", BodyKind.JSON, retain_ms=0))
    await other.ack(NS, "mail", [Ref("a")])
    await world.advance(40 * MINUTE_MS)
    known = other._topics.known(NS, "mail")
    assert known is not None
    known.registered_until_s = world.timer.time() + 600
    real_retire, real_remove = world.store.retire, world.store.directory.remove

    async def slip_in() -> None:
        await other.send(NS, "mail", Send("b", b"2", BodyKind.JSON))

    async def retire(partition: Partition) -> bool:
        retired = await real_retire(partition)
        if moment == "retire":
            await slip_in()
        return retired

    async def remove(namespace: str, topic: str, seen_ms: int) -> bool:
        removed = await real_remove(namespace, topic, seen_ms)
        if moment == "remove":
            await slip_in()
        return removed

    world.store.retire = retire  # type: ignore[method-assign]
    world.store.directory.remove = remove  # type: ignore[method-assign]
    await world.engine._registrar.remove_idle()
    await settled()
    assert names(world) == {"mail"}


async def test_topics_that_stay_are_looked_at_once_per_idle_time(world: World) -> None:
    for number in range(250):
        await world.send(f"t{number}", "a", 1_000 * MINUTE_MS)
    looks = 0
    real = world.store.retire

    async def retire(partition: Partition) -> bool:
        nonlocal looks
        looks += 1
        return await real(partition)

    world.store.retire = retire  # type: ignore[method-assign]
    await world.advance(31 * MINUTE_MS)
    assert await world.engine._registrar.remove_idle() == 0
    assert await world.engine._registrar.remove_idle() == 0
    assert looks == 250


async def test_stop_answers_parked_pulls_and_refuses_new_work_but_takes_acks(world: World) -> None:
    await world.engine.start()
    await world.send("mail", "a")
    [job] = await world.pull("mail")
    parked = world.pull("mail", wait_ms=300_000)
    await settled()
    await world.engine.stop()
    assert await parked == []
    with pytest.raises(Draining):
        await world.send("mail", "b")
    with pytest.raises(Draining):
        await world.engine.send_many(NS, "mail", [])
    with pytest.raises(Draining):
        await world.engine.pull(Pull(NS, ("mail",)))
    [done] = await world.engine.ack(NS, "mail", [Ref("a", job.lease)])
    assert done.code is Code.OK
    await world.engine.stop()
    assert world.timer.sleeping == []


async def test_an_engine_that_was_never_started_can_be_stopped(world: World) -> None:
    await world.engine.stop()


async def test_stop_waits_for_the_call_under_way_and_its_jobs_are_answered(world: World) -> None:
    await world.send("mail", "a")
    world.store.gate = asyncio.Event()
    pull = world.pull("mail", wait_ms=1_000)
    await settled()
    stop = asyncio.ensure_future(world.engine.stop())
    await settled()
    assert not stop.done()
    world.store.gate.set()
    assert ids(await pull) == ["a"]
    await stop


async def test_jobs_given_back_cost_no_attempt(world: World) -> None:
    await world.send("mail", "a", max_attempts=1)
    jobs = await world.pull("mail")
    await world.engine.give_back(NS, jobs)
    [job] = await world.pull("mail")
    assert (job.attempt, job.delivery) == (1, 2)


async def test_figures_count_what_happened(world: World) -> None:
    await world.send("mail", "a")
    await world.send("mail", "a")
    await world.send("mail", "b", 1_000)
    await world.advance(1_050)
    jobs = await world.pull("mail", max=2)
    await world.engine.ack(NS, "mail", [Ref(job.id, job.lease) for job in jobs] + [Ref("none", "t")])
    await world.send("mail", "c", 1_000)
    await world.engine.cancel(NS, "mail", ["c"])
    metrics = world.engine.metrics.of(NS, "mail")
    assert metrics.sent == {"created": 3, "kept": 1, "replaced": 0, "appended": 0, "refused": 0}
    assert (metrics.pulled, metrics.acked, metrics.cancelled, metrics.late_sum_ms) == (2, 2, 1, 1_100)
    assert {
        bound: count for bound, count in zip((*DELIVERY_LATENESS.bounds, "more"), metrics.late, strict=True) if count
    } == {
        0.05: 1,
        2: 1,
    }
    assert (await world.engine.list(NS, "mail", Query(state=State.DONE))).jobs


def test_figures_are_bounded() -> None:
    metrics = EngineMetrics()
    for number in range(MAX_TOPICS + 50):
        metrics.of(NS, f"t{number}").acked += 1
    assert len(metrics.topics) == MAX_TOPICS + 1
    assert metrics.topics[OTHER].acked == 50
    assert metrics.of(NS, "t0") is metrics.topics[(NS, "t0")]


async def test_topics_that_are_only_asked_for_take_no_figures(world: World) -> None:
    for number in range(MAX_TOPICS + 50):
        ghost = f"ghost{number}"
        with pytest.raises(NotFound):
            await world.engine.get(NS, ghost, "x")
        await world.engine.list(NS, ghost, Query())
        assert await world.pull(ghost) == []
        await world.engine.ack(NS, ghost, [Ref("x", "t")])
        await world.engine.release(NS, ghost, [Release("x", "t")])
        await world.engine.cancel(NS, ghost, ["x"])
        await world.engine.cancel_matching(NS, ghost, Filter(), False)
        await world.engine.purge_matching(NS, ghost, Filter(), False)
    assert world.engine.metrics.topics == {}
    await world.send("payments", "a")
    assert {key: metrics.sent["created"] for key, metrics in world.engine.metrics.topics.items()} == {
        (NS, "payments"): 1
    }


async def test_a_topic_that_is_gone_gives_its_figures_back(world: World) -> None:
    await world.engine.start()
    for number in range(MAX_TOPICS + 1):
        await world.send(f"t{number}", "a")
    assert OTHER in world.engine.metrics.topics
    for number in range(MAX_TOPICS + 1):
        await world.engine.cancel(NS, f"t{number}", ["a"], forget=True)
    await world.advance(IDLE_MS * 2)
    assert world.engine.metrics.topics.keys() <= {OTHER}
    for number in range(MAX_TOPICS):
        await world.send(f"u{number}", "a")
    assert set(world.engine.metrics.topics) - {OTHER} == {(NS, f"u{number}") for number in range(MAX_TOPICS)}


async def test_a_topic_that_another_process_removed_gives_its_figures_back(world: World) -> None:
    await world.engine.start()
    await world.send("gone", "a")
    await world.engine.cancel(NS, "gone", ["a"], forget=True)
    [entry] = await world.store.directory.topics(NS, "", 10)
    assert await world.store.directory.remove(NS, "gone", entry.seen_ms)
    await world.advance(IDLE_MS * 2)
    assert world.engine.metrics.topics == {}
