"""Calls that block, in threads in which they must not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dueline.api.answers import Outcome
from dueline.testing.flaky import Trouble
from dueline.testing.queue import VirtualQueue
from dueline.worker import Context, Worker

from .kit import worker_kit


class Order(msgspec.Struct):
    order: int


async def test_every_blocking_call_of_a_handle_names_its_own_awaitable_form() -> None:
    async with worker_kit() as kit:

        @kit.worker.handles("t")
        async def handle(order: Order) -> None: ...

        blocking: dict[str, Callable[[], object]] = {
            "asend": lambda: handle.send({"order": 1}),
            "aat": lambda: handle.at("2030-01-01T08:00:00Z", {"order": 1}),
            "acancel": lambda: handle.cancel("a"),
            "areschedule": lambda: handle.reschedule("a", delay="1h"),
        }
        for instead, call in blocking.items():
            with pytest.raises(RuntimeError, match=f"`await {instead}"):
                call()


async def test_a_blocking_extend_in_a_coroutine_is_refused_and_names_the_other_one_wherever_it_runs() -> None:
    async with worker_kit() as kit:

        async def extends(order: Order, context: Context) -> None:
            context.extend("10m")

        in_the_loop = kit.worker.handles("t", max_attempts=1)(extends)
        in_a_thread = kit.worker.handles("u", mode="thread", max_attempts=1)(extends)
        await kit.worker.start()
        for handle in (in_the_loop, in_a_thread):
            await handle.asend({"order": 1}, id="a")
            job = await kit.ended("a", handle.topic)
            assert (job.state, job.attempts) == ("dead", 1)
            assert "use `await context.aextend(...)`" in (job.last_error or "")


async def test_a_coroutine_that_runs_in_a_thread_extends_its_lease_in_the_loop_of_the_worker() -> None:
    async with worker_kit() as kit:
        loops: list[asyncio.AbstractEventLoop] = []
        longer: list[bool] = []
        extended = kit.queue.extend

        async def watched(jobs: Any, lease_ms: int) -> list[Outcome]:
            loops.append(asyncio.get_running_loop())
            return await extended(jobs, lease_ms)

        kit.queue.extend = watched  # type: ignore[method-assign]

        @kit.worker.handles("t", mode="thread", max_attempts=1)
        async def handle(order: Order, context: Context) -> None:
            before = context.lease_until_ms
            await context.aextend("10m")
            longer.append(context.lease_until_ms - before > 500_000)

        await kit.worker.start()
        await handle.asend({"order": 1}, id="a")
        assert (await kit.ended("a")).state == "done"
        assert (loops, longer) == ([asyncio.get_running_loop()], [True])


def test_in_the_time_of_a_test_a_coroutine_gets_the_same_error_and_a_function_waits_for_a_late_store() -> None:
    worker = Worker("http://127.0.0.1:1")

    @worker.handles("t", max_attempts=1)
    async def in_the_loop(order: Order, context: Context) -> None:
        context.extend("1m")

    @worker.handles("u", max_attempts=1)
    def in_a_thread(order: Order, context: Context) -> None:
        context.extend("1m")

    with VirtualQueue(trouble=Trouble(late=1.0, late_ms=5_000)) as queue:
        queue.work(worker)
        in_the_loop.send({"order": 1})
        in_a_thread.send({"order": 1})
        queue.clock.advance("1m")
        assert [(run.topic, run.outcome) for run in queue.recorder.handled()] == [("t", "failed"), ("u", "done")]
        assert "await context.aextend" in str(queue.recorder.handled("t")[0].error)
