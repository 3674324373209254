"""Tells the queue every 10 s that this worker is alive and what it runs, so that people can see it (`dueline workers`).

The reports are only for display: if the queue does not know the call, or refuses it, they end, and nothing fails.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from .._version import __version__
from ..api.live_requests import MAX_RUNNING, PutWorker, Running
from ..client.errors import DuelineApiError, Unavailable, UnknownOutcome

BEAT_S = 10.0
LAST_WORDS_S = 1.0


@runtime_checkable
class TakesReports(Protocol):
    """A queue that accepts reports of workers."""

    async def report_worker(self, name: str, report: PutWorker) -> None: ...
    async def report_stopped(self, name: str) -> None: ...


def worker_name(name: str | None) -> str:
    """The worker's name in the list: host and process, with its own name in front if it has one."""
    parts = [socket.gethostname(), str(os.getpid())]
    return re.sub(r"[^A-Za-z0-9._:-]", "-", ":".join(parts if name is None else [name, *parts]))[-128:]


class WorkerReports:
    """The reports of one running worker. `running` returns what it works on, the oldest first."""

    def __init__(
        self,
        queue: TakesReports,
        name: str,
        topics: Sequence[str],
        concurrency: int,
        running: Callable[[], list[tuple[str, str, int]]],
    ) -> None:
        self._queue = queue
        self._name = name
        self._topics = list(topics)
        self._concurrency = concurrency
        self._running = running
        self._started_at_ms = int(time.time() * 1000)
        self._refused = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Report that the worker has stopped. May be called twice, and before `start`."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        if not self._refused:
            try:
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._queue.report_stopped(self._name)
            except (TimeoutError, DuelineApiError):
                pass

    async def _run(self) -> None:
        while not self._refused:
            try:
                await self._queue.report_worker(self._name, self._report())
            except (Unavailable, UnknownOutcome):
                pass
            except DuelineApiError:  # an older server, or a token that may not: the worker keeps working
                self._refused = True
            await asyncio.sleep(BEAT_S)

    def _report(self) -> PutWorker:
        running = (Running(topic=topic, id=id, since_ms=since_ms) for topic, id, since_ms in self._running())
        return PutWorker(
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            version=__version__,
            topics=self._topics,
            concurrency=self._concurrency,
            started_at_ms=self._started_at_ms,
            running=tuple(running)[:MAX_RUNNING],
        )
