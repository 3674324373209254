"""Topics that get more partitions while they are used: nothing is lost, doubled or unfindable."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import NS, EngineKit, ids, settled

from dueline.engine.commands import ExpansionView, Filter, MergeInto, Patch, Pull, Send, Sent, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import Expanding, IdExists, InvalidField, NotFound, StoreDown
from dueline.engine.ids import cell_of, partition_of
from dueline.engine.job import BodyKind, Partition, State
from dueline.engine.limits import CELLS
from dueline.engine.partition_map import PartitionMap
from dueline.engine.policy import TopicPolicy
from dueline.engine.push_target import PushTarget
from dueline.engine.store import Code, Control, OnConflict, Query, Ref, Release

JOBS = [f"job-{number}" for number in range(40)]


def job(id: str | None, **words: Any) -> Send:
    return Send(id, b"1", BodyKind.JSON, **words)


async def expand(engine: Engine, partitions: int = 8) -> Any:
    return (await engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=partitions)))[0]


async def filled(kit: EngineKit, partitions: int = 8, **words: Any) -> None:
    """A topic with jobs in its one partition gets more of them."""
    for id in JOBS:
        await kit.engine.send(NS, "mail", job(id, **words))
    await expand(kit.engine, partitions)


def holder(kit: EngineKit, id: str) -> list[int]:
    """The partitions that hold an id."""
    return [number for number in range(40) if id in kit.store._state(Partition(NS, "mail", number)).record_set.records]


async def pulled(kit: EngineKit, max: int = 100) -> list[Any]:
    return await kit.engine.pull(Pull(NS, ("mail",), max, None, 0))


async def finish(kit: EngineKit) -> None:
    """End all jobs, and let their retention pass."""
    while leased := await pulled(kit):
        await kit.engine.ack(NS, "mail", [Ref(one.id, one.lease) for one in leased])
    await kit.advance(120_000)
    for number in range(10):
        while (await kit.store.clean(Partition(NS, "mail", number))).more:
            pass


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 1000, 1024])
def test_the_cells_of_the_old_partitions_add_up(count: int) -> None:
    map = PartitionMap(count, 1024, count)
    assert sum(map.old_cells(place) for place in range(count)) == CELLS
    assert [map.old_cells(place) for place in range(count)] == [
        sum(1 for cell in range(CELLS) if cell * count // CELLS == place) for place in range(count)
    ]


async def test_an_expansion_shows_how_far_it_is_and_ends_with_the_last_old_job(kit: EngineKit) -> None:
    await filled(kit)
    view = await kit.engine.topic(NS, "mail")
    cells = len({cell_of(id) for id in JOBS})
    assert (view.partitions, view.ready, view.expansion) == (8, len(JOBS), ExpansionView(1, cells))
    assert sorted(ids(await pulled(kit))) == sorted(JOBS)
    await kit.engine.cancel(NS, "mail", JOBS[1:], forget=True)
    assert (await kit.engine.topic(NS, "mail")).expansion == ExpansionView(1, 1)
    await kit.engine.cancel(NS, "mail", JOBS[:1], forget=True)
    view = await kit.engine.topic(NS, "mail")
    assert (view.partitions, view.expansion) == (8, None)
    await kit.engine.send(NS, "mail", job("new"))
    assert ids(await pulled(kit)) == ["new"]


async def test_the_loop_ends_an_expansion_without_a_look_at_the_topic(kit: EngineKit) -> None:
    await filled(kit)
    await kit.engine.cancel(NS, "mail", JOBS, forget=True)
    topic = kit.engine._topics.known(NS, "mail")
    assert topic is not None
    assert len(topic.partitions) == 9
    await kit.engine._expansions.run_once()
    assert len(topic.partitions) == 8


async def test_a_new_topic_gets_its_partitions_at_once(kit: EngineKit) -> None:
    view, is_new = await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=8))
    assert (view.partitions, view.expansion, is_new) == (8, None, True)


async def test_the_number_of_partitions_never_shrinks_and_grows_once_at_a_time(kit: EngineKit) -> None:
    await filled(kit)
    assert (await expand(kit.engine, 8)).partitions == 8, "the same number again is no change"
    with pytest.raises(InvalidField, match="has 8 partitions; their number can only grow") as fewer:
        await expand(kit.engine, 4)
    assert fewer.value.field == "partitions"
    with pytest.raises(Expanding, match="1 old ones may still hold jobs: only one expansion at a time"):
        await expand(kit.engine, 16)
    assert (await kit.engine.topic(NS, "mail")).partitions == 8
    await kit.engine.cancel(NS, "mail", JOBS, forget=True)
    assert (await expand(kit.engine, 16)).partitions == 16, "the old partition is empty now"


async def test_conflict_rules_hold_for_jobs_of_the_old_partition(kit: EngineKit) -> None:
    await filled(kit, delay_ms=1_000)
    first, second, third = JOBS[:3]
    assert (await kit.engine.send(NS, "mail", job(first, delay_ms=1_000))).result == "kept"
    with pytest.raises(IdExists):
        await kit.engine.send(NS, "mail", job(second))
    replaced = await kit.engine.send(NS, "mail", job(third, on_conflict=OnConflict.REPLACE))
    assert replaced.result == "replaced"
    many = await kit.engine.send_many(NS, "mail", [job(first, delay_ms=1_000), job("new"), job(second), job(None)])
    assert [one.result if isinstance(one, Sent) else one.code for one in many] == [
        *("kept", "created", "id_exists", "created")
    ]
    assert [holder(kit, id) for id in (first, second, third)] == [[0]] * 3
    assert holder(kit, "new") == [1 + partition_of("new", 8)]
    assert (await kit.engine.send(NS, "mail", job("new"))).result == "kept"


async def test_calls_by_id_find_jobs_of_both(kit: EngineKit) -> None:
    await filled(kit)
    for number in range(20):
        await kit.engine.send(NS, "mail", job(f"new-{number}"))
    all_ids = [*JOBS, *(f"new-{number}" for number in range(20))]
    assert [(await kit.engine.get(NS, "mail", id)).id for id in all_ids] == all_ids
    leased = await pulled(kit)
    assert sorted(ids(leased)) == sorted(all_ids)
    refs = [Ref(one.id, one.lease) for one in leased]
    extended = await kit.engine.release(NS, "mail", [Release(one.id, one.token, 5_000) for one in refs])
    assert {done.code for done in extended} == {Code.OK}
    assert (await kit.engine.fire(NS, "mail", JOBS[0])).code is Code.OK
    patched = await kit.engine.patch(NS, "mail", Patch(JOBS[1], body=b"2", max_attempts=9))
    assert (patched.body, patched.policy.max_attempts) == (b"2", 9)
    done = await kit.engine.cancel(NS, "mail", [*all_ids, "nobody"])
    assert [one.code for one in done] == [Code.OK] * len(all_ids) + [Code.NOT_FOUND]
    for call in (kit.engine.get(NS, "mail", "nobody"), kit.engine.patch(NS, "mail", Patch("nobody", body=b"2"))):
        with pytest.raises(NotFound):
            await call


async def test_dead_jobs_of_the_old_partition_are_revived_and_purged(kit: EngineKit) -> None:
    await filled(kit, max_attempts=1)
    leased = await pulled(kit)
    await kit.engine.release(NS, "mail", [Release(one.id, one.lease) for one in leased])
    assert (await kit.engine.topic(NS, "mail")).dead == len(JOBS)
    revived = await kit.engine.revive(NS, "mail", JOBS[:3])
    assert [one.code for one in revived] == [Code.OK] * 3
    purged = await kit.engine.purge_matching(NS, "mail", Filter(), dry_run=False)
    assert purged.changed == len(JOBS) - 3
    assert sorted(ids(await pulled(kit))) == sorted(JOBS[:3])


async def test_a_list_walks_the_old_and_the_new_partitions(kit: EngineKit) -> None:
    await filled(kit, delay_ms=1_000, tags=("t",))
    for number in range(20):
        await kit.engine.send(NS, "mail", job(f"new-{number}", delay_ms=1_000, tags=("t",)))
    for words in ({"state": State.SCHEDULED}, {"tag": "t"}):
        found: list[str] = []
        cursor: bytes | None = b""
        while cursor is not None:
            page = await kit.engine.list(NS, "mail", Query(cursor=cursor, limit=7, **words))
            found += [one.id for one in page.jobs]
            cursor = page.cursor
        assert sorted(found) == sorted([*JOBS, *(f"new-{number}" for number in range(20))])
    page = await kit.engine.list(NS, "mail", Query(state=State.SCHEDULED, limit=5))
    await kit.engine.cancel(NS, "mail", JOBS, forget=True)
    assert (await kit.engine.topic(NS, "mail")).expansion is None
    assert page.cursor is not None
    rest = await kit.engine.list(NS, "mail", Query(state=State.SCHEDULED, limit=50, cursor=page.cursor))
    assert len(rest.jobs) == 20, "the cursor is in a partition that is gone; the next one follows"
    done = await kit.engine.cancel_matching(NS, "mail", Filter(tag="t"), dry_run=False)
    assert done.changed == 20


async def test_a_send_asks_the_old_partition_only_for_cells_of_which_it_holds_jobs(kit: EngineKit) -> None:
    await filled(kit)
    asked: list[int] = []
    send = kit.store.send

    async def watched(partition: Partition, items: Any, version: int = 0) -> Any:
        asked.append(partition.number)
        return await send(partition, items, version)

    kit.store.send = watched  # type: ignore[method-assign]
    cells = {cell_of(id) for id in JOBS}
    alike = next(f"x{n}" for n in range(100_000) if cell_of(f"x{n}") in cells)
    other = next(f"x{n}" for n in range(100_000) if cell_of(f"x{n}") not in cells)
    await kit.engine.send(NS, "mail", job(alike))
    await kit.engine.send(NS, "mail", job(other))
    await kit.engine.send(NS, "mail", job(None))
    await kit.engine.send_many(NS, "mail", [job(f"{alike}"), job(None)])
    assert asked[:3] == [0, 1 + partition_of(alike, 8), 1 + partition_of(other, 8)]
    assert asked[3:].count(0) == 1


async def test_an_open_group_goes_on_at_the_old_partition_until_it_closes(kit: EngineKit) -> None:
    def item(body: bytes, key: str = "key") -> Send:
        return Send(None, body, BodyKind.TEXT, delay_ms=1_000, merge=MergeInto(key))

    first = await kit.engine.send(NS, "mail", item(b"1"))
    await expand(kit.engine)
    second = await kit.engine.send(NS, "mail", item(b"2"))
    assert (second.id, second.result, second.items_count) == (first.id, "appended", 2)
    assert (await kit.engine.get(NS, "mail", first.id)).merge_key == "key"
    other = await kit.engine.send(NS, "mail", item(b"3", "other"))
    assert (other.result, holder(kit, other.id)) == ("created", [1 + partition_of("other", 8)])
    await kit.advance(1_000)
    [one] = [one for one in await pulled(kit) if one.id == first.id]
    assert [part.body for part in one.items or ()] == [b"1", b"2"]
    third = await kit.engine.send(NS, "mail", item(b"4"))
    assert (third.result, holder(kit, third.id)) == ("created", [1 + partition_of("key", 8)])
    page = await kit.engine.list(NS, "mail", Query(merge_key="key"))
    assert {one.id for one in page.jobs} == {first.id, third.id}
    bulk = await kit.engine.cancel_groups(NS, "mail", "key")
    assert (bulk.matched, bulk.changed) == (2, 1), "the leased one is spared"


async def test_a_process_that_has_not_heard_sends_to_the_new_partitions_and_finds_all_jobs(kit: EngineKit) -> None:
    for id in JOBS:
        await kit.engine.send(NS, "mail", job(id))
    other = Engine(kit.store, timer=kit.timer)
    await other.send(NS, "mail", job("first"))
    kit.store.events = kit.engine
    await expand(kit.engine)
    await kit.engine.send(NS, "mail", job("new-1"))
    assert (await other.get(NS, "mail", "new-1")).id == "new-1", "although it has read the topic a moment ago"
    await other.send(NS, "mail", job("new-2"))
    assert holder(kit, "new-2") == [1 + partition_of("new-2", 8)]
    third = Engine(kit.store, timer=kit.timer)
    assert [one.code for one in await third.cancel(NS, "mail", [*JOBS, "new-1", "new-2"])] == [Code.OK] * 42


async def test_a_pull_that_waits_gets_jobs_of_new_partitions(kit: EngineKit) -> None:
    await kit.engine.send(NS, "mail", job("later", delay_ms=60_000))
    parked = kit.pull("mail", wait_ms=30_000)
    await settled()
    await expand(kit.engine)
    await kit.engine.send(NS, "mail", job("new"))
    await settled()
    assert ids(await parked) == ["new"]


async def test_jobs_of_a_waiter_that_left_return_to_the_partition_that_holds_them(kit: EngineKit) -> None:
    await filled(kit)
    leased = await pulled(kit)
    await kit.engine.give_back(NS, leased)
    assert (await kit.engine.topic(NS, "mail")).ready == len(JOBS)


@pytest.mark.parametrize("died_at", range(9))
async def test_a_process_that_dies_while_it_expands_leaves_a_topic_that_works(died_at: int, kit: EngineKit) -> None:
    for id in JOBS:
        await kit.engine.send(NS, "mail", job(id))
    dying = Engine(kit.store, timer=kit.timer)
    control, left = kit.store.control, died_at

    async def mortal(partition: Partition, control_: Control) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StoreDown
        await control(partition, control_)

    kit.store.control = mortal  # type: ignore[method-assign]
    with pytest.raises(StoreDown):
        await expand(dying)
    kit.store.control = control  # type: ignore[method-assign]
    old, new = Engine(kit.store, timer=kit.timer), Engine(kit.store, timer=kit.timer)
    await old.send(NS, "mail", job(JOBS[0]))
    results = [
        (await engine.send(NS, "mail", job(id))).result for id in [*JOBS, "x", "y"] for engine in (kit.engine, new)
    ]
    assert results == ["kept"] * 80 + ["created", "kept"] * 2
    assert [len(holder(kit, id)) for id in [*JOBS, "x", "y"]] == [1] * 42
    assert sorted(ids(await new.pull(Pull(NS, ("mail",), 100, None, 0)))) == sorted([*JOBS, "x", "y"])
    await new.cancel(NS, "mail", [*JOBS, "x", "y"], forget=True)
    view = await new.topic(NS, "mail")
    assert (view.partitions, view.expansion) == (8, None)


async def test_a_first_send_beside_the_creation_of_its_topic_is_found(kit: EngineKit) -> None:
    """The other process knows no config yet, and sends to the one partition that it knows."""
    other = Engine(kit.store, timer=kit.timer)
    control, sent = kit.store.control, False

    async def beside(partition: Partition, control_: Control) -> None:
        nonlocal sent
        if not sent:
            sent = True
            topic = other._topics.apply((NS, "mail"), None)
            topic.registered_until_s = float("inf")
            await other.send(NS, "mail", job("first"))
        await control(partition, control_)

    kit.store.control = beside  # type: ignore[method-assign]
    view = await expand(kit.engine)
    assert (view.partitions, view.expansion) == (8, ExpansionView(1, 1))
    assert holder(kit, "first") == [0]
    assert (await kit.engine.send(NS, "mail", job("first"))).result == "kept"
    assert (await kit.engine.get(NS, "mail", "first")).id == "first"
    assert ids(await pulled(kit)) == ["first"]


async def test_an_expanded_topic_is_deleted_and_its_name_is_free_again(kit: EngineKit) -> None:
    await filled(kit)
    await finish(kit)
    await expand(kit.engine, 8)
    await kit.engine.send(NS, "mail", job("last"))
    stranger = Engine(kit.store, timer=kit.timer)  # knows no config of the topic
    topic = stranger._topics.apply((NS, "mail"), None)
    topic.registered_until_s = float("inf")
    await finish(kit)
    await kit.engine.delete_topic(NS, "mail")
    await kit.advance(1)
    await stranger.send(NS, "mail", job("new"))
    await kit.advance(1)
    view = await kit.engine.topic(NS, "mail")
    assert (view.partitions, view.ready) == (1, 1)


async def test_a_partition_that_was_closed_for_a_topic_that_is_gone_is_opened(kit: EngineKit) -> None:
    """A process died after it had removed the topic from the directory."""
    await kit.store.control(Partition(NS, "mail"), Control(policy_version=9, closed=True))
    sent = await kit.engine.send(NS, "mail", job("a"))
    many = await kit.engine.send_many(NS, "mail", [job("b"), job("c")])
    assert (sent.result, [one.result for one in many if isinstance(one, Sent)]) == ("created", ["created"] * 2)
    assert sorted(ids(await pulled(kit))) == ["a", "b", "c"]


async def test_a_pause_and_limits_hold_for_old_and_new_partitions(kit: EngineKit) -> None:
    await kit.engine.set_push(NS, "mail", PushTarget(url="https://example.com/", concurrency=8))
    await kit.engine.send(NS, "mail", job("a"))
    with pytest.raises(InvalidField, match="at least 9") as refused:
        await expand(kit.engine)
    assert refused.value.field == "concurrency"
    await kit.engine.set_push(NS, "mail", PushTarget(url="https://example.com/", concurrency=9))
    await expand(kit.engine)
    limits = [kit.store._state(Partition(NS, "mail", number)).max_in_flight for number in range(9)]
    assert limits == [1] * 9
    await kit.engine.pause(NS, "mail", None)
    assert await pulled(kit) == []
    await kit.engine.resume(NS, "mail")
    assert ids(await pulled(kit)) == ["a"]


async def test_pulls_are_fair_to_partitions_that_always_have_jobs(kit: EngineKit) -> None:
    """Every partition has more due jobs than the consumers take."""
    await expand(kit.engine)
    for number in range(800):
        await kit.engine.send(NS, "mail", job(f"job-{number}"))
    taken: dict[int, int] = {}
    for _ in range(400):
        [one] = await pulled(kit, 1)
        place = partition_of(one.id, 8)
        taken[place] = taken.get(place, 0) + 1
    assert len(taken) == 8
    assert min(taken.values()) > 20, f"a partition waits for the others: {taken}"
