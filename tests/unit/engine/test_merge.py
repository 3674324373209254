"""Merge groups through the engine: which group a send joins, what is refused, and what an owner may do with them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from engine_kit import NS, EngineKit, running, settled

from dueline.bounds import MAX_GROUP_ITEMS
from dueline.engine.commands import MergeInto, Patch, Pull, Send, Sent, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import DuelineError, InvalidField, UnknownOutcome
from dueline.engine.ids import new_id_in, partition_of
from dueline.engine.items import items_json
from dueline.engine.job import BodyKind, Item, LeasedJob, Partition, State
from dueline.engine.policy import MergePolicy, TopicPolicy
from dueline.engine.store import Code, MergeUpdate, OnConflict, Outcome, Query, Ref, Release, SendItem, Spare

DAY_MS = 86_400_000


def an_item(body: str, key: str = "k", kind: BodyKind = BodyKind.TEXT, **said: Any) -> Send:
    """A send with a merge key. What belongs to the send is given as such, the rest is about the group."""
    own = {name: said.pop(name) for name in list(said) if name in Send.__struct_fields__}
    return Send(None, body.encode(), kind, merge=MergeInto(key, **said), **own)


async def add(kit: EngineKit, body: str, key: str = "k", **said: Any) -> Sent:
    return await kit.engine.send(NS, "mail", an_item(body, key, **said))


async def due_in(kit: EngineKit, body: str, **said: Any) -> int:
    """When the group is due after this send, in ms from the kit's start."""
    return (await add(kit, body, **said)).due_at_ms - kit.timer.start_ms


def texts(job: LeasedJob) -> list[str]:
    assert job.items is not None
    return [item.body.decode() for item in job.items]


async def taken(kit: EngineKit, max: int = 100) -> list[list[str]]:
    """What is due now, each group as its texts; acked."""
    jobs = await kit.pull("mail", max=max)
    await kit.engine.ack(NS, "mail", [Ref(job.id, job.lease) for job in jobs])
    return [texts(job) for job in jobs]


async def test_sends_with_one_key_are_one_job_and_one_delivery(kit: EngineKit) -> None:
    first = await add(kit, "a", delay_ms=50)
    assert first == Sent(first.id, "mail", "created", State.SCHEDULED, first.due_at_ms, first.version, 1)
    second = await add(kit, '{"b":1}', kind=BodyKind.JSON)
    third = await add(kit, "c", kind=BodyKind.BYTES, item_id="i3")
    assert (second.id, second.result, second.items_count) == (first.id, "appended", 2)
    assert (third.id, third.due_at_ms, third.version) == (first.id, first.due_at_ms, first.version)
    items = (Item(b"a", BodyKind.TEXT), Item(b'{"b":1}', BodyKind.JSON), Item(b"c", BodyKind.BYTES, "i3"))
    job = await kit.engine.get(NS, "mail", first.id)
    assert (job.items, job.merge_key, job.state) == (items, "k", State.SCHEDULED)
    await kit.advance(50)
    [leased] = await kit.pull("mail", max=10)
    assert (leased.id, leased.items, leased.merge_key, leased.body) == (first.id, items, "k", b"")
    assert items_json(items) == b'["a",{"b":1},{"body_base64":"Yw=="}]'


async def test_a_plain_job_has_no_items_and_no_count(kit: EngineKit) -> None:
    sent = await kit.engine.send(NS, "mail", Send("a", b"1", BodyKind.JSON))
    assert sent.items_count is None
    [leased] = await kit.pull("mail")
    assert (leased.items, leased.merge_key) == (None, None)


async def test_each_item_moves_the_due_time_of_a_quiet_group_up_to_its_cap(kit: EngineKit) -> None:
    said = {"quiet_ms": 100, "max_wait_ms": 250}
    assert await due_in(kit, "a", **said) == 100
    await kit.advance(90)
    assert await due_in(kit, "b", **said) == 190
    await kit.advance(90)
    assert await due_in(kit, "c", **said) == 250
    await kit.advance(70)
    assert await taken(kit) == [["a", "b", "c"]]
    assert (await add(kit, "d", **said)).result == "created"


async def test_once_keeps_the_first_time_and_always_takes_the_newest(kit: EngineKit) -> None:
    assert await due_in(kit, "a", key="once", delay_ms=100) == 100
    assert await due_in(kit, "b", key="once", delay_ms=10) == 100
    always = {"key": "always", "update": MergeUpdate.ALWAYS}
    assert await due_in(kit, "a", delay_ms=100, **always) == 100
    assert await due_in(kit, "b", delay_ms=300, **always) == 300
    assert await due_in(kit, "c", at_ms=kit.timer.start_ms + 20, **always) == 20


async def test_a_full_group_comes_at_once_to_a_waiter_that_slept_for_its_time(kit: EngineKit) -> None:
    waiter = kit.pull("mail", wait_ms=60_000)
    for body in "ab":
        await add(kit, body, quiet_ms=30_000, max_items=3)
    await kit.advance(10)
    assert not waiter.done()
    last = await add(kit, "c", quiet_ms=30_000, max_items=3)
    await settled()
    assert (last.state, last.items_count) == (State.READY, 3)
    [leased] = await waiter
    assert texts(leased) == ["a", "b", "c"]
    assert (await add(kit, "d", quiet_ms=30_000)).result == "created"


async def test_what_a_send_does_not_say_is_as_the_topic_says(kit: EngineKit) -> None:
    merge = MergePolicy(quiet_ms=1_000, max_wait_ms=5_000, max_items=3, update="always")
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(merge=merge)))
    assert await due_in(kit, "a") == 1_000
    assert await due_in(kit, "b", quiet_ms=4_000) == 4_000
    assert await due_in(kit, "c", quiet_ms=9_000) == 0  # the third of three: due now
    assert await due_in(kit, "a", key="timed", delay_ms=300) == 300  # a time stands above the topic's quiet time
    assert await due_in(kit, "b", key="timed", delay_ms=9_000) == 5_000
    said = {"max_wait_ms": None, "max_items": 4, "update": MergeUpdate.ONCE}
    assert await due_in(kit, "a", key="own", delay_ms=DAY_MS, **said) == DAY_MS
    assert await due_in(kit, "b", key="own", delay_ms=5, **said) == DAY_MS
    assert await due_in(kit, "c", key="own", delay_ms=5, **said) == DAY_MS
    assert await due_in(kit, "a", key="now", quiet_ms=None) == 0


async def test_the_spread_of_a_topic_moves_fixed_times_but_no_quiet_ones(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(spread_ms=DAY_MS)))
    times = [await due_in(kit, "a", key=f"k{n}", quiet_ms=100) for n in range(20)]
    assert times == [100] * 20
    assert {await due_in(kit, "a", key=f"t{n}", delay_ms=100) for n in range(20)} != {100}


async def test_a_send_that_knew_an_older_policy_takes_the_newer_one(kit: EngineKit) -> None:
    await kit.engine.send(NS, "mail", Send("old", b"1", BodyKind.JSON))
    other = Engine(kit.store, timer=kit.timer)
    await other.set_topic(NS, "mail", TopicPatch(TopicPolicy(merge=MergePolicy(quiet_ms=700)), partitions=None))
    assert await due_in(kit, "a") == 700
    await other.stop()


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 100, 1000, 1024])
def test_an_id_is_made_for_any_partition(partitions: int) -> None:
    for partition in range(partitions):
        made = [new_id_in(partition, partitions) for _ in range(3)]
        assert [partition_of(id, partitions) for id in made] == [partition] * 3
        assert len({*made}) == 3
        assert {len(id) for id in made} == {32}


async def test_groups_stand_in_the_partition_of_their_key_and_are_found_by_key_and_by_id(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=8))
    sent = {f"k{n}": await add(kit, "a", key=f"k{n}", delay_ms=10) for n in range(50)}
    for key, first in sent.items():
        assert partition_of(first.id, 8) == partition_of(key, 8)
        again = await add(kit, "b", key=key)
        assert (again.id, again.result) == (first.id, "appended")
        page = await kit.engine.list(NS, "mail", Query(merge_key=key, body=True))
        assert ([job.id for job in page.jobs], page.cursor) == ([first.id], None)
        assert (await kit.engine.get(NS, "mail", first.id)).merge_key == key
    assert len({partition_of(key, 8) for key in sent}) == 8
    await kit.advance(10)
    assert await taken(kit) == [["a", "b"]] * 50


async def test_a_group_stands_in_its_keys_partition_also_when_the_topic_got_partitions_during_the_send(
    kit: EngineKit,
) -> None:
    other = Engine(kit.store, timer=kit.timer)
    register = kit.store.directory.register

    async def beside(topics: Sequence[tuple[str, str]]) -> None:
        kit.store.directory.register = register
        await other.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=16))
        await register(topics)

    kit.store.directory.register = beside
    keys = [f"k{n}" for n in range(32)]
    many = [an_item("a", key, delay_ms=10) for key in keys]
    answers = await kit.engine.send_many(NS, "mail", many)
    for key, first in zip(keys, answers, strict=True):
        assert isinstance(first, Sent)
        again = await other.send(NS, "mail", an_item("b", key, delay_ms=10))
        assert (again.id, again.items_count) == (first.id, 2)
    await other.stop()


@pytest.mark.parametrize("partitions", [1, 4])
async def test_a_call_with_many_may_mix_plain_jobs_and_items(partitions: int, kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=partitions))
    commands = [
        an_item("a1", "a", max_items=2),
        Send("p", b"plain", BodyKind.TEXT),
        an_item("b1", "b"),
        an_item("a2", "a", max_items=2),
        an_item("a3", "a", max_items=2),
        Send("p", b"other", BodyKind.TEXT),
    ]
    answers = await kit.engine.send_many(NS, "mail", commands)
    said = [one.result if isinstance(one, Sent) else one.code for one in answers]
    assert said == ["created", "created", "created", "appended", "created", "id_exists"]
    assert [one.items_count for one in answers if isinstance(one, Sent)] == [1, None, 1, 2, 1]
    jobs = await kit.pull("mail", max=10)
    groups = sorted([item.body.decode() for item in job.items] for job in jobs if job.items is not None)
    assert groups == [["a1", "a2"], ["a3"], ["b1"]]
    assert [job.body for job in jobs if job.items is None] == [b"plain"]


async def test_in_a_namespace_with_its_own_ids_each_topic_has_its_own_groups() -> None:
    async with running(namespace_ids=frozenset({NS})) as kit:
        one = await kit.engine.send(NS, "one", an_item("a", quiet_ms=5))
        two = await kit.engine.send(NS, "two", an_item("b", quiet_ms=5))
        more = await kit.engine.send(NS, "two", an_item("c", quiet_ms=5))
        assert one.id != two.id == more.id
        assert (await kit.engine.get_by_id(NS, two.id)).items == (
            Item(b"b", BodyKind.TEXT),
            Item(b"c", BodyKind.TEXT),
        )
        assert await kit.engine.cancel_groups(NS, "one", "k")
        await kit.advance(5)
        [leased] = await kit.engine.pull(Pull(NS, ("one", "two"), 10))
        assert (leased.topic, texts(leased)) == ("two", ["b", "c"])


async def test_many_producers_of_one_key_lose_nothing_and_each_keeps_its_order(kit: EngineKit) -> None:
    async def produce(name: str) -> None:
        for number in range(40):
            await add(kit, f"{name}{number}", quiet_ms=0, max_items=7, item_id=f"{name}{number}")

    found: list[str] = []

    async def consume() -> None:
        while len(found) < 200:
            for job in await kit.pull("mail", wait_ms=60_000):
                found.extend(texts(job))
                await kit.engine.ack(NS, "mail", [Ref(job.id, job.lease)])

    await asyncio.wait_for(asyncio.gather(consume(), *(produce(name) for name in "abcde")), 10)
    for name in "abcde":
        assert [text for text in found if text[0] == name] == [f"{name}{number}" for number in range(40)]


REFUSED: list[tuple[Send, str]] = [
    (Send("a", b"1", BodyKind.JSON, merge=MergeInto("k")), "id"),
    (an_item("a", on_conflict=OnConflict.KEEP), "on_conflict"),
    (an_item("a", on_ended=OnConflict.REPLACE), "on_conflict"),
    (an_item("a", ""), "merge.key"),
    (an_item("a", "k" * 513), "merge.key"),
    (an_item("a", "é" * 257), "merge.key"),
    (an_item("a", "a\nb"), "merge.key"),
    (an_item("a", "a\x00"), "merge.key"),
    (an_item("a", "\ud800"), "merge.key"),
    (an_item("a", item_id=""), "merge.item_id"),
    (an_item("a", item_id="i" * 513), "merge.item_id"),
    (an_item("a", item_id="\x7f"), "merge.item_id"),
    (an_item("a", quiet_ms=-1), "merge.quiet_ms"),
    (an_item("a", quiet_ms=3661 * DAY_MS), "merge.quiet_ms"),
    (an_item("a", max_wait_ms=-1), "merge.max_wait_ms"),
    (an_item("a", max_wait_ms=3661 * DAY_MS), "merge.max_wait_ms"),
    (an_item("a", max_items=0), "merge.max_items"),
    (an_item("a", max_items=MAX_GROUP_ITEMS + 1), "merge.max_items"),
    (an_item("a", quiet_ms=5, delay_ms=5), "merge.quiet_ms"),
    (an_item("a", quiet_ms=5, at_ms=0), "merge.quiet_ms"),
    (an_item("a", delay_ms=-1), "delay_ms"),
    (an_item("a", tags=("x", "x")), "tags"),
]


@pytest.mark.parametrize(("command", "field"), REFUSED)
async def test_what_a_group_cannot_be_is_refused_by_name_and_nothing_is_stored(
    command: Send, field: str, kit: EngineKit
) -> None:
    with pytest.raises(InvalidField) as refused:
        await kit.engine.send(NS, "mail", command)
    assert refused.value.field == field
    with pytest.raises(InvalidField) as refused:
        await kit.engine.send_many(NS, "mail", [an_item("fine"), command])
    assert refused.value.field == f"[1].{field}"
    assert (await kit.engine.list(NS, "mail", Query())).jobs == []


@pytest.mark.parametrize(
    "command",
    [
        an_item("a", "é" * 256),
        an_item("a", item_id="i" * 512),
        an_item("a", quiet_ms=3660 * DAY_MS, max_wait_ms=3660 * DAY_MS, max_items=MAX_GROUP_ITEMS),
        an_item("a", quiet_ms=0, max_wait_ms=0, max_items=1),
        an_item("a", quiet_ms=None, delay_ms=5),
    ],
)
async def test_what_a_group_can_just_be_is_taken(command: Send, kit: EngineKit) -> None:
    assert (await kit.engine.send(NS, "mail", command)).result == "created"


@pytest.mark.parametrize(
    ("merge", "field"),
    [
        (MergePolicy(quiet_ms=-1), "merge.quiet_ms"),
        (MergePolicy(max_wait_ms=-1), "merge.max_wait_ms"),
        (MergePolicy(max_items=0), "merge.max_items"),
        (MergePolicy(max_items=1001), "merge.max_items"),
        (MergePolicy(update="sometimes"), "merge.update"),
    ],
)
async def test_a_topic_cannot_say_what_no_group_can_be(merge: MergePolicy, field: str, kit: EngineKit) -> None:
    with pytest.raises(InvalidField) as refused:
        await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(merge=merge)))
    assert refused.value.field == field


async def test_a_group_holds_as_many_bytes_as_a_body_and_the_next_item_opens_the_next(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(max_body_bytes=10)))
    with pytest.raises(DuelineError) as refused:
        await add(kit, "x" * 11, quiet_ms=5)
    assert refused.value.code == "body_too_large"
    results = [(await add(kit, body, quiet_ms=5)).result for body in ("a" * 6, "b" * 4, "c")]
    assert results == ["created", "appended", "created"]
    assert await taken(kit) == [["a" * 6, "b" * 4]]
    own = an_item("y" * 300_000, "big", max_body_bytes=400_000)  # a protocol with a limit of its own
    assert (await kit.engine.send(NS, "other", own)).result == "created"
    more = an_item("z" * 90_000, "big", max_body_bytes=400_000)
    assert (await kit.engine.send(NS, "other", more)).result == "appended"


class LostAnswer:
    """Replaces the store's send: it stores, and its answer is lost."""

    def __init__(self, kit: EngineKit) -> None:
        self._send = kit.store.send

    async def __call__(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> Any:
        await self._send(partition, items, policy_version)
        raise UnknownOutcome("the store did not answer in time; retry with the same id")


async def test_an_unknown_outcome_names_the_item_id_with_which_a_retry_adds_nothing_twice(kit: EngineKit) -> None:
    real = kit.store.send
    kit.store.send = LostAnswer(kit)  # type: ignore[method-assign]
    with pytest.raises(UnknownOutcome) as unknown:
        await add(kit, "a", item_id="i1", quiet_ms=5)
    assert (unknown.value.id, "item_id" in unknown.value.message) == ("i1", True)
    with pytest.raises(UnknownOutcome) as unknown:
        await add(kit, "b", quiet_ms=5)
    assert (unknown.value.id, "may add it twice" in unknown.value.message) == (None, True)
    answers = await kit.engine.send_many(
        NS, "mail", [an_item("c", item_id="i3"), an_item("d"), Send("p", b"1", BodyKind.JSON)]
    )
    assert [(type(one), one.id) for one in answers] == [(UnknownOutcome, id) for id in ("i3", None, "p")]  # type: ignore[union-attr]
    kit.store.send = real  # type: ignore[method-assign]
    again = await add(kit, "a", item_id="i1", quiet_ms=5)
    assert (again.result, again.items_count) == ("kept", 4)


async def test_an_item_that_was_delivered_already_is_kept_and_its_group_named(kit: EngineKit) -> None:
    first = await add(kit, "a", item_id="i1")
    assert await taken(kit) == [["a"]]
    again = await add(kit, "a", item_id="i1")
    assert (again.id, again.result, again.state) == (first.id, "kept", State.DONE)
    assert await taken(kit) == []


async def test_items_are_counted_as_what_became_of_them(kit: EngineKit) -> None:
    for item_id in ("1", "2", "2", "3"):
        await add(kit, "a", item_id=item_id, quiet_ms=5)
    assert kit.engine.metrics.of(NS, "mail").sent == {
        "created": 1,
        "kept": 1,
        "replaced": 0,
        "appended": 2,
        "refused": 0,
    }


async def three_groups(kit: EngineKit) -> list[str]:
    """Three groups of the key k (leased, waiting for a retry, open), and one of another key."""
    await add(kit, "leased", max_items=1)
    await add(kit, "failed", max_items=1)
    leased, failed = await kit.pull("mail", max=2, lease_ms=60_000)
    await kit.engine.release(NS, "mail", [Release(failed.id, failed.lease, delay_ms=5_000)])
    opened = await kit.engine.send(NS, "mail", an_item("open", quiet_ms=9_000, max_items=1))
    assert opened.state is State.READY  # full at once: the failed one's items did not fit
    await add(kit, "foreign", key="other", quiet_ms=5_000)
    return [leased.id, failed.id, opened.id]


@pytest.mark.parametrize("partitions", [1, 4])
async def test_a_key_cancels_its_groups_but_the_leased_ones(partitions: int, kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=partitions))
    groups = await three_groups(kit)
    dry = await kit.engine.cancel_groups(NS, "mail", "k", dry_run=True)
    assert (dry.matched, dry.changed, dry.dry_run, dry.complete) == (3, 0, True, True)
    bulk = await kit.engine.cancel_groups(NS, "mail", "k")
    assert (bulk.matched, bulk.changed, bulk.dry_run, bulk.complete) == (3, 2, False, True)
    states = [(await kit.engine.get(NS, "mail", id)).state for id in groups]
    assert states == [State.LEASED, State.CANCELLED, State.CANCELLED]
    assert kit.engine.metrics.of(NS, "mail").cancelled == 2
    await kit.advance(70_000)
    assert sorted(await taken(kit)) == [["foreign"], ["leased"]]
    nothing = await kit.engine.cancel_groups(NS, "mail", "never")
    assert (nothing.matched, nothing.changed) == (0, 0)


async def test_items_that_move_to_a_new_group_during_the_cancel_are_cancelled_there(kit: EngineKit) -> None:
    await add(kit, "old")
    [failed] = await kit.pull("mail")
    await kit.engine.release(NS, "mail", [Release(failed.id, failed.lease, delay_ms=5_000)])
    cancel = kit.store.cancel

    async def late(
        partition: Partition, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Outcome]:
        kit.store.cancel = cancel  # type: ignore[method-assign]
        await add(kit, "new", quiet_ms=50)  # takes the items of the failed group
        return await cancel(partition, ids, forget, spare)

    kit.store.cancel = late  # type: ignore[method-assign]
    await kit.engine.cancel_groups(NS, "mail", "k")
    await kit.advance(10_000)
    assert await taken(kit) == []


async def test_a_group_that_is_pulled_during_the_cancel_stays_with_its_holder(kit: EngineKit) -> None:
    await add(kit, "a")
    cancel = kit.store.cancel
    leased: list[LeasedJob] = []

    async def late(
        partition: Partition, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Outcome]:
        kit.store.cancel = cancel  # type: ignore[method-assign]
        leased.extend(await kit.pull("mail"))
        return await cancel(partition, ids, forget, spare)

    kit.store.cancel = late  # type: ignore[method-assign]
    bulk = await kit.engine.cancel_groups(NS, "mail", "k")
    assert (bulk.matched, bulk.changed) == (1, 0)
    [done] = await kit.engine.ack(NS, "mail", [Ref(leased[0].id, leased[0].lease)])
    assert done.code is Code.OK


async def test_the_groups_of_a_key_are_listed_alone(kit: EngineKit) -> None:
    groups = await three_groups(kit)
    page = await kit.engine.list(NS, "mail", Query(merge_key="k"))
    assert sorted(job.id for job in page.jobs) == sorted(groups)
    for more in ({"state": State.READY}, {"tag": "x"}, {"due_after_ms": 5}, {"due_before_ms": 5}):
        with pytest.raises(InvalidField) as refused:
            await kit.engine.list(NS, "mail", Query(merge_key="k", **more))
        assert refused.value.field == "merge_key"
    for call in (kit.engine.list(NS, "mail", Query(merge_key="\n")), kit.engine.cancel_groups(NS, "mail", "")):
        with pytest.raises(InvalidField) as refused:
            await call
        assert refused.value.field == "merge_key"


async def test_an_open_group_is_rescheduled_and_still_open_but_its_items_are_not_patched(kit: EngineKit) -> None:
    sent = await add(kit, "a", delay_ms=50)
    with pytest.raises(InvalidField) as refused:
        await kit.engine.patch(NS, "mail", Patch(sent.id, body=b"x", kind=BodyKind.TEXT))
    assert refused.value.field == "body"
    job = await kit.engine.patch(NS, "mail", Patch(sent.id, delay_ms=500, tags=("t",), max_attempts=3))
    assert (job.due_at_ms - kit.timer.start_ms, job.tags) == (500, ("t",))
    assert (await add(kit, "b")).id == sent.id
    await kit.engine.fire(NS, "mail", sent.id)
    assert await taken(kit) == [["a", "b"]]


async def test_a_group_is_due_when_it_is_full_unless_only_our_own_bound_fills_one_with_a_fixed_time(
    kit: EngineKit,
) -> None:
    for key, said, is_due in (
        ("fixed", {"delay_ms": 50}, False),
        ("quiet", {"quiet_ms": 50}, True),
        ("wished", {"delay_ms": 50, "max_items": 10}, True),
    ):
        items = [an_item(str(number), key, **said) for number in range(said.get("max_items", MAX_GROUP_ITEMS))]
        for start in range(0, len(items), 500):
            await kit.engine.send_many(NS, "mail", items[start : start + 500])
        assert [len(job) for job in await taken(kit)] == ([len(items)] if is_due else []), key
    await kit.advance(50)
    assert [len(job) for job in await taken(kit)] == [MAX_GROUP_ITEMS]
