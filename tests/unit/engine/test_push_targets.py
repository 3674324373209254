"""Push targets as data: kept in the topic's config, applied to the partitions, found by other processes."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import NS, EngineKit, settled

from dueline.engine.commands import Pull, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import InvalidField, NotFound, StoreDown, TooManyItems
from dueline.engine.ids import partition_of
from dueline.engine.job import BodyKind, Partition
from dueline.engine.partition_map import PartitionMap
from dueline.engine.policy import Backoff, Ladder, TopicPolicy
from dueline.engine.push_log import Attempt, TargetState
from dueline.engine.push_target import PUSH_RETRY, Breaker, PushTarget, PushTopic, limits_of
from dueline.engine.store import Control
from dueline.engine.topics import TopicConfig, pack_config, unpack_config

URL = "https://example.test/hook"
FULL = PushTarget(
    url=URL,
    method="PUT",
    headers=(("X-Key", "value"),),
    timeout_ms=1_000,
    concurrency=7,
    rate_per_s=2.5,
    success=(200, 204),
    retry=Ladder((1, 2)),
    breaker=Breaker(3, 400),
    secrets=("whsec_a", "whsec_b"),
    paused=True,
)
TARGETS = [
    PushTarget(url=URL),
    FULL,
    PushTarget(service="billing", retry=Backoff(5, 3.0, 70, 0.5), breaker=None),
    PushTarget(courier="carried"),
]


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_comes_back_as_it_was_stored(target: PushTarget) -> None:
    config = TopicConfig(TopicPolicy(lease_ms=5), PartitionMap(0, 4), 77, target)
    assert unpack_config(pack_config(config)) == config


@pytest.mark.parametrize(
    ("concurrency", "partitions", "shares"), [(1, 1, [1]), (7, 3, [3, 2, 2]), (16, 4, [4, 4, 4, 4]), (5, 5, [1] * 5)]
)
def test_the_partitions_shares_are_together_exactly_the_targets_limits(
    concurrency: int, partitions: int, shares: list[int]
) -> None:
    limits = limits_of(PushTarget(url=URL, concurrency=concurrency, rate_per_s=30.0), partitions)
    assert [share for share, _ in limits] == shares
    assert sum(rate for _, rate in limits) == pytest.approx(30.0)
    assert limits_of(None, 2) == [(0, 0.0), (0, 0.0)]


async def test_a_target_is_set_shown_paused_resumed_and_removed(kit: EngineKit) -> None:
    engine = kit.engine
    with pytest.raises(NotFound):
        await engine.push_target(NS, "mail")
    assert await engine.set_push(NS, "mail", PushTarget(url=URL)) == (PushTarget(url=URL), True)
    assert await engine.set_push(NS, "mail", FULL) == (FULL, False)
    assert await engine.push_target(NS, "mail") == FULL
    assert (await engine.topic(NS, "mail")).push is True
    assert (await engine.resume_push(NS, "mail")).paused is False
    assert (await engine.resume_push(NS, "mail")).paused is False
    assert (await engine.pause_push(NS, "mail")).paused is True
    assert await engine.push_target(NS, "mail") == FULL
    await engine.remove_push(NS, "mail")
    assert (await engine.topic(NS, "mail")).push is False
    for call in (engine.push_target, engine.remove_push, engine.pause_push, engine.resume_push):
        with pytest.raises(NotFound):
            await call(NS, "mail")


async def test_policy_pause_and_target_of_a_topic_leave_one_another_alone(kit: EngineKit) -> None:
    await kit.engine.set_push(NS, "mail", FULL)
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(lease_ms=9)))
    await kit.engine.pause(NS, "mail", None)
    view = await kit.engine.topic(NS, "mail")
    assert (view.policy.lease_ms, view.paused, view.push) == (9, True, True)
    assert await kit.engine.push_target(NS, "mail") == FULL
    await kit.engine.remove_push(NS, "mail")
    view = await kit.engine.topic(NS, "mail")
    assert (view.policy.lease_ms, view.paused, view.push) == (9, True, False)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"url": None}, "url"),
    ({"service": "billing"}, "service"),
    ({"url": "ftp://example.test"}, "url"),
    ({"url": "https://"}, "url"),
    ({"url": "https://example.test/a b"}, "url"),
    ({"url": "https://example.test/" + "x" * 2048}, "url"),
    ({"url": None, "service": "a/b"}, "service"),
    ({"method": ""}, "method"),
    ({"method": "GET /"}, "method"),
    ({"headers": (("X", "a\nb"),)}, "headers"),
    ({"timeout_ms": 0}, "timeout_ms"),
    ({"timeout_ms": 3_600_001}, "timeout_ms"),
    ({"concurrency": 0}, "concurrency"),
    ({"concurrency": 10_001}, "concurrency"),
    ({"rate_per_s": -1.0}, "rate_per_s"),
    ({"rate_per_s": float("nan")}, "rate_per_s"),
    ({"rate_per_s": float("inf")}, "rate_per_s"),
    ({"rate_per_s": 0.0001}, "rate_per_s"),
    ({"success": (99,)}, "success"),
    ({"success": (600,)}, "success"),
    ({"retry": Ladder(())}, "retry.ladder"),
    ({"retry": Backoff(0)}, "retry.base_ms"),
    ({"breaker": Breaker(0, 1)}, "breaker.failures"),
    ({"breaker": Breaker(1, 0)}, "breaker.open_ms"),
    ({"secrets": ("",)}, "secrets"),
    ({"secrets": ("ä",)}, "secrets"),
    ({"courier": "a b"}, "courier"),
]


@pytest.mark.parametrize(("words", "field"), BAD)
async def test_a_target_that_cannot_be_is_refused_by_the_name_of_its_field(
    words: dict[str, Any], field: str, kit: EngineKit
) -> None:
    with pytest.raises(InvalidField) as refused:
        await kit.engine.set_push(NS, "mail", PushTarget(**{"url": URL, **words}))
    assert refused.value.field == field
    with pytest.raises(NotFound):
        await kit.engine.topic(NS, "mail")


async def test_more_than_two_secrets_are_refused(kit: EngineKit) -> None:
    with pytest.raises(TooManyItems) as refused:
        await kit.engine.set_push(NS, "mail", PushTarget(url=URL, secrets=("a", "b", "c")))
    assert refused.value.field == "secrets"


async def test_a_target_needs_a_place_for_every_partition(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=4))
    with pytest.raises(InvalidField) as refused:
        await kit.engine.set_push(NS, "namespace_ids", PushTarget(url=URL, concurrency=3))
    assert refused.value.field == "concurrency"
    await kit.engine.set_push(NS, "namespace_ids", PushTarget(url=URL, concurrency=4))


async def test_the_concurrency_of_a_target_holds_over_two_processes_and_ends_with_it(kit: EngineKit) -> None:
    other = Engine(kit.store, timer=kit.timer)
    for number in range(6):
        await kit.send("mail", f"j{number}")
    await kit.engine.set_push(NS, "mail", PushTarget(url=URL, concurrency=3))
    first = await kit.pull("mail", max=2)
    second = await other.pull(Pull(NS, ("mail",), 5))
    assert [len(first), len(second)] == [2, 1]
    await kit.engine.remove_push(NS, "mail")
    assert len(await other.pull(Pull(NS, ("mail",), 5))) == 3
    await other.stop()


async def test_jobs_retry_as_the_target_says_unless_they_or_their_topic_say_otherwise(kit: EngineKit) -> None:
    await kit.engine.set_push(NS, "mail", PushTarget(url=URL, retry=Ladder((1_000, 2_000))))
    await kit.send("mail", "plain")
    await kit.send("mail", "own", retry=Backoff(5))
    job = await kit.engine.get(NS, "mail", "plain")
    assert (job.policy.retry, job.policy.max_attempts) == (Ladder((1_000, 2_000)), 3)
    assert (await kit.engine.get(NS, "mail", "own")).policy.retry == Backoff(5)
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(retry=Ladder((7,)))))
    await kit.send("mail", "topic")
    assert (await kit.engine.get(NS, "mail", "topic")).policy.retry == Ladder((7,))
    await kit.engine.set_push(NS, "other", PushTarget(url=URL))
    await kit.send("other", "nobody says")
    job = await kit.engine.get(NS, "other", "nobody says")
    assert (job.policy.retry, job.policy.max_attempts) == (PUSH_RETRY, 20)
    assert job.policy.waits_ms[:9] == tuple(5_000 * 3**number for number in range(9))


async def test_a_process_that_knows_the_topic_already_sends_with_the_new_targets_retry(kit: EngineKit) -> None:
    other = Engine(kit.store, timer=kit.timer)
    await other.send(NS, "mail", Send("before", b"1", BodyKind.JSON))
    await kit.engine.set_push(NS, "mail", PushTarget(url=URL, retry=Ladder((1_000,))))
    await other.send(NS, "mail", Send("after", b"1", BodyKind.JSON))
    assert (await other.get(NS, "mail", "after")).policy.retry == Ladder((1_000,))
    await other.stop()


async def test_topics_with_targets_are_paged_over_all_namespaces_or_one(kit: EngineKit) -> None:
    for number in range(230):
        await kit.engine.set_topic(NS, f"plain{number:03}", TopicPatch(TopicPolicy()))
    wanted = [("a", "x"), (NS, "b"), (NS, "m"), (NS, "zz"), ("z", "y")]
    for namespace, topic in wanted:
        await kit.engine.set_push(namespace, topic, PushTarget(url=URL))

    async def all_of(namespace: str | None, limit: int) -> list[PushTopic]:
        found: list[PushTopic] = []
        after: str | None = ""
        while after is not None:
            page, after = await kit.engine.push_topics(namespace, after, limit)
            assert len(page) <= limit
            found += page
        return found

    for limit in (1, 2, 500):
        assert [(one.namespace, one.topic) for one in await all_of(None, limit)] == wanted
        assert [one.topic for one in await all_of(NS, limit)] == ["b", "m", "zz"]
    assert (await all_of("a", 1))[0] == PushTopic("a", "x", 1, PushTarget(url=URL))


async def test_partitions_that_missed_the_limits_get_them_before_anybody_pushes(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=2))
    real, calls = kit.store.control, 0

    async def control(partition: Partition, control: Control) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise StoreDown  # the process dies here, after half of the partitions
        await real(partition, control)

    kit.store.control = control
    with pytest.raises(StoreDown):
        await kit.engine.set_push(NS, "namespace_ids", PushTarget(url=URL, concurrency=2))
    kit.store.control = real
    other = Engine(kit.store, timer=kit.timer)
    await other.start()
    await settled()
    names = [f"{number * 2_654_435_761 % 2**32:x}" for number in range(1, 21)]
    assert {partition_of(name, 2) for name in names} == {0, 1}
    for name in names:
        await kit.send("namespace_ids", name)
    leased = 0
    while jobs := await other.pull(Pull(NS, ("namespace_ids",), 20)):
        leased += len(jobs)
    assert leased == 2
    await other.stop()


async def test_whoever_tells_the_partitions_last_tells_them_the_newest(kit: EngineKit) -> None:
    await kit.engine.set_push(NS, "mail", PushTarget(url=URL, concurrency=1))
    other = Engine(kit.store, timer=kit.timer)
    real, faster = kit.store.control, [PushTarget(url=URL, concurrency=3)]

    async def control(partition: Partition, control: Control) -> None:
        if faster:
            await other.set_push(NS, "mail", faster.pop())  # somebody else writes and tells in between
        await real(partition, control)

    kit.store.control = control
    await kit.engine.set_push(NS, "mail", PushTarget(url=URL, concurrency=2))
    for number in range(5):
        await kit.send("mail", f"j{number}")
    assert (await kit.engine.push_target(NS, "mail")).concurrency == 3
    assert len(await kit.pull("mail", max=5)) == 3
    await other.stop()


async def test_the_log_of_a_target_ends_with_it_and_with_its_address(kit: EngineKit) -> None:
    log = kit.store.pushes
    failed = Attempt("j", 1, 5, 500, 7, ok=False, error="answered 500")

    async def report() -> None:
        await log.report(NS, "mail", [failed], 1, 1_000)

    await kit.engine.set_push(NS, "mail", PushTarget(url=URL))
    await report()
    await kit.engine.set_push(NS, "mail", PushTarget(url=URL, concurrency=2))
    assert (await log.state(NS, "mail")).failures == 1
    await kit.engine.set_push(NS, "mail", PushTarget(url=URL + "/other"))
    assert await log.state(NS, "mail") == TargetState()
    await report()
    await kit.engine.remove_push(NS, "mail")
    assert await log.attempts(NS, "mail", None, b"", 10) == ([], None)


async def test_a_topic_with_a_target_is_not_forgotten_when_it_is_idle(kit: EngineKit) -> None:
    await kit.engine.start()
    await kit.engine.set_push(NS, "mail", PushTarget(url=URL))
    await kit.send("plain", "j")
    await kit.engine.cancel(NS, "plain", ["j"], forget=True)
    await kit.advance(3 * 3_600_000)
    with pytest.raises(NotFound):
        await kit.engine.topic(NS, "plain")
    assert (await kit.engine.topic(NS, "mail")).push is True
