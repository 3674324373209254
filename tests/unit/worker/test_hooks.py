"""What a worker does before its first job and after its last one."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dueline import Worker
from dueline.testing.queue import VirtualQueue

from .kit import worker_kit


async def test_hooks_run_before_the_first_job_and_after_the_last_in_the_opposite_order() -> None:
    opened, closed = ["pool opened", "file opened"], ["file closed", "pool closed"]
    seen: list[str] = []
    async with worker_kit() as kit:

        @kit.worker.on_startup
        async def open_pool() -> None:
            seen.append("pool opened")

        @kit.worker.on_startup
        def open_file() -> None:
            assert threading.current_thread() is not threading.main_thread(), "a plain function may block"
            seen.append("file opened")

        @kit.worker.on_shutdown
        async def close_pool() -> None:
            seen.append("pool closed")
            await last.asend(2, id="b", delay="1h")  # the queue is still there

        @kit.worker.on_shutdown
        def close_file() -> None:
            seen.append("file closed")

        @kit.worker.handles("t")
        async def last(number: int) -> None:
            seen.append("job begun")
            begun.set()
            await asyncio.sleep(0.05)  # it ends in the grace of the stop
            seen.append("job done")

        begun = asyncio.Event()
        await kit.queue.send("t", 1, id="a")
        await kit.worker.start()
        await begun.wait()
        await kit.worker.stop()
        await kit.worker.stop()
        assert (await kit.queue.get("t", "b")).state == "scheduled"
    assert seen == [*opened, "job begun", "job done", *closed]


async def test_a_worker_whose_startup_fails_does_not_start_and_shuts_nothing_down() -> None:
    seen: list[str] = []
    async with worker_kit() as kit:
        kit.worker.on_shutdown(lambda: seen.append("shut down"))
        kit.worker.handles("t")(seen.append)

        @kit.worker.on_startup
        async def fails() -> None:
            raise ConnectionError("no database")

        await kit.queue.send("t", "job", id="a")
        with pytest.raises(ConnectionError, match="no database"):
            await kit.worker.start()
        assert kit.queue.pulls == []
    assert seen == []


async def test_a_worker_that_cannot_connect_after_its_startup_is_shut_down() -> None:
    seen: list[str] = []
    async with worker_kit() as kit:
        kit.worker.on_startup(lambda: seen.append("started"))
        kit.worker.on_shutdown(lambda: seen.append("shut down"))
        kit.worker.handles("t")(seen.append)

        async def away() -> None:
            raise ConnectionError("no queue")

        kit.queue.start = away
        with pytest.raises(ConnectionError, match="no queue"):
            await kit.worker.start()
    assert seen == ["started", "shut down"]


async def test_a_shutdown_that_fails_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[str] = []
    async with worker_kit() as kit:
        kit.worker.on_shutdown(lambda: seen.append("shut down"))
        kit.worker.handles("t")(seen.append)

        @kit.worker.on_shutdown
        def fails() -> None:
            raise OSError("disk full")

        await kit.worker.start()
    assert seen == ["shut down"]
    assert "a shutdown hook failed" in caplog.text
    assert "disk full" in caplog.text


def test_hooks_of_a_worker_in_a_test_run_in_its_queue(dueline_queue: VirtualQueue) -> None:
    worker, seen = Worker(), list[str]()

    @worker.on_startup
    async def first() -> None:
        await asyncio.sleep(3600)  # of virtual time
        await handle.asend("sent at startup")

    worker.on_shutdown(lambda: seen.append(threading.current_thread().name))

    @worker.handles("t")
    def handle(text: str) -> None:
        seen.append(text)

    dueline_queue.work(worker)
    dueline_queue.stop(worker)
    assert seen == ["sent at startup", threading.current_thread().name]
