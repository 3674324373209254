"""Namespaces with `namespace_ids`: ids are unique over all topics; the record says where a job lives, no index can go
stale."""

from __future__ import annotations

from msgspec.structs import replace

from dueline.engine.job import BodyKind, Partition, State
from dueline.engine.policy import JobPolicy
from dueline.engine.store import Code, Credit, OnConflict, Pull, Ref, SendItem
from tests.kit.store import StoreKit


def namespace_ids(kit: StoreKit, topic: str) -> Partition:
    return Partition(kit.partition.namespace, topic, 0, True)


def item(id: str, delay_ms: int = 0, rule: OnConflict = OnConflict.REPLACE, retain_ms: int = 0) -> SendItem:
    policy = JobPolicy(max_attempts=None, retain_ms=retain_ms)
    return SendItem(id, b"body", BodyKind.TEXT, delay_ms, None, policy, None, rule, rule, 7, ("tag",))


async def ids_of(kit: StoreKit, topic: str) -> list[str]:
    pulled = await kit.store.pull(namespace_ids(kit, topic), Pull((Credit(10, None),), 1_000))
    return [job.id for job in pulled.jobs]


async def test_a_job_is_found_by_its_id_alone(kit: StoreKit) -> None:
    everywhere = namespace_ids(kit, "")
    await kit.store.send(namespace_ids(kit, "a"), [item("1"), item("2")])
    await kit.store.send(namespace_ids(kit, "b"), [item("3")])
    found = await kit.store.read(everywhere, ["1", "2", "3", "4"])
    assert [job and (job.id, job.topic) for job in found] == [("1", "a"), ("2", "a"), ("3", "b"), None]
    done = await kit.store.ack(everywhere, [Ref("1"), Ref("3"), Ref("4")])
    assert [one.code for one in done] == [Code.OK, Code.OK, Code.NOT_FOUND]
    assert [one.code for one in await kit.store.cancel(everywhere, ["2", "1"])] == [Code.OK, Code.NOT_FOUND]
    assert await kit.store.read(everywhere, ["1", "2", "3"]) == [None, None, None]


async def test_a_topic_of_any_name_keeps_its_jobs(kit: StoreKit) -> None:
    """What a store writes for itself beside the topics has the name of none."""
    topics = ["a", "w", "W", "m:W", "directory"]
    for topic in topics:
        await kit.store.send(namespace_ids(kit, topic), [item(f"of {topic}")])
    assert [await ids_of(kit, topic) for topic in topics] == [[f"of {topic}"] for topic in topics]
    await kit.store.ack(namespace_ids(kit, ""), [Ref(f"of {topic}") for topic in topics])


async def test_a_replace_that_changes_the_topic_leaves_one_job(kit: StoreKit) -> None:
    await kit.store.send(namespace_ids(kit, "a"), [item("1")])
    [moved] = await kit.store.send(namespace_ids(kit, "b"), [item("1")])
    assert moved.code is Code.REPLACED
    assert await ids_of(kit, "a") == []
    assert await ids_of(kit, "b") == ["1"]
    stats = await kit.store.stats(namespace_ids(kit, "a"))
    assert (stats.scheduled, stats.ready, stats.leased) == (0, 0, 0)


async def test_a_leased_job_that_is_replaced_in_another_topic_loses_its_lease(kit: StoreKit) -> None:
    await kit.store.send(namespace_ids(kit, "a"), [item("1")])
    pulled = await kit.store.pull(namespace_ids(kit, "a"), Pull((Credit(1, None),), 60_000))
    await kit.store.send(namespace_ids(kit, "b"), [item("1", 500)])
    [late] = await kit.store.ack(namespace_ids(kit, "a"), [Ref("1", pulled.jobs[0].lease)])
    assert late.code is Code.ELSEWHERE
    [job] = await kit.store.read(namespace_ids(kit, ""), ["1"])
    assert job is not None
    assert (job.topic, job.state, job.attempts) == ("b", State.SCHEDULED, 0)


async def test_an_ack_by_id_finds_a_pulled_job_wherever_it_is_now(kit: StoreKit) -> None:
    """A store may remember where it was pulled from, but the job may have moved or ended since."""
    everywhere = namespace_ids(kit, "")
    for number in range(3):
        await kit.store.send(namespace_ids(kit, "a"), [item(str(number))])
    assert await ids_of(kit, "a") == ["0", "1", "2"]
    await kit.store.send(namespace_ids(kit, "b"), [item("1", 500)])
    await kit.store.cancel(namespace_ids(kit, "a"), ["2"])
    done = [(await kit.store.ack(everywhere, [Ref(id)]))[0].code for id in ("0", "1", "2", "0")]
    assert done == [Code.OK, Code.OK, Code.NOT_FOUND, Code.NOT_FOUND]
    assert await kit.store.read(everywhere, ["0", "1", "2"]) == [None, None, None]


async def test_without_replace_the_other_topic_keeps_its_job(kit: StoreKit) -> None:
    await kit.store.send(namespace_ids(kit, "a"), [item("1")])
    for rule in (OnConflict.REJECT, OnConflict.KEEP):
        [refused] = await kit.store.send(namespace_ids(kit, "b"), [item("1", 0, rule)])
        assert (refused.code, refused.elsewhere) == (Code.ELSEWHERE, "a")
    assert await ids_of(kit, "b") == []
    assert await ids_of(kit, "a") == ["1"]


async def test_a_tombstone_of_another_topic_holds_the_id_until_its_retention_is_over(kit: StoreKit) -> None:
    await kit.store.send(namespace_ids(kit, "a"), [item("1", retain_ms=1_000)])
    await kit.store.ack(namespace_ids(kit, ""), [Ref("1")])
    [refused] = await kit.store.send(namespace_ids(kit, "b"), [item("1", 0, OnConflict.REJECT)])
    assert refused.code is Code.ELSEWHERE
    await kit.advance(1_001)
    [created] = await kit.store.send(namespace_ids(kit, "b"), [item("1", 0, OnConflict.REJECT)])
    assert created.code is Code.CREATED
    assert (await kit.store.stats(namespace_ids(kit, "a"))).done == 0
    assert await ids_of(kit, "b") == ["1"]


async def test_calls_on_a_topic_do_not_touch_the_jobs_of_another(kit: StoreKit) -> None:
    await kit.store.send(namespace_ids(kit, "a"), [item("1")])
    other = namespace_ids(kit, "b")
    assert await kit.store.read(other, ["1"]) == [None]
    assert [one.code for one in await kit.store.ack(other, [Ref("1")])] == [Code.ELSEWHERE]
    assert [one.code for one in await kit.store.cancel(other, ["1"])] == [Code.ELSEWHERE]
    assert await ids_of(kit, "a") == ["1"]


async def test_one_topic_can_retire_while_another_has_jobs(kit: StoreKit) -> None:
    await kit.store.send(namespace_ids(kit, "a"), [item("1", 500)])
    await kit.store.send(namespace_ids(kit, "b"), [item("2")])
    await kit.store.ack(namespace_ids(kit, ""), [Ref("2")])
    assert await kit.store.retire(namespace_ids(kit, "b")) is True
    assert await kit.store.retire(namespace_ids(kit, "a")) is False
    [job] = await kit.store.read(namespace_ids(kit, ""), ["1"])
    assert job is not None
    assert replace(job, version=0).topic == "a"
