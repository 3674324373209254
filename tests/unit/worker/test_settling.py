"""What is said to the queue about a job, and what is not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dueline.api.answers import LeasedJobs, Outcome
from dueline.client.errors import DuelineApiError, InvalidRequest, Unavailable
from dueline.worker import CallNext, Context, Ending, Retry, Snooze, Verdict

from .kit import WITHIN_S, worker_kit

TOO_FAR = "delay_ms must be 0 to 316224000000, is"


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        (Retry("later", delay="4000d"), f"later\nthe handler's retry was refused: {TOO_FAR} 345600000000"),
        (Snooze("4000d"), f"the handler's snooze was refused: {TOO_FAR} 345600000000"),
        (Verdict(Ending.FAILED, -5), "the handler's retry was refused: delay_ms Expected `int` >= 0"),
    ],
)
async def test_an_ending_that_the_queue_refuses_is_a_failure_that_says_so(ending: Any, error: str) -> None:
    async def spoken(context: Context, call_next: CallNext) -> Verdict | None:
        return ending if isinstance(ending, Verdict) else await call_next(context)

    async with worker_kit(middleware=[spoken]) as kit:

        @kit.worker.handles("t", retry=["1h"])
        async def handle(n: int) -> Any:
            return ending

        await kit.worker.start()
        await handle.asend(1, id="a")
        job = await kit.until("a", "scheduled", "dead")
        assert (job.state, job.attempts) == ("scheduled", 1)
        assert job.last_error == error
        assert 3_500_000 < job.due_at_ms - job.created_at_ms < 3_700_000, "by the retry policy"


async def test_a_text_that_no_queue_takes_is_made_one_that_it_does() -> None:
    async with worker_kit() as kit:

        @kit.worker.handles("t")
        async def handle(n: int) -> None:
            raise Snooze("1h", "half a \ud800 character" * 200)

        await kit.worker.start()
        await handle.asend(1, id="a")
        job = await kit.until("a", "scheduled", "dead")
        assert (job.state, job.attempts) == ("scheduled", 0)
        assert len(job.last_error or "") == 1024
        assert (job.last_error or "").endswith("half a ? character")


@pytest.mark.parametrize("ending", [None, Retry(delay="1h"), asyncio.CancelledError()])
async def test_nothing_is_said_of_a_job_whose_lease_is_lost(
    ending: BaseException | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with worker_kit(lease="1s") as kit:
        running, ended = asyncio.Event(), asyncio.Event()
        said: list[Any] = []

        async def heard(*args: Any) -> list[Outcome]:
            said.append(args)
            return []

        kit.queue.ack = kit.queue.release = heard  # type: ignore[method-assign,assignment]

        @kit.worker.handles("t")
        async def handle(n: int) -> None:
            running.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.set()
                if ending is not None:
                    raise ending from None

        await kit.worker.start()
        await handle.asend(1, id="a")
        async with asyncio.timeout(WITHIN_S):
            await running.wait()
            await handle.acancel("a")
            await ended.wait()
        await kit.worker.stop("5s")
        assert said == []
        assert "t a: the lease is lost, the outcome is dropped" in caplog.text


async def test_a_full_lane_pulls_and_acks_in_one_call() -> None:
    async with worker_kit(prefetch=0) as kit:

        @kit.worker.handles("t", concurrency=1)
        async def handle(n: int) -> None:
            pass

        for n in range(4):
            await handle.asend(n, id=f"a{n}")
        await kit.worker.start()
        for n in range(4):
            assert (await kit.ended(f"a{n}")).state == "done"
        assert kit.queue.joined == [["a0"], ["a1"], ["a2"], ["a3"]]
        assert kit.queue.acks == []


@pytest.mark.parametrize("error", [InvalidRequest("unknown_field", "ack"), Unavailable("store_down", "away")])
async def test_acks_whose_pull_fails_are_sent_alone(error: DuelineApiError) -> None:
    async with worker_kit() as kit:

        async def refused(*_: object) -> LeasedJobs:
            kit.queue.joined.append([])
            raise error

        kit.queue.ack_and_pull = refused  # type: ignore[method-assign]

        @kit.worker.handles("t", concurrency=1)
        async def handle(n: int) -> None:
            pass

        for n in range(2):
            await handle.asend(n, id=f"a{n}")
        await kit.worker.start()
        for n in range(2):
            assert (await kit.ended(f"a{n}")).state == "done"
        assert sum(kit.queue.acks) == 2
        if isinstance(error, InvalidRequest):
            assert kit.queue.joined == [[]], "an older server is not asked twice"


async def test_a_worker_that_stops_acks_what_its_pull_took_along() -> None:
    async with worker_kit() as kit:
        asked = asyncio.Event()

        async def deaf(*_: object) -> LeasedJobs:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        kit.queue.ack_and_pull = deaf  # type: ignore[method-assign]

        @kit.worker.handles("t", concurrency=1)
        async def handle(n: int) -> None:
            pass

        await handle.asend(1, id="a")
        await kit.worker.start()
        async with asyncio.timeout(WITHIN_S):
            await asked.wait()
        await kit.worker.stop("5s")
        assert (await kit.queue.get("t", "a")).state == "done"
