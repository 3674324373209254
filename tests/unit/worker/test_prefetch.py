"""Jobs that a worker pulls ahead, and acks that wait for others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dueline.api.answers import Outcome
from dueline.client.errors import Unavailable
from dueline.worker import Worker
from dueline.worker.prefetch import AHEAD_S, Prefetch
from tests.kit.waiting import turns

from .kit import WITHIN_S, WorkerKit, worker_kit


def test_nothing_is_pulled_ahead_before_a_job_has_ended() -> None:
    assert Prefetch(100, 10).ahead == 0


@pytest.mark.parametrize(("spent_s", "ahead"), [(0.0, 20), (AHEAD_S / 10, 10), (AHEAD_S, 1), (AHEAD_S * 2, 0)])
def test_only_jobs_that_begin_within_a_moment_are_pulled_ahead(spent_s: float, ahead: int) -> None:
    prefetch = Prefetch(20, 1)
    prefetch.ended(spent_s)
    assert prefetch.ahead == ahead


def test_a_slow_job_counts_at_once_and_quick_ones_gradually() -> None:
    prefetch = Prefetch(20, 1)
    prefetch.ended(0.0001)
    assert prefetch.ahead == 20
    prefetch.ended(2 * AHEAD_S)
    assert prefetch.ahead == 0
    prefetch.ended(0.0001)
    assert prefetch.ahead == 0
    for _ in range(100):
        prefetch.ended(0.0001)
    assert prefetch.ahead == 20


def test_a_stuck_lane_pulls_nothing_ahead_and_off_is_off() -> None:
    prefetch, off = Prefetch(20, 1), Prefetch(0, 1)
    for one in (prefetch, off):
        one.ended(0.0)
    assert (prefetch.ahead, off.ahead) == (20, 0)
    prefetch.stuck()
    assert prefetch.ahead == 0


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"prefetch": -1}, "prefetch: must be 0 to 500, is -1"),
        ({"prefetch": 501}, "prefetch: must be 0 to 500, is 501"),
        ({"ack_within": "4s"}, "ack_within: must be at most a tenth of the lease"),
    ],
)
def test_bounds_of_the_settings(options: Any, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Worker(**options)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine, a test may take longer than the second after which a job is given back."""
    monkeypatch.setattr("dueline.worker.lane.PATIENCE_S", 10 * WITHIN_S)


async def _with_a_job_that_lasts(kit: WorkerKit, count: int) -> tuple[list[int], asyncio.Event]:
    """A worker with one place that has run a quick job, runs another one until the event is set, and has pulled the
    rest ahead."""
    ran: list[int] = []
    begun, end = asyncio.Event(), asyncio.Event()

    @kit.worker.handles("t", concurrency=1)
    async def handle(n: int) -> None:
        ran.append(n)
        if n == 1:
            begun.set()
            await end.wait()

    for n in range(count):
        await handle.asend(n, id=f"a{n}")
    await kit.worker.start()
    async with asyncio.timeout(WITHIN_S):
        await begun.wait()
        while (await kit.queue.get("t", f"a{count - 1}")).state != "leased":
            await kit.queue.changed()
    await turns(5)
    return ran, end


@pytest.mark.usefixtures("patient")
async def test_jobs_are_pulled_ahead_and_run_in_order() -> None:
    async with worker_kit(prefetch=20) as kit:
        ran, end = await _with_a_job_that_lasts(kit, 6)
        assert ran == [0, 1]
        pulls = len(kit.queue.pulls) + len(kit.queue.joined)
        end.set()
        for n in range(6):
            assert (await kit.ended(f"a{n}")).attempts == 1
        assert ran == [0, 1, 2, 3, 4, 5]
        assert pulls <= 4, "not a call per job"


@pytest.mark.usefixtures("patient")
async def test_a_job_that_becomes_due_while_all_places_are_busy_is_pulled_ahead() -> None:
    async with worker_kit(prefetch=20) as kit:
        ran, end = await _with_a_job_that_lasts(kit, 2)
        await kit.queue.send("t", 2, id="later")
        await kit.until("later", "leased")
        end.set()
        assert (await kit.ended("later")).attempts == 1
        assert ran == [0, 1, 2]


@pytest.mark.usefixtures("patient")
async def test_a_stopping_worker_gives_back_what_it_pulled_ahead_without_counting_it() -> None:
    async with worker_kit(prefetch=20) as kit:
        ran, end = await _with_a_job_that_lasts(kit, 6)
        stopping = asyncio.ensure_future(kit.worker.stop("5s"))
        for n in range(2, 6):
            job = await kit.until(f"a{n}", "ready")
            assert job.attempts == 0
        end.set()
        await stopping
        assert ran == [0, 1]
        assert (await kit.queue.get("t", "a1")).state == "done"


@pytest.mark.usefixtures("patient")
async def test_what_was_pulled_ahead_is_given_back_one_by_one_if_the_common_call_fails() -> None:
    async with worker_kit(prefetch=20) as kit:
        _, end = await _with_a_job_that_lasts(kit, 4)
        release, failures = kit.queue.release, list[int]()

        async def failing(jobs: Sequence[Any], *args: Any) -> list[Outcome]:
            if not failures:
                failures.append(len(jobs))
                raise Unavailable("store_down", "away")
            return await release(jobs, *args)

        kit.queue.release = failing  # type: ignore[method-assign]
        stopping = asyncio.ensure_future(kit.worker.stop("5s"))
        for n in range(2, 4):
            assert (await kit.until(f"a{n}", "ready")).attempts == 0
        assert failures == [2]
        end.set()
        await stopping


async def test_a_job_that_waits_too_long_for_a_place_is_given_back_and_none_is_pulled_ahead_until_one_ends() -> None:
    async with worker_kit(prefetch=20) as kit:
        ran, end = await _with_a_job_that_lasts(kit, 4)
        for n in (2, 3):
            assert (await kit.until(f"a{n}", "ready")).attempts == 0
        pulls = len(kit.queue.pulls), len(kit.queue.joined)
        await turns(20)
        assert (len(kit.queue.pulls), len(kit.queue.joined)) == pulls
        end.set()
        for n in range(4):
            assert (await kit.ended(f"a{n}")).attempts == 1
        assert ran == [0, 1, 2, 3]


@pytest.mark.usefixtures("patient")
async def test_leases_of_jobs_that_wait_for_a_place_are_renewed() -> None:
    async with worker_kit(prefetch=20, lease="1s") as kit:
        _, end = await _with_a_job_that_lasts(kit, 4)
        renewed: set[str] = set()
        extend = kit.queue.extend

        async def noted(jobs: Sequence[Any], lease_ms: int) -> list[Outcome]:
            renewed.update(job.id for job in jobs)
            return await extend(jobs, lease_ms)

        kit.queue.extend = noted  # type: ignore[method-assign]
        async with asyncio.timeout(WITHIN_S):
            while not renewed:
                await kit.queue.changed()
        assert renewed == {"a1", "a2", "a3"}
        end.set()


@pytest.mark.usefixtures("patient")
async def test_a_job_that_was_cancelled_while_it_waited_for_a_place_is_not_run() -> None:
    async with worker_kit(prefetch=20, lease="1s") as kit:
        ran, end = await _with_a_job_that_lasts(kit, 3)
        await kit.queue.cancel("t", "a2")
        extended = kit.queue.extended
        async with asyncio.timeout(WITHIN_S):
            while kit.queue.extended == extended:  # the renewal that notices it
                await kit.queue.changed()
        await turns(5)
        end.set()
        await kit.ended("a1")
        await kit.worker.stop("5s")
        assert ran == [0, 1]


async def test_acks_wait_for_others_while_the_worker_has_jobs_and_leave_at_once_otherwise() -> None:
    async with worker_kit(ack_within="1m", lease="10m", prefetch=0) as kit:
        places, end = asyncio.Semaphore(0), asyncio.Event()

        @kit.worker.handles("t")
        async def handle(n: int) -> None:
            places.release()
            if n:
                await end.wait()

        @kit.worker.handles("other")
        async def other(n: int) -> None:
            places.release()

        await kit.worker.start()
        await handle.asend(1, id="long")
        async with asyncio.timeout(WITHIN_S):
            await places.acquire()
            for n in range(3):
                await other.asend(n, id=f"b{n}")
                await places.acquire()
        await turns(20)
        assert kit.queue.acks == [], "they wait for the job that still runs"
        assert (await kit.queue.get("other", "b0")).state == "leased", "done means acked"
        end.set()
        assert (await kit.ended("long")).state == "done"
        assert kit.queue.acks == [4]
        await handle.asend(0, id="alone")
        assert (await kit.ended("alone")).state == "done"
        assert kit.queue.acks == [4, 1]


async def test_a_stopping_worker_sends_the_acks_that_wait() -> None:
    async with worker_kit(ack_within="1m", lease="10m", prefetch=0) as kit:
        begun, ran, end = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @kit.worker.handles("t")
        async def handle(n: int) -> None:
            (begun if n else ran).set()
            if n:
                await end.wait()

        await kit.worker.start()
        await handle.asend(1, id="long")
        async with asyncio.timeout(WITHIN_S):
            await begun.wait()
            await handle.asend(0, id="quick")
            await ran.wait()
        await turns(5)
        stopping = asyncio.ensure_future(kit.worker.stop("5s"))
        assert (await kit.ended("quick")).state == "done"
        end.set()
        await stopping
        assert (await kit.queue.get("t", "long")).state == "done"
