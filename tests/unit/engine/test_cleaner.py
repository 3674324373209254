"""Clean-up by hints, the list of topics, and the end of an engine."""

from __future__ import annotations

import asyncio

import pytest
from engine_kit import NS, EngineKit, ids, settled

from dueline.engine.commands import Filter, Pull, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import Draining, NotFound, StoreDown
from dueline.engine.job import BodyKind, Partition, State
from dueline.engine.metrics import MAX_TOPICS, OTHER, EngineMetrics
from dueline.engine.policy import TopicPolicy
from dueline.engine.registrar import IDLE_MS
from dueline.engine.store import Code, Query, Ref, Release
from dueline.metrics.table import DELIVERY_LATENESS
from tests.kit.waiting import turns

MINUTE_MS = 60_000


def names(kit: EngineKit) -> set[str]:
    return {topic for namespace, topic in kit.store.directory._topics if namespace == NS}


async def test_what_is_over_is_tidied_within_the_grain_and_counted(kit: EngineKit) -> None:
    await kit.engine.start()
    await kit.send("mail", "expires", ttl_ms=5_000)
    await kit.send("mail", "done", retain_ms=5_000)
    await kit.engine.ack(NS, "mail", [Ref("done")])
    await kit.advance(20_000)
    metrics = kit.engine.metrics.of(NS, "mail")
    records = next(iter(kit.store._record_sets.values())).records
    assert ([record.id for record in records.values()], metrics.dead["expired"]) == (["expires"], 1)


async def test_a_hint_is_in_the_directory_before_the_partition_hears_of_it(kit: EngineKit) -> None:
    order: list[str] = []
    real_note, real_noted = kit.store.directory.note, kit.store.agenda_noted

    async def note(hints: object) -> None:
        order.append("note")
        await real_note(hints)  # type: ignore[arg-type]

    async def agenda_noted(partition: Partition, at_ms: int) -> None:
        order.append("agenda_noted")
        await real_noted(partition, at_ms)

    kit.store.directory.note = note  # type: ignore[method-assign]
    kit.store.agenda_noted = agenda_noted  # type: ignore[method-assign]
    await kit.engine.start()
    await kit.send("mail", "a", ttl_ms=5_000)
    await settled()
    assert order == ["note", "agenda_noted"]


async def test_hints_of_other_processes_are_found_within_half_a_minute(kit: EngineKit) -> None:
    await kit.engine.start()
    await settled()
    other = Engine(kit.store, timer=kit.timer)  # notes, but never cleans
    await other.send(NS, "mail", Send("a", b"1", BodyKind.JSON, ttl_ms=1_000))
    await other._cleaner._write_notes()
    await kit.advance(41_000)
    assert next(iter(kit.store._record_sets.values())).records["a"].ended is State.DEAD


async def test_an_idle_engine_looks_twice_a_minute_and_no_more(kit: EngineKit) -> None:
    takes = 0
    real = kit.store.directory.take

    async def take(limit: int, hold_ms: int):
        nonlocal takes
        takes += 1
        return await real(limit, hold_ms)

    kit.store.directory.take = take  # type: ignore[method-assign]
    await kit.engine.start()
    await kit.advance(5 * MINUTE_MS)
    assert 9 <= takes <= 11


async def test_clean_up_survives_a_store_that_is_down_and_keeps_its_notes(kit: EngineKit) -> None:
    real = kit.store.directory.note

    async def down(hints: object) -> None:
        raise StoreDown

    kit.store.directory.note = down  # type: ignore[method-assign]
    await kit.engine.start()
    await kit.send("mail", "a", ttl_ms=1_000)
    await kit.advance(5_000)
    kit.store.directory.note = real  # type: ignore[method-assign]
    await kit.advance(15_000)
    assert kit.engine.metrics.of(NS, "mail").dead["expired"] == 1


async def test_a_hint_whose_clean_up_failed_comes_back(kit: EngineKit) -> None:
    await kit.engine.start()
    await kit.send("mail", "a", ttl_ms=1_000)
    await settled()
    real = kit.store.clean
    failed = 0

    async def down(partition: Partition, limit: int = 200):
        nonlocal failed
        failed += 1
        raise StoreDown

    kit.store.clean = down  # type: ignore[method-assign]
    await kit.advance(15_000)
    assert failed
    kit.store.clean = real  # type: ignore[method-assign]
    await kit.advance(60_000)
    assert kit.engine.metrics.of(NS, "mail").dead["expired"] == 1


async def test_a_topic_is_listed_before_its_first_send_and_again_after_ten_minutes_of_use(kit: EngineKit) -> None:
    order: list[str] = []
    real_register, real_send = kit.store.directory.register, kit.store.send

    async def register(topics: object) -> None:
        order.append("register")
        await real_register(topics)  # type: ignore[arg-type]

    async def send(partition: Partition, items: object, policy_version: int = 0):
        order.append("send")
        return await real_send(partition, items, policy_version)  # type: ignore[arg-type]

    kit.store.directory.register = register  # type: ignore[method-assign]
    kit.store.send = send  # type: ignore[method-assign]
    await kit.send("mail", "a")
    await kit.send("mail", "b")
    await kit.advance(10 * MINUTE_MS)
    await kit.send("mail", "c")
    assert order == ["register", "send", "send", "register", "send"]


async def test_concurrent_first_sends_share_one_registration(kit: EngineKit) -> None:
    calls: list[list[tuple[str, str]]] = []
    real = kit.store.directory.register

    async def register(topics: list[tuple[str, str]]) -> None:
        calls.append(list(topics))
        await turns()
        await real(topics)

    kit.store.directory.register = register  # type: ignore[method-assign,assignment]
    await asyncio.gather(*(kit.send(f"t{number % 3}", f"job{number}") for number in range(12)))
    assert [topic for call in calls for topic in call] == [(NS, "t0"), (NS, "t1"), (NS, "t2")]


async def test_an_unused_empty_topic_leaves_the_list_and_the_next_send_brings_it_back(kit: EngineKit) -> None:
    await kit.engine.start()
    await kit.send("gone", "a", retain_ms=0)
    await kit.send("kept", "b", 100 * MINUTE_MS)
    await kit.engine.set_topic(NS, "owned", TopicPatch(TopicPolicy(lease_ms=5)))
    [job] = await kit.pull("gone")
    await kit.engine.ack(NS, "gone", [Ref("a", job.lease)])
    await kit.advance(29 * MINUTE_MS)
    assert names(kit) == {"gone", "kept", "owned"}
    await kit.advance(12 * MINUTE_MS)
    assert names(kit) == {"kept", "owned"}
    await kit.send("gone", "c")
    assert names(kit) == {"gone", "kept", "owned"}
    assert ids(await kit.pull("gone")) == ["c"]


async def test_a_topic_with_waiters_is_not_removed(kit: EngineKit) -> None:
    await kit.engine.start()
    await kit.send("mail", "a", retain_ms=0)
    [job] = await kit.pull("mail")
    await kit.engine.ack(NS, "mail", [Ref("a", job.lease)])
    for _ in range(10):
        pull = kit.pull("mail", wait_ms=300_000)
        await kit.advance(300_000)
        await pull
    assert names(kit) == {"mail"}


@pytest.mark.parametrize("moment", ["retire", "remove"])
async def test_a_send_beside_the_removal_of_its_topic_stays_listed(moment: str, kit: EngineKit) -> None:
    other = Engine(kit.store, timer=kit.timer)  # a process that believes the topic is registered
    kit.store.events = kit.engine
    await other.send(NS, "mail", Send("a", b"1", BodyKind.JSON, retain_ms=0))
    await other.ack(NS, "mail", [Ref("a")])
    await kit.advance(40 * MINUTE_MS)
    known = other._topics.known(NS, "mail")
    assert known is not None
    known.registered_until_s = kit.timer.time() + 600
    real_retire, real_remove = kit.store.retire, kit.store.directory.remove

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

    kit.store.retire = retire  # type: ignore[method-assign]
    kit.store.directory.remove = remove  # type: ignore[method-assign]
    await kit.engine._registrar.remove_idle()
    await settled()
    assert names(kit) == {"mail"}


async def test_topics_that_stay_are_looked_at_once_per_idle_time(kit: EngineKit) -> None:
    for number in range(250):
        await kit.send(f"t{number}", "a", 1_000 * MINUTE_MS)
    looks = 0
    real = kit.store.retire

    async def retire(partition: Partition) -> bool:
        nonlocal looks
        looks += 1
        return await real(partition)

    kit.store.retire = retire  # type: ignore[method-assign]
    await kit.advance(31 * MINUTE_MS)
    assert await kit.engine._registrar.remove_idle() == 0
    assert await kit.engine._registrar.remove_idle() == 0
    assert looks == 250


async def test_stop_answers_parked_pulls_and_refuses_new_work_but_takes_acks(kit: EngineKit) -> None:
    await kit.engine.start()
    await kit.send("mail", "a")
    [job] = await kit.pull("mail")
    parked = kit.pull("mail", wait_ms=300_000)
    await settled()
    await kit.engine.stop()
    assert await parked == []
    with pytest.raises(Draining):
        await kit.send("mail", "b")
    with pytest.raises(Draining):
        await kit.engine.send_many(NS, "mail", [])
    with pytest.raises(Draining):
        await kit.engine.pull(Pull(NS, ("mail",)))
    [done] = await kit.engine.ack(NS, "mail", [Ref("a", job.lease)])
    assert done.code is Code.OK
    await kit.engine.stop()
    assert kit.timer.sleeping == []


async def test_an_engine_that_was_never_started_can_be_stopped(kit: EngineKit) -> None:
    await kit.engine.stop()


async def test_stop_waits_for_the_call_under_way_and_its_jobs_are_answered(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    kit.store.gate = asyncio.Event()
    pull = kit.pull("mail", wait_ms=1_000)
    await settled()
    stop = asyncio.ensure_future(kit.engine.stop())
    await settled()
    assert not stop.done()
    kit.store.gate.set()
    assert ids(await pull) == ["a"]
    await stop


async def test_jobs_given_back_cost_no_attempt(kit: EngineKit) -> None:
    await kit.send("mail", "a", max_attempts=1)
    jobs = await kit.pull("mail")
    await kit.engine.give_back(NS, jobs)
    [job] = await kit.pull("mail")
    assert (job.attempt, job.delivery) == (1, 2)


async def test_figures_count_what_happened(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    await kit.send("mail", "a")
    await kit.send("mail", "b", 1_000)
    await kit.advance(1_050)
    jobs = await kit.pull("mail", max=2)
    await kit.engine.ack(NS, "mail", [Ref(job.id, job.lease) for job in jobs] + [Ref("none", "t")])
    await kit.send("mail", "c", 1_000)
    await kit.engine.cancel(NS, "mail", ["c"])
    metrics = kit.engine.metrics.of(NS, "mail")
    assert metrics.sent == {"created": 3, "kept": 1, "replaced": 0, "appended": 0, "refused": 0}
    assert (metrics.pulled, metrics.acked, metrics.cancelled, metrics.late_sum_ms) == (2, 2, 1, 1_100)
    assert {
        bound: count for bound, count in zip((*DELIVERY_LATENESS.bounds, "more"), metrics.late, strict=True) if count
    } == {
        0.05: 1,
        2: 1,
    }
    assert (await kit.engine.list(NS, "mail", Query(state=State.DONE))).jobs


def test_figures_are_bounded() -> None:
    metrics = EngineMetrics()
    for number in range(MAX_TOPICS + 50):
        metrics.of(NS, f"t{number}").acked += 1
    assert len(metrics.topics) == MAX_TOPICS + 1
    assert metrics.topics[OTHER].acked == 50
    assert metrics.of(NS, "t0") is metrics.topics[(NS, "t0")]


async def test_topics_that_are_only_asked_for_take_no_figures(kit: EngineKit) -> None:
    for number in range(MAX_TOPICS + 50):
        ghost = f"ghost{number}"
        with pytest.raises(NotFound):
            await kit.engine.get(NS, ghost, "x")
        await kit.engine.list(NS, ghost, Query())
        assert await kit.pull(ghost) == []
        await kit.engine.ack(NS, ghost, [Ref("x", "t")])
        await kit.engine.release(NS, ghost, [Release("x", "t")])
        await kit.engine.cancel(NS, ghost, ["x"])
        await kit.engine.cancel_matching(NS, ghost, Filter(), False)
        await kit.engine.purge_matching(NS, ghost, Filter(), False)
    assert kit.engine.metrics.topics == {}
    await kit.send("payments", "a")
    assert {key: metrics.sent["created"] for key, metrics in kit.engine.metrics.topics.items()} == {(NS, "payments"): 1}


async def test_a_topic_that_is_gone_gives_its_figures_back(kit: EngineKit) -> None:
    await kit.engine.start()
    for number in range(MAX_TOPICS + 1):
        await kit.send(f"t{number}", "a")
    assert OTHER in kit.engine.metrics.topics
    for number in range(MAX_TOPICS + 1):
        await kit.engine.cancel(NS, f"t{number}", ["a"], forget=True)
    await kit.advance(IDLE_MS * 2)
    assert kit.engine.metrics.topics.keys() <= {OTHER}
    for number in range(MAX_TOPICS):
        await kit.send(f"u{number}", "a")
    assert set(kit.engine.metrics.topics) - {OTHER} == {(NS, f"u{number}") for number in range(MAX_TOPICS)}


async def test_a_topic_that_another_process_removed_gives_its_figures_back(kit: EngineKit) -> None:
    await kit.engine.start()
    await kit.send("gone", "a")
    await kit.engine.cancel(NS, "gone", ["a"], forget=True)
    [entry] = await kit.store.directory.topics(NS, "", 10)
    assert await kit.store.directory.remove(NS, "gone", entry.seen_ms)
    await kit.advance(IDLE_MS * 2)
    assert kit.engine.metrics.topics == {}
    await kit.send("gone", "b")
    assert kit.engine.metrics.topics[NS, "gone"].sent["created"] == 1
