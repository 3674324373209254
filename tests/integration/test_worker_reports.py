"""Workers report themselves, over HTTP and directly on a store; a queue that refuses changes nothing."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dueline import AsyncClient
from dueline.api.live_requests import PutWorker
from dueline.client.errors import NotFound
from dueline.worker import TaskWorker, Worker, reports
from tests.kit.waiting import until

from .serve_kit import served


@pytest.mark.parametrize("kind", ["server", "store"])
async def test_a_worker_is_listed_with_what_it_runs_and_then_as_stopped(tmp_path: Path, kind: str) -> None:
    with served(tmp_path / "data") as url:
        worker = Worker(url if kind == "server" else f"embedded:{tmp_path / 'data'}", concurrency=7, name="shop")

        @worker.handles("orders")
        async def close(order: int) -> None: ...

        async with AsyncClient(url) as client:
            async with worker:
                [one] = await until(client.workers, lambda found: len(found) == 1)
                assert (one.pid, one.topics, one.concurrency, one.stopped) == (os.getpid(), ("orders",), 7, False)
                assert one.name.startswith("shop:")
                assert one.running == ()
            [one] = await client.workers()
            assert one.stopped
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Bill(TaskWorker):
    """A handler as a class, which waits until it is let go."""

    type = "bills"
    begun: asyncio.Event
    go_on: asyncio.Event

    async def invoke(self, params: int) -> None:
        self.begun.set()
        await self.go_on.wait()


async def test_the_jobs_that_a_worker_runs_are_shown_also_of_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "BEAT_S", 0.05)
    Bill.begun, Bill.go_on = asyncio.Event(), asyncio.Event()
    with served(tmp_path / "data") as url:
        worker = Worker(url, modules=[sys.modules[__name__]])
        async with AsyncClient(url) as client, worker:
            await client.send("bills", 1, id="bill-1")
            await Bill.begun.wait()
            [one] = await until(client.workers, lambda found: any(one.running for one in found))
            assert one.topics == ("bills",)
            assert [(job.topic, job.id) for job in one.running] == [("bills", "bill-1")]
            Bill.go_on.set()
            await until(client.workers, lambda found: not any(one.running for one in found))


class OlderQueue:
    """A queue whose server does not know workers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refused = asyncio.Event()

    async def report_worker(self, name: str, report: PutWorker) -> None:
        self.asked.append("report")
        self.refused.set()
        raise NotFound("no_route", "there is no such route")

    async def report_stopped(self, name: str) -> None:
        self.asked.append("stopped")


async def test_an_older_server_is_asked_once_and_then_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "BEAT_S", 0.0)
    queue = OlderQueue()
    reporter = reports.WorkerReports(queue, "w", ["a"], 1, list)
    reporter.start()
    await queue.refused.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    await reporter.stop()
    assert queue.asked == ["report"]
