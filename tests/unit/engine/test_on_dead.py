"""Dead jobs are sent on where their topic says so: once, whoever saw the death, and never lost on the way."""

from __future__ import annotations

from typing import Any

import pytest
from engine_kit import NS, EngineKit, RecordingStore, VirtualTimer, ids, running, settled
from msgspec.structs import replace

from dueline.engine.commands import MergeInto, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import InvalidField, StoreDown
from dueline.engine.forwarder import LOOKS, ROUND_S
from dueline.engine.headers import unpack_headers
from dueline.engine.job import BodyKind, Job, LeasedJob, Partition, Reason, State
from dueline.engine.on_dead import MAX_HOPS, ON_DEAD_TARGET, ON_DEAD_TOPIC, REMEMBER_MS
from dueline.engine.policy import ON_DEAD_KEEP_MS, OnDead, TopicPolicy
from dueline.engine.store import Outcome, Page, Purge, Query, Ref, Release

ROUND_MS = int(ROUND_S * 1000)


async def route(kit: EngineKit, topic: str, *, to: str | None = None, url: str | None = None) -> None:
    """Say where the dead of a topic go."""
    policy = TopicPolicy(on_dead=OnDead(to, url))
    await kit.engine.set_topic(NS, topic, TopicPatch(policy))
    await settled()


async def reject(kit: EngineKit, topic: str = "t", **words: Any) -> LeasedJob:
    """Let the first job of a topic die now."""
    (leased,) = await kit.pull(topic)
    release = Release(leased.id, leased.lease, **{"dead": Reason.REJECTED, "error": "no such order", **words})
    await kit.engine.release(NS, topic, [release])
    await settled()
    return leased


async def jobs(kit: EngineKit, topic: str, **query: Any) -> list[Job]:
    page = await kit.store.list(Partition(NS, topic), Query(limit=500, body=True, **query))
    return page.jobs


def headers(job: Job) -> dict[str, str]:
    return dict(unpack_headers(job.headers))


def died(topic: str, id: str, reason: str, error: str | None = None, hops: int = 1) -> dict[str, str]:
    headers = {"Dueline-Dead-Topic": topic, "Dueline-Dead-Id": id, "Dueline-Dead-Hops": str(hops)}
    headers["Dueline-Dead-Reason"] = reason
    return headers if error is None else {**headers, "Dueline-Dead-Error": error}


async def test_a_rejected_job_goes_to_the_other_topic_and_is_gone_from_its_own(kit: EngineKit) -> None:
    await kit.engine.start()
    await route(kit, "t", to="x")
    command = Send("a", b'{"n": 1}', BodyKind.JSON, tags=("red",), headers=(("X-Trace", "7"),))
    await kit.engine.send(NS, "t", command)
    await reject(kit, error="no such\norder")
    (sent,) = await jobs(kit, "x")
    assert await jobs(kit, "t") == []
    assert (sent.body, sent.kind, sent.tags, sent.state) == (b'{"n": 1}', BodyKind.JSON, ("red",), State.READY)
    assert headers(sent) == {"X-Trace": "7", **died("t", "a", "rejected", "no such order")}


async def test_a_job_without_attempts_left_is_sent_on_also_when_its_consumer_just_vanished(kit: EngineKit) -> None:
    await kit.engine.start()
    await route(kit, "t", to="x")
    await kit.send("t", "released", max_attempts=1)
    await reject(kit, dead=None, error="out of paper")
    await kit.send("t", "left", max_attempts=1)
    assert ids(await kit.pull("t", lease_ms=1000)) == ["left"]
    await kit.advance(30_000)
    assert [headers(job) for job in await jobs(kit, "x")] == [
        died("t", "released", "exhausted", "out of paper"),
        died("t", "left", "exhausted"),
    ]
    assert await jobs(kit, "t") == []


async def test_an_expired_job_is_sent_on_without_anybody_asking_for_it(kit: EngineKit) -> None:
    await kit.engine.start()
    await route(kit, "t", to="x")
    await kit.send("t", "a", ttl_ms=5000)
    await kit.advance(60_000)
    assert [headers(job) for job in await jobs(kit, "x")] == [died("t", "a", "expired")]


async def test_jobs_that_were_dead_before_are_sent_on_when_the_policy_is_set(kit: EngineKit) -> None:
    await kit.engine.start()
    for id in "abc":
        await kit.send("t", id)
        await reject(kit)
    assert len(await jobs(kit, "t", state=State.DEAD)) == 3
    await route(kit, "t", to="x")
    assert [headers(job)["Dueline-Dead-Id"] for job in await jobs(kit, "x")] == ["a", "b", "c"]
    assert await jobs(kit, "t") == []


async def test_a_death_whose_process_died_is_found_by_another_one_within_a_round(kit: EngineKit) -> None:
    other = Engine(kit.store, timer=kit.timer)
    await other.start()
    await settled()
    await route(kit, "t", to="x")  # `kit.engine` never started: it sees the death and does nothing about it
    await kit.advance(ROUND_MS)
    await kit.send("t", "a")
    await reject(kit)
    assert await jobs(kit, "x") == []
    await kit.advance(ROUND_MS)
    assert len(await jobs(kit, "x")) == 1
    await other.stop()


async def test_a_process_finds_at_its_start_what_others_left(kit: EngineKit) -> None:
    await route(kit, "t", to="x")
    await kit.send("t", "a")
    await reject(kit)
    assert await jobs(kit, "x") == []
    await kit.engine.start()
    await settled()
    assert len(await jobs(kit, "x")) == 1


class ForgetfulStore(RecordingStore):
    """A store that loses the connection before some of the purges."""

    lost_purges = 0
    lists = 0

    async def purge(self, partition: Partition, purge: Purge) -> list[tuple[str, Outcome]]:
        if self.lost_purges:
            self.lost_purges -= 1
            raise StoreDown
        return await super().purge(partition, purge)

    async def list(self, partition: Partition, query: Query) -> Page:
        self.lists += 1
        return await super().list(partition, query)


async def test_a_crash_between_the_send_and_the_purge_doubles_nothing() -> None:
    async with running(store=ForgetfulStore) as kit:
        store: Any = kit.store
        await kit.engine.start()
        await route(kit, "t", to="x")
        store.lost_purges = 1
        await kit.send("t", "a")
        await reject(kit)
        assert (len(await jobs(kit, "x")), len(await jobs(kit, "t"))) == (1, 1)
        (leased,) = await kit.pull("x")
        await kit.engine.ack(NS, "x", [Ref(leased.id, leased.lease)])
        await kit.advance(REMEMBER_MS // 2)
        assert await jobs(kit, "t") == []
        assert [job.state for job in await jobs(kit, "x")] == [State.DONE]


async def test_two_processes_that_see_the_same_death_send_it_on_once(kit: EngineKit) -> None:
    other = Engine(kit.store, timer=kit.timer)
    await route(kit, "t", to="x")
    for number in range(50):
        await kit.send("t", f"j{number}")
        await reject(kit)
    await kit.engine.start()
    await other.start()
    await settled()
    await kit.advance(1000)
    assert len(await jobs(kit, "x")) == 50
    assert await jobs(kit, "t") == []
    await other.stop()


async def test_each_death_of_a_revived_job_is_another_one(kit: EngineKit) -> None:
    await kit.send("t", "a")
    await reject(kit)
    await route(kit, "t", to="x")
    await kit.engine.start()
    await settled()
    await kit.send("t", "a")
    await kit.advance(1000)
    await reject(kit)
    assert len({job.id for job in await jobs(kit, "x")}) == 2


async def test_a_chain_tells_the_last_death_and_where_the_job_came_from(kit: EngineKit) -> None:
    await kit.engine.start()
    await route(kit, "t", to="x")
    await route(kit, "x", to="y")
    await kit.send("t", "a")
    await reject(kit)
    second = await reject(kit, "x", error="still not")
    (sent,) = await jobs(kit, "y")
    assert headers(sent) == {
        **died("x", second.id, "rejected", "still not", hops=2),
        "Dueline-Dead-First-Topic": "t",
        "Dueline-Dead-First-Id": "a",
    }


async def test_a_ring_ends_and_its_job_is_kept_dead(kit: EngineKit) -> None:
    await kit.engine.start()
    await route(kit, "t", to="x")
    await route(kit, "x", to="t")
    await kit.send("t", "a")
    for hop in range(MAX_HOPS + 1):
        await reject(kit, "tx"[hop % 2])
    await kit.advance(3 * ROUND_MS)
    left = await jobs(kit, "t") + await jobs(kit, "x")
    assert [(job.topic, job.state, headers(job)["Dueline-Dead-Hops"]) for job in left] == [
        ("x", State.DEAD, str(MAX_HOPS))
    ]


async def test_what_the_other_topic_does_not_take_stays_and_holds_up_nothing() -> None:
    async with running(store=ForgetfulStore) as kit:
        store: Any = kit.store
        await kit.engine.start()
        await kit.engine.set_topic(NS, "x", TopicPatch(TopicPolicy(max_body_bytes=10)))
        await route(kit, "t", to="x")
        await kit.engine.send(NS, "t", Send("large", b"x" * 11, BodyKind.BYTES))
        await reject(kit)
        await kit.send("t", "small")
        await reject(kit)
        await kit.advance(ROUND_MS)
        assert [job.id for job in await jobs(kit, "t")] == ["large"]
        assert [headers(job)["Dueline-Dead-Id"] for job in await jobs(kit, "x")] == ["small"]
        store.lists = 0
        for number in range(20):
            await kit.send("t", f"j{number}")
            await reject(kit)
        assert store.lists <= 2  # deaths beside a job that cannot go on are looked at once a round
        await kit.advance(2 * ROUND_MS)
        assert len(await jobs(kit, "x")) == 21


async def test_a_job_whose_body_is_broken_stays(kit: EngineKit) -> None:
    await kit.engine.start()
    await route(kit, "t", to="x")
    await kit.send("t", "a")
    await reject(kit, dead=Reason.CORRUPT)
    await kit.advance(ROUND_MS)
    assert (len(await jobs(kit, "t")), await jobs(kit, "x")) == (1, [])


async def test_as_many_headers_as_a_job_may_have_leave_room_for_ours(kit: EngineKit) -> None:
    await kit.engine.start()
    await route(kit, "t", to="x")
    own = {f"x-{number}": "y" * 240 for number in range(32)}
    own |= {"dueline-dead-topic": "a lie", "x-0": "z"}
    own.pop("x-31")
    await kit.engine.send(NS, "t", Send("a", b"1", BodyKind.JSON, headers=tuple(own.items())))
    await reject(kit, error="e" * 2000)
    (sent,) = await jobs(kit, "x")
    del own["dueline-dead-topic"]
    assert headers(sent) == {**own, **died("t", "a", "rejected", "e" * 400)}


async def test_a_group_travels_as_one_json_array(kit: EngineKit) -> None:
    await kit.engine.start()
    await route(kit, "t", to="x")
    for body, kind in ((b'{"n": 1}', BodyKind.JSON), (b"two", BodyKind.TEXT)):
        await kit.engine.send(NS, "t", Send(None, body, kind, merge=MergeInto("k", quiet_ms=0)))
    await kit.advance(1)
    await reject(kit)
    (sent,) = await jobs(kit, "x")
    assert (sent.body, sent.kind) == (b'[{"n": 1},"two"]', BodyKind.JSON)


async def test_to_a_url_it_goes_as_a_job_that_carries_it(kit: EngineKit) -> None:
    await kit.engine.start()
    await route(kit, "t", url="https://example.com/dead")
    await kit.send("t", "a", headers=(("X-Trace", "7"),))
    await reject(kit)
    (sent,) = await jobs(kit, ON_DEAD_TOPIC)
    assert headers(sent) == {
        "X-Trace": "7",
        **died("t", "a", "rejected", "no such order"),
        "Dueline-Url": "https://example.com/dead",
        "Dueline-Method": "POST",
    }
    assert sent.policy.retry == ON_DEAD_TARGET.retry
    assert await kit.engine.push_target(NS, ON_DEAD_TOPIC) == ON_DEAD_TARGET
    assert await jobs(kit, "t") == []


async def test_the_carrying_topic_keeps_what_was_tuned(kit: EngineKit) -> None:
    await kit.engine.start()
    tuned = replace(ON_DEAD_TARGET, concurrency=3)
    await kit.engine.set_push(NS, ON_DEAD_TOPIC, tuned)
    await route(kit, "t", url="https://example.com/dead")
    await kit.send("t", "a")
    await reject(kit)
    assert await kit.engine.push_target(NS, ON_DEAD_TOPIC) == tuned
    assert len(await jobs(kit, ON_DEAD_TOPIC)) == 1


async def test_where_no_call_succeeds_the_url_does_not_follow_to_the_next_topic(kit: EngineKit) -> None:
    await kit.engine.start()
    await route(kit, "t", url="https://example.com/dead")
    await route(kit, ON_DEAD_TOPIC, to="y")
    await kit.send("t", "a")
    await reject(kit)
    await reject(kit, ON_DEAD_TOPIC)
    (sent,) = await jobs(kit, "y")
    assert set(headers(sent)) & {"Dueline-Url", "Dueline-Method"} == set()


async def test_an_idle_process_looks_at_few_topics_a_round() -> None:
    async with running(store=ForgetfulStore) as kit:
        store: Any = kit.store
        await kit.engine.start()
        for number in range(5 * LOOKS):
            await route(kit, f"t{number}", to="x")
        await kit.advance(2 * ROUND_MS)
        store.lists = 0
        await kit.advance(4 * ROUND_MS)
        assert 0 < store.lists <= 5 * LOOKS


async def test_a_store_that_is_down_is_asked_again_after_a_pause() -> None:
    async with running(store=ForgetfulStore) as kit:
        store: Any = kit.store
        await kit.engine.start()
        await route(kit, "t", to="x")
        await kit.send("t", "a")
        store.lost_purges, store.lists = 3, 0
        await reject(kit)
        await kit.send("t", "b")
        await reject(kit)
        assert store.lists == 1  # also when there is news
        await kit.advance(10_000)
        assert (store.lost_purges, await jobs(kit, "t")) == (0, [])


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (TopicPolicy(on_dead=OnDead()), "on_dead"),
        (TopicPolicy(on_dead=OnDead("x", "https://example.com")), "on_dead"),
        (TopicPolicy(on_dead=OnDead("t")), "on_dead.topic"),
        (TopicPolicy(on_dead=OnDead(ON_DEAD_TOPIC)), "on_dead.topic"),
        (TopicPolicy(on_dead=OnDead("")), "on_dead.topic"),
        (TopicPolicy(on_dead=OnDead(url="mailto:a@example.com")), "on_dead.url"),
        (TopicPolicy(on_dead=OnDead("x"), dead_retain_ms=ON_DEAD_KEEP_MS - 1), "dead_retain_ms"),
    ],
)
async def test_what_cannot_work_is_refused(policy: TopicPolicy, field: str, kit: EngineKit) -> None:
    with pytest.raises(InvalidField) as refused:
        await kit.engine.set_topic(NS, "t", TopicPatch(policy))
    assert refused.value.field == field
    assert await kit.store.directory.topic(NS, "t") is None


async def test_a_protocol_that_forgets_its_dead_at_once_does_not_forget_those_that_go_on(kit: EngineKit) -> None:
    await route(kit, "t", to="x")
    await kit.send("t", "a", dead_retain_ms=0)
    await reject(kit)
    await kit.advance(ON_DEAD_KEEP_MS - 1)
    assert [job.id for job in await jobs(kit, "t")] == ["a"]


async def test_a_deaf_timer_is_not_left_behind(kit: EngineKit) -> None:
    timer: VirtualTimer = kit.timer
    await kit.engine.start()
    await settled()
    await kit.engine.stop()
    await kit.engine.stop()
    assert timer.sleeping == []
