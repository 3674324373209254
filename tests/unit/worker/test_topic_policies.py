"""A handler's policy is its topic's, whoever sends."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from dueline.client.errors import InvalidRequest, NotAllowed, ServerFault, Unavailable, UnknownOutcome
from dueline.client.sending import Policy
from dueline.engine.commands import TopicPatch
from dueline.engine.policy import AT_ONCE, Backoff, Ladder, TopicPolicy
from dueline.worker import Worker

from .kit import WITHIN_S, WorkerKit, worker_kit


async def topic_policy(kit: WorkerKit) -> TopicPolicy:
    return (await kit.engine.topic("default", "t")).policy


async def operator_sets(kit: WorkerKit, **fields: Any) -> None:
    await kit.engine.set_topic("default", "t", TopicPatch(TopicPolicy(**fields)))


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_started_workers_policy_holds_for_jobs_that_somebody_else_sends() -> None:
    async with worker_kit() as kit:
        attempts: list[int] = []

        @kit.worker.handles("t", max_attempts=3, retry="none", lease="1m", ttl="1d")
        async def handle(n: int) -> None:
            attempts.append(n)
            raise LookupError

        await kit.worker.start()
        await kit.queue.send("t", 1, id="a")
        job = await kit.ended("a")
        assert (job.state, job.max_attempts, job.retry, attempts) == ("dead", 3, "none", [1, 1, 1])
        names = frozenset({"lease_ms", "max_attempts", "retry", "ttl_ms"})
        assert await topic_policy(kit) == TopicPolicy(60_000, 3, 86_400_000, retry=AT_ONCE, by_worker=names)


async def test_a_newer_worker_replaces_what_a_worker_set_and_leaves_what_it_does_not_name() -> None:
    async with worker_kit() as kit:
        policies: list[dict[str, Any]] = [{"max_attempts": 3, "ttl": "1d"}, {"max_attempts": 5, "retry": ["1s"]}]
        for options in policies:
            worker = Worker(queue=kit.queue)
            worker.handles("t", **options)(_handle)
            await worker.start()
            await worker.stop(0)
        policy = await topic_policy(kit)
        assert (policy.max_attempts, policy.ttl_ms, policy.retry) == (5, 86_400_000, Ladder((1_000,)))


async def test_an_operators_value_wins_for_every_sender_and_the_difference_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with worker_kit() as kit:
        await operator_sets(kit, max_attempts=7, retry=Ladder((60_000,)), ttl_ms=86_400_000)
        handle = kit.worker.handles("t", max_attempts=3, retry=["2m"], ttl="24h", lease="5s")(_handle)
        await handle.asend(1, id="a", delay="1h")
        await kit.queue.send("t", 1, id="b", delay="1h")
        for id in "ab":
            job = await kit.queue.get("t", id)
            assert (job.max_attempts, job.retry) == (2, {"ladder": ["1m"]})
        assert (await topic_policy(kit)).by_worker == frozenset({"lease_ms"})
        assert warnings(caplog) == [
            "t: an operator set max_attempts to 7; the handler's 3 is not used",
            "t: an operator set retry to {'ladder': ['1m']}; the handler's {'ladder': ['2m']} is not used",
        ]


@pytest.mark.parametrize(
    ("operators", "handlers"),
    [
        (Ladder((60_000, 90_000)), ["60s", "1.5m"]),
        (Backoff(500, 2.0, 3_600_000), {"base_ms": 500}),
        (AT_ONCE, "none"),
    ],
)
async def test_the_same_value_in_other_words_is_no_difference(
    operators: Any, handlers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with worker_kit() as kit:
        await operator_sets(kit, retry=operators)
        kit.worker.handles("t", retry=handlers)(_handle)
        await kit.worker.start()
        assert warnings(caplog) == []


@pytest.mark.parametrize(
    "refusal",
    [NotAllowed("forbidden", "no right", status=403), InvalidRequest("unknown_field", "unknown", "set_by", status=400)],
    ids=["no right", "an older server"],
)
async def test_a_worker_that_may_not_set_the_policy_says_so_and_works_on(
    refusal: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with worker_kit() as kit:
        asked: list[str] = []

        async def refused(topic: str, policy: Policy) -> dict[str, Any]:
            asked.append(topic)
            raise refusal

        monkeypatch.setattr(kit.queue, "propose_policy", refused)
        handle = kit.worker.handles("t", max_attempts=3)(_handle)
        await kit.worker.start()
        for id in "ab":
            await handle.asend(1, id=id)
            assert (await kit.ended(id)).max_attempts == 3
        assert asked == ["t"]
        [warning] = warnings(caplog)
        assert warning.startswith("the policy of t could not be set; only jobs sent through its handler get it: ")


async def test_a_worker_whose_queue_is_away_starts_and_sets_the_policy_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with worker_kit() as kit:
        real, set_policy = kit.queue.propose_policy, asyncio.Event()
        answers = [Unavailable("store_down", "away"), UnknownOutcome("unknown_outcome", "?"), ServerFault("x", "x")]

        async def away(topic: str, policy: Policy) -> Any:
            if answers:
                raise answers.pop(0)
            shown = await real(topic, policy)
            set_policy.set()
            return shown

        monkeypatch.setattr(kit.queue, "propose_policy", away)
        monkeypatch.setattr("dueline.worker.topic_policies.REST_S", 0.01)
        monkeypatch.setattr("dueline.worker.worker.PROPOSAL_S", 0.0)
        kit.worker.handles("t", max_attempts=3)(_handle)
        await kit.worker.start()
        async with asyncio.timeout(WITHIN_S):
            await set_policy.wait()
        assert (await topic_policy(kit)).max_attempts == 3


async def test_a_send_while_the_queue_is_away_fails_and_the_next_one_sets_the_policy_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with worker_kit() as kit:
        real = kit.queue.propose_policy

        async def away(topic: str, policy: Policy) -> Any:
            monkeypatch.setattr(kit.queue, "propose_policy", real)
            raise Unavailable("store_down", "away")

        monkeypatch.setattr(kit.queue, "propose_policy", away)
        handle = kit.worker.handles("t", max_attempts=3)(_handle)
        with pytest.raises(Unavailable):
            await handle.asend(1, id="a", delay="1h")
        await handle.asend(1, id="a", delay="1h")
        assert (await kit.queue.get("t", "a")).max_attempts == 3
        assert (await topic_policy(kit)).max_attempts == 3


@pytest.mark.parametrize("error", [UnknownOutcome("unknown_outcome", "?"), ServerFault("internal", "broken")])
async def test_a_job_carries_the_policy_when_nobody_knows_whether_the_topic_has_it(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with worker_kit() as kit:

        async def lost(topic: str, policy: Policy) -> Any:
            raise error

        monkeypatch.setattr(kit.queue, "propose_policy", lost)
        handle = kit.worker.handles("t", max_attempts=3)(_handle)
        await handle.asend(1, id="a", delay="1h")
        assert (await kit.queue.get("t", "a")).max_attempts == 3


async def test_handlers_of_one_topic_complete_one_another_and_may_not_disagree() -> None:
    async with worker_kit() as kit:
        kit.worker.handles("t", max_attempts=3)(_handle)
        kit.worker.handles("t", retry="none")(_handle)
        with pytest.raises(ValueError, match="the handlers of t disagree: max_attempts is 3 and 5"):
            kit.worker.handles("t", max_attempts=5)(_handle)
        await kit.worker.start()
        policy = await topic_policy(kit)
        assert (policy.max_attempts, policy.retry) == (3, AT_ONCE)


@pytest.mark.parametrize("wrong", [{"lease": "soon"}, {"retry": "1m"}])
def test_a_policy_that_makes_no_sense_is_refused_where_it_is_written(wrong: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(wrong))):
        Worker().handles("t", **wrong)(_handle)


async def _handle(n: int) -> None:
    """Done."""
