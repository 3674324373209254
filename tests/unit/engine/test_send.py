"""A send from command to answer: ids, policies, conflicts, many at once, stale policies, unknown outcomes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from engine_kit import NS, EngineKit, RecordingStore, running

from dueline.engine.commands import Send, Sent, TopicPatch
from dueline.engine.errors import BodyTooLarge, DuelineError, IdExists, StoreDown, UnknownOutcome
from dueline.engine.headers import pack_headers, unpack_headers
from dueline.engine.ids import new_id, partition_of
from dueline.engine.job import BodyKind, Partition, State
from dueline.engine.policy import AT_ONCE, Backoff, JobPolicy, Ladder, TopicPolicy
from dueline.engine.store import OnConflict, SendItem, SendOutcome
from tests.kit.async_tests import async_fixture


def a_send(id: str | None = "a", body: bytes = b"1", **options: Any) -> Send:
    return Send(id, body, BodyKind.JSON, **options)


class FailingStore(RecordingStore):
    """Remembers every item; fails as configured."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.items: list[SendItem] = []
        self.errors: list[Exception] = []

    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        self.items.extend(items)
        if self.errors:
            raise self.errors.pop(0)
        return await super().send(partition, items, policy_version)


@async_fixture
async def kit() -> AsyncIterator[EngineKit]:
    async with running(store=FailingStore) as kit:
        yield kit


@pytest.fixture
def store(kit: EngineKit) -> FailingStore:
    assert isinstance(kit.store, FailingStore)
    return kit.store


def test_made_ids_are_32_hex_characters_in_the_order_of_their_making() -> None:
    ids = [new_id() for _ in range(2_000)]
    assert len(set(ids)) == 2_000
    assert all(len(id) == 32 and int(id, 16) and id[12] == "7" and id[16] in "89ab" for id in ids)
    assert [id[:12] for id in ids] == sorted(id[:12] for id in ids)


def test_partitions_share_the_ids_evenly() -> None:
    counts = [0] * 8
    for _ in range(8_000):
        counts[partition_of(new_id(), 8)] += 1
    assert min(counts) > 800
    assert partition_of("anything", 1) == 0


def test_headers_come_back_as_they_were_given() -> None:
    headers = (("Content-Type", "text/plain"), ("x-b", "é"))
    assert unpack_headers(pack_headers(headers)) == headers
    assert (pack_headers(()), unpack_headers(b"")) == (b"", ())


async def test_a_send_answers_with_what_was_stored(kit: EngineKit) -> None:
    sent = await kit.engine.send(NS, "mail", a_send("a", delay_ms=500))
    due_ms = kit.clock.now_ms + 500
    assert sent == Sent("a", "mail", "created", State.SCHEDULED, due_ms, sent.version)
    made = await kit.engine.send(NS, "mail", a_send(None))
    assert (await kit.engine.get(NS, "mail", made.id)).state is State.READY


async def test_the_policy_is_the_jobs_then_the_topics_then_the_default(kit: EngineKit, store: FailingStore) -> None:
    await kit.engine.send(NS, "plain", a_send("1"))
    topic = TopicPolicy(max_attempts=5, ttl_ms=9, retain_ms=7, retry=Ladder((1, 2)), on_conflict="keep")
    await kit.engine.set_topic(NS, "own", TopicPatch(topic))
    await kit.engine.send(NS, "own", a_send("2"))
    job = {"max_attempts": None, "ttl_ms": None, "retain_ms": 1, "retry": AT_ONCE, "lease_ms": 4}
    await kit.engine.send(NS, "own", a_send("3", on_conflict=OnConflict.REPLACE, keep_body=True, **job))
    await kit.engine.send(NS, "own", a_send("4", retry=Ladder((1,) * 12)))
    await kit.engine.send(NS, "plain", a_send("5", retry=Ladder((1,) * 12)))
    assert [(item.policy, item.ttl_ms, item.on_live, item.on_ended) for item in store.items] == [
        (JobPolicy(), None, OnConflict.REJECT, OnConflict.REJECT),
        (JobPolicy(max_attempts=3, retain_ms=7, retry=Ladder((1, 2))), 9, OnConflict.KEEP, OnConflict.KEEP),
        (
            JobPolicy(lease_ms=4, max_attempts=None, retain_ms=1, retry=AT_ONCE, keep_body=True),
            None,
            OnConflict.REPLACE,
            OnConflict.REPLACE,
        ),
        (JobPolicy(max_attempts=5, retain_ms=7, retry=Ladder((1,) * 12)), 9, OnConflict.KEEP, OnConflict.KEEP),
        (JobPolicy(max_attempts=13, retry=Ladder((1,) * 12)), None, OnConflict.REJECT, OnConflict.REJECT),
    ]


async def test_equal_policies_are_the_same_object(kit: EngineKit, store: FailingStore) -> None:
    for number in range(2):
        await kit.engine.send(NS, "mail", a_send(f"p{number}"))
        await kit.engine.send(NS, "mail", a_send(f"o{number}", max_attempts=3, retry=Backoff(10)))
    plain, own, plain_again, own_again = (item.policy for item in store.items)
    assert plain is plain_again
    assert own is own_again


OTHERS = [
    a_send(body=b"2"),
    a_send(delay_ms=0),
    a_send(at_ms=0),
    a_send(tags=("x",)),
    a_send(headers=(("x", "1"),)),
    a_send(lease_ms=None),
    a_send(ttl_ms=None),
    a_send(ttl_ms=10),
    a_send(max_attempts=10),
    a_send(retry=None),
    a_send(retry=Ladder((1, 2))),
    a_send(retry=Ladder((1, 3))),
    a_send(retry=Backoff(1)),
    a_send(retain_ms=60_000),
    Send("a", b"1", BodyKind.TEXT),
]


async def test_every_part_of_a_request_is_in_its_fingerprint(kit: EngineKit, store: FailingStore) -> None:
    for number, command in enumerate([a_send(), *OTHERS]):
        await kit.engine.send(NS, f"t{number}", command)
    assert len({item.fingerprint for item in store.items}) == len(OTHERS) + 1
    assert all(0 <= item.fingerprint < 1 << 64 for item in store.items)


async def test_neither_the_id_nor_the_conflict_rule_is_in_the_fingerprint(kit: EngineKit, store: FailingStore) -> None:
    for command in (a_send("a"), a_send("b"), a_send(None), a_send("c", on_conflict=OnConflict.KEEP)):
        await kit.engine.send(NS, "mail", command)
    assert len({item.fingerprint for item in store.items}) == 1


async def test_spread_moves_the_time_but_not_the_fingerprint(kit: EngineKit, store: FailingStore) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(spread_ms=1_000)))
    for number in range(50):
        await kit.engine.send(NS, "mail", a_send(f"d{number}", delay_ms=100))
    assert len({item.fingerprint for item in store.items}) == 1
    assert len({item.delay_ms for item in store.items}) > 5
    assert all(100 <= item.delay_ms <= 1_100 for item in store.items)
    await kit.engine.send(NS, "mail", a_send("past", at_ms=1))
    at_ms = store.items[-1].at_ms
    assert at_ms is not None
    assert 0 <= at_ms - kit.clock.now_ms <= 1_000


async def test_a_topic_may_lower_and_raise_the_limit_of_bodies(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "small", TopicPatch(TopicPolicy(max_body_bytes=3)))
    await kit.engine.set_topic(NS, "large", TopicPatch(TopicPolicy(max_body_bytes=1 << 20)))
    with pytest.raises(BodyTooLarge):
        await kit.engine.send(NS, "small", a_send(body=b"1234"))
    await kit.engine.send(NS, "large", a_send(body=b"x" * (1 << 20)))


async def test_many_sends_over_partitions_answer_in_order_each_for_itself(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "namespace_ids", TopicPatch(TopicPolicy(), partitions=4))
    await kit.send("namespace_ids", "job3")
    commands = [a_send(f"job{number}", str(number).encode()) for number in range(900)]
    results = await kit.engine.send_many(NS, "namespace_ids", commands)
    assert isinstance(results[3], IdExists)
    assert [result.id for result in results if isinstance(result, Sent)] == [
        f"job{number}" for number in range(900) if number != 3
    ]
    view = await kit.engine.topic(NS, "namespace_ids")
    assert (view.ready, view.partitions) == (900, 4)


async def test_no_sends_are_no_work(kit: EngineKit) -> None:
    assert await kit.engine.send_many(NS, "mail", []) == []
    assert await kit.engine.topics(NS, "", 10) == ([], None)


async def test_a_stale_policy_is_read_again_before_anything_is_stored(kit: EngineKit) -> None:
    await kit.send("mail", "before")
    setter = type(kit.engine)(kit.store, timer=kit.timer)  # another process on the same store
    await setter.set_topic(NS, "mail", TopicPatch(TopicPolicy(max_attempts=2)))
    kit.store.events = kit.engine
    assert await kit.engine.send(NS, "mail", a_send("one"))
    results = await kit.engine.send_many(NS, "mail", [a_send("two"), a_send("three")])
    assert all(isinstance(result, Sent) for result in results)
    jobs = [await kit.engine.get(NS, "mail", id) for id in ("before", "one", "two", "three")]
    assert [job.policy.max_attempts for job in jobs] == [20, 2, 2, 2]


async def test_many_sends_with_a_stale_policy_are_all_stored(kit: EngineKit) -> None:
    await kit.send("mail", "before")
    setter = type(kit.engine)(kit.store, timer=kit.timer)
    await setter.set_topic(NS, "mail", TopicPatch(TopicPolicy(max_attempts=2)))
    kit.store.events = kit.engine
    results = await kit.engine.send_many(NS, "mail", [a_send("two"), a_send("before", b"other")])
    assert [type(result) for result in results] == [Sent, IdExists]


async def test_a_partition_that_is_ahead_of_a_directory_which_lost_its_config_still_takes_sends(kit: EngineKit) -> None:
    await kit.engine.set_topic(NS, "mail", TopicPatch(TopicPolicy(max_attempts=2)))
    fresh = type(kit.engine)(kit.store, timer=kit.timer)
    kit.store.directory._topics.clear()
    assert (await fresh.send(NS, "mail", a_send())).result == "created"


async def test_an_unknown_outcome_names_the_made_id_of_its_own_send(kit: EngineKit, store: FailingStore) -> None:
    shared = UnknownOutcome()
    store.errors = [shared, shared]
    seen: list[str | None] = []
    for _ in range(2):
        with pytest.raises(UnknownOutcome) as unknown:
            await kit.engine.send(NS, "mail", a_send(None))
        seen.append(unknown.value.id)
    assert seen == [item.id for item in store.items]
    assert shared.id is None


async def test_a_failed_batch_is_the_answer_of_each_of_its_jobs(kit: EngineKit, store: FailingStore) -> None:
    store.errors = [UnknownOutcome()]
    results = await kit.engine.send_many(NS, "mail", [a_send("a"), a_send("b")])
    assert [(type(result), getattr(result, "id", None)) for result in results] == [
        (UnknownOutcome, "a"),
        (UnknownOutcome, "b"),
    ]


async def test_a_send_whose_topic_could_not_be_registered_was_certainly_not_done(kit: EngineKit) -> None:
    async def lost(topics: object) -> None:
        raise UnknownOutcome

    kit.store.directory.register = lost  # type: ignore[method-assign]
    with pytest.raises(DuelineError) as refused:
        await kit.engine.send(NS, "mail", a_send())
    assert (type(refused.value), refused.value.done) == (StoreDown, False)


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
async def test_a_policy_that_is_read_while_a_topic_is_registered_counts_for_the_job_on_its_way(
    many: bool, kit: EngineKit
) -> None:
    """The job was made by the old policy: the partition refuses its version, and it is made anew."""

    await kit.send("t", "a")
    topic = kit.engine._topics.known(NS, "t")
    assert topic is not None
    register = kit.store.directory.register

    async def registered_meanwhile(topics: Sequence[tuple[str, str]]) -> None:
        kit.store.directory.register = register  # type: ignore[method-assign]
        await register(topics)
        await kit.engine.set_topic(NS, "t", TopicPatch(TopicPolicy(max_attempts=3)))

    topic.registered_until_s = 0.0
    kit.store.directory.register = registered_meanwhile  # type: ignore[method-assign]
    if many:
        await kit.engine.send_many(NS, "t", [a_send("x")])
    else:
        await kit.engine.send(NS, "t", a_send("x"))
    assert (await kit.engine.get(NS, "t", "x")).policy.max_attempts == 3
