"""Merge groups: which sends come together, when their group is due, and what closes it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from dueline.engine.job import BodyKind, Item, State
from dueline.engine.open_groups import OpenGroup
from dueline.engine.store import Code, Merge, MergeUpdate, OnConflict, SendOutcome, Spare
from tests.kit.store import StoreKit, item

_numbers = itertools.count()


def merging(body: str, key: str = "key", *, group: str | None = None, **words: Any) -> Any:
    """A send that merges. Words of Merge and of the send may be mixed; `group` is the id of a group that it opens."""
    own = {name: words.pop(name) for name in list(words) if name in Merge.__struct_fields__}
    return item(group or f"group-{next(_numbers)}", body=body.encode(), merge=Merge(key, **own), **words)


async def put(kit: StoreKit, body: str, key: str = "key", **words: Any) -> SendOutcome:
    return (await kit.send_many([merging(body, key, **words)]))[0]


def bodies(job: Any) -> list[str]:
    return [one.body.decode() for one in job.items]


async def test_sends_of_one_key_come_in_one_delivery_in_send_order(kit: StoreKit) -> None:
    opened = await put(kit, "1", group="g", delay_ms=100)
    assert opened == SendOutcome(Code.CREATED, State.SCHEDULED, kit.clock.now_ms + 100, 1, None, "g", 1)
    assert await put(kit, "2", delay_ms=900) == SendOutcome(
        Code.APPENDED, State.SCHEDULED, kit.clock.now_ms + 100, 1, None, "g", 2
    )
    await put(kit, "3", item_id="three", kind=BodyKind.BYTES)
    await kit.advance(100)
    leased = await kit.pull_one()
    assert (leased.id, leased.merge_key, leased.body, leased.kind) == ("g", "key", b"", BodyKind.JSON)
    assert leased.items == (
        Item(b"1", BodyKind.TEXT),
        Item(b"2", BodyKind.TEXT),
        Item(b"3", BodyKind.BYTES, "three"),
    )
    assert await kit.pull() == []


async def test_keys_keep_apart_also_when_one_begins_like_the_other(kit: StoreKit) -> None:
    keys = ["a", "a\0", "a\0b", "ab", "é", "a\x01"]
    for key in keys:
        await put(kit, f"{key}!", key)
        await put(kit, f"{key}?", key)
    assert {leased.merge_key: bodies(leased) for leased in await kit.pull()} == {
        key: [f"{key}!", f"{key}?"] for key in keys
    }
    for key in keys:
        assert [job.merge_key for job in await kit.listed(merge_key=key)] == [key]


async def test_one_call_may_carry_sends_of_many_keys_and_plain_ones(kit: StoreKit) -> None:
    sent = await kit.send_many(
        [merging("1", "a", group="ga"), item("p"), merging("2", "b", group="gb"), merging("3", "a"), item("q")]
    )
    assert [(one.code, one.group, one.items_count) for one in sent] == [
        (Code.CREATED, "ga", 1),
        (Code.CREATED, None, 0),
        (Code.CREATED, "gb", 1),
        (Code.APPENDED, "ga", 2),
        (Code.CREATED, None, 0),
    ]
    assert {leased.id: leased.items and bodies(leased) for leased in await kit.pull()} == {
        "ga": ["1", "3"],
        "gb": ["2"],
        "p": None,
        "q": None,
    }


async def test_a_quiet_time_begins_anew_with_each_send_up_to_the_longest_wait(kit: StoreKit) -> None:
    began_ms = kit.clock.now_ms
    words = {"quiet_ms": 100, "max_wait_ms": 250}
    assert (await put(kit, "1", **words)).due_at_ms == began_ms + 100
    await kit.advance(90)
    assert (await put(kit, "2", **words)).due_at_ms == began_ms + 190
    await kit.advance(90)
    assert (await put(kit, "3", quiet_ms=100, max_wait_ms=9_999)).due_at_ms == began_ms + 250
    await kit.advance(69)
    assert await kit.pull() == []
    await kit.advance(1)
    assert bodies(await kit.pull_one()) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("update", "second_ms", "due_ms"),
    [
        (MergeUpdate.ONCE, 10, 100),
        (MergeUpdate.ONCE, 900, 100),
        (MergeUpdate.ALWAYS, 10, 10),
        (MergeUpdate.ALWAYS, 900, 900),
    ],
)
async def test_a_fixed_time_stays_or_follows_the_newest_send(
    kit: StoreKit, update: MergeUpdate, second_ms: int, due_ms: int
) -> None:
    began_ms = kit.clock.now_ms
    await put(kit, "1", group="g", delay_ms=100)
    sent = await put(kit, "2", at_ms=began_ms + second_ms, update=update)
    assert sent.due_at_ms == began_ms + due_ms
    assert (await kit.job("g")).due_at_ms == began_ms + due_ms
    await kit.advance(due_ms - 1)
    assert await kit.pull() == []
    await kit.advance(1)
    assert bodies(await kit.pull_one()) == ["1", "2"]


async def test_the_ttl_counts_from_where_the_last_append_moved_the_group(kit: StoreKit) -> None:
    began_ms = kit.clock.now_ms
    await put(kit, "1", group="g", delay_ms=100, ttl_ms=50)
    await put(kit, "2", delay_ms=300, update=MergeUpdate.ALWAYS)
    await kit.advance(200)
    job = await kit.job("g")
    assert (job.state, job.due_at_ms, job.expires_at_ms) == (State.SCHEDULED, began_ms + 300, began_ms + 350)
    await kit.advance(150)
    assert await kit.state("g") is State.DEAD


async def test_a_group_that_expired_takes_nothing_more_and_keeps_what_it_has(kit: StoreKit) -> None:
    await put(kit, "1", group="old", ttl_ms=50)
    await kit.advance(50)
    assert (await put(kit, "2", group="new")).code is Code.CREATED
    dead = await kit.job("old")
    assert (dead.state, bodies(dead)) == (State.DEAD, ["1"])
    await kit.revive("old")
    assert (await put(kit, "3")).group == "new"
    assert {leased.id: bodies(leased) for leased in await kit.pull()} == {"old": ["1"], "new": ["2", "3"]}


async def test_a_full_group_is_due_at_once_and_the_next_send_opens_another(kit: StoreKit) -> None:
    now_ms = kit.clock.now_ms
    await put(kit, "1", group="g", delay_ms=1_000, max_items=2)
    assert await put(kit, "2", delay_ms=1_000) == SendOutcome(Code.APPENDED, State.READY, now_ms, 1, None, "g", 2)
    assert (await put(kit, "3", group="h", delay_ms=1_000)).code is Code.CREATED
    assert [(leased.id, bodies(leased)) for leased in await kit.pull()] == [("g", ["1", "2"])]


async def test_a_group_of_one_item_is_never_open(kit: StoreKit) -> None:
    for body in "12":
        assert (await put(kit, body, delay_ms=1_000, max_items=1)).state is State.READY
    assert [bodies(leased) for leased in await kit.pull()] == [["1"], ["2"]]


async def test_an_item_that_does_not_fit_flushes_the_group_and_opens_the_next(kit: StoreKit) -> None:
    now_ms = kit.clock.now_ms
    await put(kit, "123", group="g", delay_ms=1_000, max_bytes=5)
    assert (await put(kit, "45", max_bytes=5)).state is State.SCHEDULED
    assert await put(kit, "6", group="h", delay_ms=700, max_bytes=5) == SendOutcome(
        Code.CREATED, State.SCHEDULED, now_ms + 700, 4, None, "h", 1
    )
    assert [(leased.id, bodies(leased)) for leased in await kit.pull()] == [("g", ["123", "45"])]


async def test_the_first_pull_closes_a_group_for_ever(kit: StoreKit) -> None:
    await put(kit, "1", group="g")
    leased = await kit.pull_one()
    assert (await put(kit, "2", group="h", delay_ms=1_000)).code is Code.CREATED
    assert await kit.ack("g", leased.lease) is Code.OK
    assert (await put(kit, "3")).group == "h"
    job = await kit.job("h")
    assert (bodies(job), job.merge_key, job.body) == (["2", "3"], "key", None)


async def test_what_the_opening_send_said_is_what_the_group_is(kit: StoreKit) -> None:
    await put(kit, "1", group="g", tags=("t",), headers=b"h", max_attempts=3, ttl_ms=70, delay_ms=5)
    await put(kit, "2", tags=("u",), headers=b"x", max_attempts=9, ttl_ms=7)
    job = await kit.job("g")
    assert (job.tags, job.headers, job.policy.max_attempts, job.ttl_ms) == (("t",), b"h", 3, 70)
    assert await kit.listed_ids(tag="t") == ["g"]
    assert await kit.listed_ids(tag="u") == []


async def test_an_append_is_a_change_of_the_group_but_no_new_version(kit: StoreKit) -> None:
    await put(kit, "1", group="g", delay_ms=1_000)
    before = await kit.job("g")
    await kit.advance(7)
    await put(kit, "2")
    after = await kit.job("g")
    assert (after.created_at_ms, after.updated_at_ms) == (before.created_at_ms, before.updated_at_ms + 7)
    assert after.version == before.version


async def test_an_item_with_an_id_is_taken_once(kit: StoreKit) -> None:
    now_ms = kit.clock.now_ms
    await put(kit, "1", group="g", delay_ms=1_000, item_id="x")
    assert await put(kit, "again", item_id="x") == SendOutcome(
        Code.KEPT, State.SCHEDULED, now_ms + 1_000, 1, None, "g", 1
    )
    assert (await put(kit, "of another key", "other", item_id="x")).code is Code.CREATED
    assert bodies(await kit.job("g")) == ["1"]


async def test_an_items_id_is_known_as_long_as_its_group_is_readable(kit: StoreKit) -> None:
    await put(kit, "1", group="g", item_id="x", retain_ms=100)
    leased = await kit.pull_one()
    kept = await put(kit, "again", item_id="x")
    assert (kept.code, kept.state, kept.group, kept.items_count) == (Code.KEPT, State.LEASED, "g", 1)
    await kit.ack("g", leased.lease)
    kept = await put(kit, "again", item_id="x")
    assert (kept.code, kept.state, kept.group, kept.items_count) == (Code.KEPT, State.DONE, "g", 0)
    await kit.advance(100)
    assert (await put(kit, "2", group="h", item_id="x", delay_ms=900)).code is Code.CREATED
    await kit.clean()
    assert (await put(kit, "again", item_id="x")).group == "h"


async def test_two_items_of_one_id_in_one_call_are_one(kit: StoreKit) -> None:
    sent = await kit.send_many([merging(body, item_id="x", delay_ms=9) for body in "12"])
    assert [one.code for one in sent] == [Code.CREATED, Code.KEPT]
    assert sent[1].group == sent[0].group


async def test_an_ended_group_has_its_key_but_no_items_and_a_dead_one_has_both(kit: StoreKit) -> None:
    await put(kit, "1", "a", group="a")
    await put(kit, "1", "b", group="b")
    await put(kit, "1", "c", group="c", max_attempts=1)
    await put(kit, "1", "d", group="d", keep_body=True)
    leased = {leased.id: leased for leased in await kit.pull()}
    await kit.ack("a", leased["a"].lease)
    await kit.cancel("b")
    await kit.release("c", leased["c"].lease)
    await kit.ack("d", leased["d"].lease)
    jobs = [await kit.job(id) for id in "abcd"]
    assert [(job.state, job.merge_key, job.items and bodies(job)) for job in jobs] == [
        (State.DONE, "a", None),
        (State.CANCELLED, "b", None),
        (State.DEAD, "c", ["1"]),
        (State.DONE, "d", ["1"]),
    ]
    for job in jobs:
        assert (await kit.read(job.id, body=False)) == type(job)(
            **{name: getattr(job, name) for name in job.__struct_fields__} | {"items": None}
        )


async def test_the_live_groups_of_a_key_are_listed_in_the_order_they_were_opened(kit: StoreKit) -> None:
    for place, id in enumerate("zyxw"):
        await put(kit, id, group=id, max_items=1, delay_ms=place)
    await put(kit, "open", group="a", delay_ms=1_000)
    await put(kit, "other", "other key")
    leased = await kit.pull(2, lease_ms=50)
    await kit.ack(leased[0].id, leased[0].lease)
    assert await kit.listed_ids(merge_key="key", limit=2) == ["y", "x", "w", "a"]
    assert await kit.listed_ids(merge_key="ke") == []
    assert [job.items for job in await kit.listed(merge_key="key")] == [None] * 4


async def test_a_group_that_time_ended_is_no_live_group_of_its_key(kit: StoreKit) -> None:
    await put(kit, "1", group="g", ttl_ms=5)
    assert await kit.listed_ids(merge_key="key") == ["g"]
    await kit.advance(5)
    assert await kit.listed_ids(merge_key="key") == []


async def test_cancel_spares_a_leased_one_if_asked_to(kit: StoreKit) -> None:
    await kit.send_many([item("leased"), item("waits", delay_ms=9)])
    await kit.pull(1, lease_ms=100)
    assert await kit.cancel("leased", spare=Spare.LEASED) is Code.JOB_LEASED
    assert await kit.cancel("waits", spare=Spare.LEASED) is Code.OK
    assert await kit.state("leased") is State.LEASED
    await kit.advance(100)
    assert await kit.cancel("leased", spare=Spare.LEASED) is Code.OK


async def test_an_open_group_can_be_moved_fired_and_tagged_and_stays_open(kit: StoreKit) -> None:
    await put(kit, "1", group="g", delay_ms=1_000)
    await kit.edit("g", delay_ms=500, tags=("t",), headers=b"h", body=b"no", kind=BodyKind.TEXT)
    assert (await put(kit, "2")).group == "g"
    await kit.fire("g")
    assert (await put(kit, "3")).group == "g"
    leased = await kit.pull_one()
    assert (bodies(leased), leased.tags, leased.headers) == (["1", "2", "3"], ("t",), b"h")


async def test_a_cancelled_open_group_is_closed(kit: StoreKit) -> None:
    await put(kit, "1", group="g", delay_ms=1_000)
    await kit.cancel("g")
    assert (await put(kit, "2")).code is Code.CREATED


async def test_a_plain_send_that_replaces_a_group_takes_its_id_and_its_items_are_gone(kit: StoreKit) -> None:
    await put(kit, "1", group="g", item_id="x", delay_ms=1_000)
    assert (await kit.send("g", on_live=OnConflict.REPLACE)).code is Code.REPLACED
    job = await kit.job("g")
    assert (job.body, job.items, job.merge_key) == (b"body", None, None)
    assert (await put(kit, "2", group="h", item_id="x")).code is Code.CREATED
    assert await kit.listed_ids(merge_key="key") == ["h"]


async def test_a_group_is_not_opened_under_an_id_that_is_taken(kit: StoreKit) -> None:
    await kit.send("g", delay_ms=1_000)
    await put(kit, "123", group="open", delay_ms=1_000, max_bytes=3)
    assert (await put(kit, "4", group="g")).code is Code.ID_EXISTS
    assert [(await kit.job(id)).state for id in ("g", "open")] == [State.SCHEDULED] * 2
    assert (await kit.job("g")).body == b"body"


async def test_a_thousand_items_are_delivered_at_once_and_leave_nothing(kit: StoreKit) -> None:
    sends = [merging(f"{n}", item_id=f"{n}", delay_ms=1_000, retain_ms=0) for n in range(1_001)]
    sent = await kit.send_many(sends)
    assert [one.code for one in sent] == [Code.CREATED] + [Code.APPENDED] * 999 + [Code.CREATED]
    leased = await kit.pull_one()
    assert bodies(leased) == [f"{n}" for n in range(1_000)]
    assert await kit.ack(leased.id, leased.lease) is Code.OK
    assert (await put(kit, "again", item_id="7")).code is Code.APPENDED


async def test_a_pull_counts_the_items_of_groups_into_its_bytes(kit: StoreKit) -> None:
    for key in "abcde":
        await kit.send_many([merging("x" * 100_000, key, max_bytes=1 << 20) for _ in range(3)])
    assert len((await kit.pulled()).jobs) == 3
    assert len(await kit.pull()) == 2


async def test_a_full_group_that_waits_takes_no_more_and_keeps_its_time(kit: StoreKit) -> None:
    due_ms = kit.clock.now_ms + 1_000
    words = {"delay_ms": 1_000, "max_items": 2, "max_bytes": 10, "waits_when_full": True}
    await put(kit, "1", group="full", **words)
    filled = await put(kit, "2", **words)
    assert (filled.group, filled.state, filled.due_at_ms, filled.items_count) == ("full", State.SCHEDULED, due_ms, 2)
    await put(kit, "3", group="heavy", **words)
    assert (await put(kit, "a long one", group="next", **words)).group == "next"  # it does not fit beside the third
    assert await kit.pull() == []
    await kit.advance(1_000)
    assert {leased.id: bodies(leased) for leased in await kit.pull()} == {
        "full": ["1", "2"],
        "heavy": ["3"],
        "next": ["a long one"],
    }


async def open_groups(kit: StoreKit, limit: int = 50) -> list[OpenGroup]:
    found: list[OpenGroup] = []
    cursor: bytes | None = b""
    while cursor is not None:
        page = await kit.store.groups(kit.partition, cursor, limit)
        assert len(page.groups) <= limit
        found += page.groups
        cursor = page.cursor
    return found


async def test_open_groups_show_how_full_they_are(kit: StoreKit) -> None:
    start_ms = kit.clock.now_ms
    await put(kit, "1", group="g", quiet_ms=100, max_items=9)
    await kit.advance(10)
    await put(kit, "22", quiet_ms=100)
    await kit.send_many([item("plain", tags=("key",))])
    group = OpenGroup("g", "key", 2, 9, 3, start_ms + 110, start_ms, start_ms + 10)
    assert await open_groups(kit) == [group]
    await kit.advance(100)
    assert await open_groups(kit) == [group]  # due, and still open
    await kit.pull()
    assert await open_groups(kit) == []


async def test_closed_groups_are_not_open(kit: StoreKit) -> None:
    await put(kit, "1", "full", group="a", delay_ms=500, max_items=1)
    await put(kit, "1", "cancelled", group="b", delay_ms=500)
    await kit.cancel("b")
    await put(kit, "1", "expired", group="c", ttl_ms=10)
    await put(kit, "1", "open", group="d", delay_ms=500)
    await kit.advance(20)
    assert [group.id for group in await open_groups(kit)] == ["d"]


async def test_open_groups_come_in_pages(kit: StoreKit) -> None:
    keys = [f"key-{number:04}" for number in range(230)]
    await kit.send_many([merging("1", key, group=key, delay_ms=500) for key in keys])
    assert [group.key for group in await open_groups(kit, 500)] == keys
    assert [group.key for group in await open_groups(kit, 7)] == keys
    assert await open_groups(kit, 230) == await open_groups(kit, 50)
