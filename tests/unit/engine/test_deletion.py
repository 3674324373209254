"""Topics that are deleted, as this process and another one on the same store see it."""

from __future__ import annotations

import pytest
from engine_kit import NS, EngineKit, ids, settled

from dueline.engine.commands import Pull, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import NotFound, TopicNotEmpty
from dueline.engine.ids import partition_of
from dueline.engine.job import BodyKind, Partition
from dueline.engine.policy import TopicPolicy
from dueline.engine.store import Ref

POLICY = TopicPolicy(lease_ms=5_000)


async def other_process(kit: EngineKit) -> Engine:
    """One that has the config of the topic and has sent to it."""
    other = Engine(kit.store, timer=kit.timer)
    await other.send(NS, "mail", job("first"))
    await other.cancel(NS, "mail", ["first"])
    kit.store.events = kit.engine
    await kit.advance(1)
    return other


def job(id: str) -> Send:
    return Send(id, b"1", BodyKind.JSON)


async def test_a_process_with_the_config_of_a_deleted_topic_sends_to_a_new_one(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(POLICY, partitions=8))
    other = await other_process(kit)
    await kit.engine.delete_topic(NS, "mail")
    await kit.advance(1)
    for number in range(20):
        await other.send(NS, "mail", job(f"j{number}"))
    view = await kit.engine.topic(NS, "mail")
    assert (view.partitions, view.policy, view.ready) == (1, TopicPolicy(), 20)
    leased = await kit.engine.pull(Pull(NS, ("mail",), 100, None, 0))
    assert sorted(ids(leased)) == sorted(f"j{number}" for number in range(20))


async def test_a_process_finds_jobs_of_a_topic_that_was_made_anew_with_other_partitions(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(POLICY))
    other, third = await other_process(kit), Engine(kit.store, timer=kit.timer)
    await third.topic(NS, "mail")  # it knows one partition, and hears of no change
    await kit.engine.delete_topic(NS, "mail")
    await kit.engine.set_topic(NS, "mail", TopicPatch(POLICY, partitions=8))
    names = [f"j{number}" for number in range(20)]
    for name in names:
        await kit.engine.send(NS, "mail", job(name))
    await kit.advance(2_000)
    assert [(await other.get(NS, "mail", name)).id for name in names] == names
    leased = await kit.engine.pull(Pull(NS, ("mail",), 100, None, 0))
    done = await third.ack(NS, "mail", [Ref(one.id, one.lease) for one in leased])
    assert {one.code.name for one in done} == {"OK"}


async def test_a_deletion_that_meets_a_job_on_its_way_leaves_the_topic_as_it_was(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(POLICY, partitions=4))
    other = await other_process(kit)
    retire, sent = kit.store.retire, False

    async def beside(partition: object, topic_too: bool = False) -> bool:
        nonlocal sent
        if not sent:
            sent = True
            last = next(f"a{n}" for n in range(100) if partition_of(f"a{n}", 4) == 3)  # the others retire first
            await other.send(NS, "mail", job(last))
        return await retire(partition, topic_too)  # type: ignore[arg-type]

    kit.store.retire = beside  # type: ignore[method-assign]
    with pytest.raises(TopicNotEmpty, match="1 ready"):
        await kit.engine.delete_topic(NS, "mail")
    entry = await kit.store.directory.topic(NS, "mail")
    assert entry is not None
    partitions = [kit.store._state(Partition(NS, "mail", number)) for number in range(1, 5)]
    assert {partition.policy_version for partition in partitions} == {entry.version}
    view = await kit.engine.topic(NS, "mail")
    assert (view.partitions, view.policy, view.ready) == (4, POLICY, 1)


async def test_a_consumer_that_waits_on_a_deleted_topic_gets_the_first_job_of_the_new_one(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(POLICY))
    parked = kit.pull("mail", wait_ms=60_000)
    await settled()
    await kit.engine.delete_topic(NS, "mail")
    with pytest.raises(NotFound):
        await kit.engine.topic(NS, "mail")
    await kit.send("mail", "a")
    await settled()
    assert ids(await parked) == ["a"]
