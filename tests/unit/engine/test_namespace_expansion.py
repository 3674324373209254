"""Namespaces with `namespace_ids` that get more partitions: all topics share them, and ids stay unique over all."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import NS, EngineKit, running, settled

from dueline.engine.commands import ExpansionView, MergeInto, Pull, Send, Sent, TopicPatch
from dueline.engine.directory import config_key
from dueline.engine.engine import Engine
from dueline.engine.errors import Expanding, IdExists, InvalidField, NotFound, VersionMismatch
from dueline.engine.fence import Fence, Occurrence
from dueline.engine.ids import partition_of
from dueline.engine.job import BodyKind, Partition, State
from dueline.engine.partition_map import PartitionMap
from dueline.engine.policy import TopicPolicy
from dueline.engine.push_target import PushTarget
from dueline.engine.store import Code, OnConflict, Query, Ref, Release
from dueline.engine.topics import TopicConfig, pack_config

JOBS = [f"job-{number}" for number in range(40)]
TOPICS = ("mail", "sms")
OWN = frozenset({NS})


def job(id: str | None, **words: Any) -> Send:
    return Send(id, b"1", BodyKind.JSON, **words)


def topic_of(id: str) -> str:
    return TOPICS[int(id.rpartition("-")[2]) % 2]


async def expand(engine: Engine, partitions: int = 8, topic: str = "mail") -> Any:
    return (await engine.set_topic(NS, topic, TopicPatch(TopicPolicy(), partitions=partitions)))[0]


async def fill(kit: EngineKit, **words: Any) -> None:
    for id in JOBS:
        await kit.engine.send(NS, topic_of(id), job(id, **words))


def holders(kit: EngineKit, id: str) -> list[int]:
    """The partitions that hold an id, in any topic."""
    return [n for n in range(40) if id in kit.store._state(Partition(NS, "", n, True)).record_set.records]


async def pulled(kit: EngineKit, *topics: str) -> list[str]:
    return sorted(one.id for one in await kit.engine.pull(Pull(NS, topics or TOPICS, 100, None, 0)))


async def test_the_count_belongs_to_the_namespace() -> None:
    async with running(namespace_ids=OWN) as kit:
        await fill(kit)
        view = await expand(kit.engine)
        assert (view.partitions, view.expansion is not None) == (8, True)
        other = await kit.engine.topic(NS, "sms")
        assert (other.partitions, other.expansion) == (8, view.expansion)
        assert (await expand(kit.engine, topic="new")).partitions == 8, "the same number again changes nothing"
        with pytest.raises(Expanding):
            await expand(kit.engine, 16)
        with pytest.raises(InvalidField):
            await expand(kit.engine, 4, "sms")
        assert [one.topic for one in (await kit.engine.topics(NS, "", 10))[0]] == ["mail", "new", "sms"]
        assert await kit.engine.namespaces("", 10) == ([NS], None)


async def test_old_jobs_stay_and_new_ones_go_to_the_new_partitions() -> None:
    async with running(namespace_ids=OWN) as kit:
        await fill(kit)
        await expand(kit.engine)
        for id in JOBS:
            with pytest.raises(IdExists):
                await kit.engine.send(NS, topic_of(id), Send(id, b"2", BodyKind.JSON))
            await kit.engine.send(NS, topic_of(id), job(f"new{id}"))
            assert (holders(kit, id), holders(kit, f"new{id}")) == ([0], [1 + partition_of(f"new{id}", 8)])
        assert await pulled(kit) == sorted([*JOBS, *(f"new{id}" for id in JOBS)])


async def test_a_job_is_found_by_its_id_alone_in_old_and_new_partitions() -> None:
    async with running(namespace_ids=OWN) as kit:
        early = Engine(kit.store, timer=kit.timer, namespace_ids=OWN)
        await fill(kit)
        assert (await early.get_by_id(NS, JOBS[0])).topic == "mail"
        await expand(kit.engine)
        await kit.engine.send(NS, "sms", job("new"))
        for engine in (kit.engine, early, Engine(kit.store, timer=kit.timer, namespace_ids=OWN)):
            assert (await engine.get_by_id(NS, "new")).topic == "sms"
            assert (await engine.get_by_id(NS, JOBS[1])).topic == "sms"
        assert [one.code for one in await early.cancel_by_id(NS, [JOBS[2], "new"])] == [Code.OK, Code.OK]
        done = await early.ack_by_id(NS, [JOBS[3], "nothing"])
        assert [one.code for one in done] == [Code.OK, Code.NOT_FOUND]


async def test_a_replace_moves_an_old_job_to_another_topic() -> None:
    async with running(namespace_ids=OWN) as kit:
        await fill(kit)
        await expand(kit.engine)
        sent = await kit.engine.send(NS, "new", job(JOBS[0], on_conflict=OnConflict.REPLACE))
        assert (sent.result, holders(kit, JOBS[0])) == ("replaced", [0])
        assert (await kit.engine.get_by_id(NS, JOBS[0])).topic == "new"
        assert await pulled(kit, "new") == [JOBS[0]]


async def test_a_process_that_knows_nothing_of_it_sends_to_the_right_partition() -> None:
    async with running(namespace_ids=OWN) as kit:
        late = Engine(kit.store, timer=kit.timer, namespace_ids=OWN)
        await late.send(NS, "mail", job("first"))
        await expand(kit.engine)
        for topic in TOPICS:  # it has used one of them
            for id in (f"{topic}-own", None):
                sent = await late.send(NS, topic, job(id))
                assert holders(kit, sent.id) == [1 + partition_of(sent.id, 8)]
        [many] = await late.send_many(NS, "third", [job("third-own")])
        assert holders(kit, "third-own") == [1 + partition_of("third-own", 8)], many


async def test_nothing_goes_to_a_new_partition_before_the_old_one_is_closed() -> None:
    async with running(namespace_ids=OWN) as kit:
        await kit.engine.send(NS, "mail", job("first"))
        # Somebody writes the map and dies before the old partition is closed.
        config = pack_config(TopicConfig(map=PartitionMap(1, 8, 1)))
        stale, new = (Engine(kit.store, timer=kit.timer, namespace_ids=OWN) for _ in range(2))
        await stale.send(NS, "mail", job("second"))
        await kit.store.directory.set_config(*config_key(NS, ""), config, 0)
        [sent] = await new.send_many(NS, "mail", [job(None)])
        assert isinstance(sent, Sent)
        assert holders(kit, sent.id) == [0]
        assert (await stale.send(NS, "mail", job(sent.id))).result == "kept", "a retry with the id of the answer"
        assert holders(kit, sent.id) == [0]


async def test_the_expansion_ends_with_the_last_old_job_of_all_topics() -> None:
    async with running(namespace_ids=OWN) as kit:
        await fill(kit)
        await expand(kit.engine)
        await kit.engine.cancel_by_id(NS, JOBS[1:], forget=True)
        assert (await kit.engine.topic(NS, "sms")).expansion == ExpansionView(1, 1)
        await kit.engine.cancel_by_id(NS, JOBS[:1], forget=True)
        assert (await kit.engine.topic(NS, "sms")).expansion is None
        assert (await expand(kit.engine, 16)).partitions == 16
        sent = await kit.engine.send(NS, "sms", job("last"))
        assert holders(kit, sent.id) == [9 + partition_of("last", 16)]


async def test_a_waiting_pull_gets_jobs_of_new_partitions() -> None:
    async with running(namespace_ids=OWN) as kit:
        await kit.engine.send(NS, "mail", job("first"))
        assert await pulled(kit) == ["first"]
        waiting = kit.pull("mail", wait_ms=10_000)
        await expand(kit.engine)
        await kit.engine.send(NS, "mail", job("second"))
        assert [one.id for one in await waiting] == ["second"]


async def test_merging_sends_go_on_with_an_open_group() -> None:
    async with running(namespace_ids=OWN) as kit:
        merge = MergeInto("key", quiet_ms=1_000)
        first = await kit.engine.send(NS, "mail", job(None, merge=merge))
        await expand(kit.engine)
        second = await kit.engine.send(NS, "mail", job(None, merge=merge))
        other = await kit.engine.send(NS, "mail", job(None, merge=MergeInto("other", quiet_ms=1_000)))
        assert (second.id, second.items_count, holders(kit, second.id)) == (first.id, 2, [0])
        assert holders(kit, other.id) == [1 + partition_of("other", 8)]


async def test_a_topic_is_deleted_while_others_hold_old_jobs() -> None:
    async with running(namespace_ids=OWN) as kit:
        await fill(kit)
        await expand(kit.engine)
        with pytest.raises(Exception, match="holds jobs"):
            await kit.engine.delete_topic(NS, "sms")
        await kit.engine.cancel_by_id(NS, [id for id in JOBS if topic_of(id) == "sms"], forget=True)
        await kit.engine.delete_topic(NS, "sms")
        with pytest.raises(NotFound):
            await kit.engine.topic(NS, "sms")
        sent = await kit.engine.send(NS, "sms", job("again"))
        assert holders(kit, sent.id) == [1 + partition_of("again", 8)]


async def test_a_push_target_needs_a_place_in_every_partition_and_divides_its_limit_anew() -> None:
    async with running(namespace_ids=OWN) as kit:
        await kit.engine.set_push(NS, "sms", PushTarget(url="http://127.0.0.1/x", concurrency=4))
        with pytest.raises(InvalidField, match='the topic "sms"') as refused:
            await expand(kit.engine)
        assert refused.value.field == "concurrency"
        await kit.engine.set_push(NS, "sms", PushTarget(url="http://127.0.0.1/x", concurrency=9))
        await kit.engine.send(NS, "sms", job("first"))
        await expand(kit.engine)
        await kit.engine.send(NS, "sms", job("second"))
        limits = [kit.store._state(Partition(NS, "sms", number, True)).max_in_flight for number in range(9)]
        assert limits == [1] * 9
        with pytest.raises(InvalidField):
            await kit.engine.set_push(NS, "sms", PushTarget(url="http://127.0.0.1/x", concurrency=8))
        await kit.engine.cancel_by_id(NS, ["first"], forget=True)
        assert (await kit.engine.topic(NS, "sms")).expansion is None
        await settled()
        limits = [kit.store._state(Partition(NS, "sms", number, True)).max_in_flight for number in range(1, 9)]
        assert sum(limits) == 9


async def test_a_pause_holds_in_new_partitions() -> None:
    async with running(namespace_ids=OWN) as kit:
        await fill(kit)
        await kit.engine.pause(NS, "mail", None)
        await expand(kit.engine, topic="sms")
        for number in range(20):
            await kit.engine.send(NS, "mail", job(f"paused-{number}"))
        assert await pulled(kit, "mail") == []
        await kit.engine.resume(NS, "mail")
        assert len(await pulled(kit, "mail")) == 40


async def test_an_occurrence_that_an_old_partition_has_decided_is_not_sent_again() -> None:
    async with running(namespace_ids=OWN) as kit:

        def at(at_ms: int, version: int = 3) -> Send:
            return job(f"s@{at_ms}", occurrence=Occurrence("s", version, at_ms), on_conflict=OnConflict.REJECT)

        assert (await kit.engine._sender.send(NS, "mail", at(1_000))).result == "created"
        await kit.engine.cancel_by_id(NS, ["s@1000"], forget=True)
        await expand(kit.engine, topic="sms")  # nobody writes a config of this topic
        assert (await kit.engine.topic(NS, "mail")).expansion is None, "the old partition is not asked any more"
        late = Engine(kit.store, timer=kit.timer, namespace_ids=OWN)
        for engine in (kit.engine, late):
            assert (await engine._sender.send(NS, "mail", at(1_000))).result == "kept"
            with pytest.raises(VersionMismatch):
                await engine._sender.send(NS, "mail", at(2_000, version=2))
        assert (await late._sender.send(NS, "mail", at(3_000))).result == "created"
        assert await kit.store.fence(Partition(NS, "mail", 1, True), [Fence("s", 0)]) != [Fence("s", 0)]


async def test_several_occurrences_that_an_old_partition_has_decided_are_not_sent_again() -> None:
    async with running(namespace_ids=OWN) as kit:
        names = ("s", "t", "u")

        def at(at_ms: int) -> list[Send]:
            occurrences = [Occurrence(name, 3, at_ms) for name in names]
            return [
                job(f"{one.schedule}@{at_ms}", occurrence=one, on_conflict=OnConflict.REJECT) for one in occurrences
            ]

        async def results(engine: Engine, at_ms: int) -> list[str]:
            answers = await engine._sender.send_occurrences(NS, "mail", at(at_ms))
            return [answer.result for answer in answers if isinstance(answer, Sent)]

        assert await results(kit.engine, 1_000) == ["created"] * 3
        await kit.engine.cancel_by_id(NS, [f"{name}@1000" for name in names], forget=True)
        await expand(kit.engine, topic="sms")
        late = Engine(kit.store, timer=kit.timer, namespace_ids=OWN)
        for engine in (kit.engine, late):
            assert await results(engine, 1_000) == ["kept"] * 3
        assert await results(late, 3_000) == ["created"] * 3


async def test_an_unused_topic_leaves_all_partitions() -> None:
    async with running(namespace_ids=OWN, idle_ms=1_000) as kit:
        await expand(kit.engine, topic="kept")
        for id in JOBS:
            await kit.engine.send(NS, "mail", job(id))
        [mail] = [one for one in (await kit.engine.topics(NS, "", 10))[0] if one.topic == "mail"]
        assert mail.ready == len(JOBS)
        await kit.engine.cancel_by_id(NS, JOBS, forget=True)
        await kit.advance(3_000)
        await kit.engine._registrar.remove_idle()
        assert [one.topic for one in (await kit.engine.topics(NS, "", 10))[0]] == ["kept"]
        assert not [one for one in kit.store._partitions if one.topic == "mail"]


async def test_a_lease_in_an_old_partition_is_released_and_listed_there() -> None:
    async with running(namespace_ids=OWN) as kit:
        await fill(kit)
        leased = await kit.engine.pull(Pull(NS, ("mail",), 100, None, 0))
        await expand(kit.engine)
        done = await kit.engine.release(NS, "mail", [Release(one.id, one.lease, delay_ms=0) for one in leased])
        assert {one.code for one in done} == {Code.OK}
        await kit.engine.send(NS, "mail", job("new"))
        page = await kit.engine.list(NS, "mail", Query(limit=100))
        assert {one.state for one in page.jobs} == {State.READY}
        assert len(page.jobs) == len(leased) + 1
        again = await kit.engine.pull(Pull(NS, ("mail",), 100, None, 0))
        ends = await kit.engine.ack(NS, "mail", [Ref(one.id, one.lease) for one in again])
        assert {one.code for one in ends} == {Code.OK}
