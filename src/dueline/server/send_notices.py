"""Log warnings about sends: refused ones, and topics that receive jobs but have no consumer.

A topic has no consumer when a job has been ready for 10 s, no consumer of any process waits for one, and none of its
jobs is leased. The topic is checked 10 s after the due time of a job that was sent through this process, at most once a
minute. So a topic without sends costs nothing, and topics are never scanned.
"""

from __future__ import annotations

import asyncio

from ..engine.engine import Engine
from ..engine.errors import DuelineError
from ..engine.limits import INTERNAL_NAMESPACE
from ..engine.timer import Handle, LoopTimer, Timer
from ..telemetry.notices import Notices

PATIENCE_MS = 10_000  # tolerates consumers that poll from time to time
PAUSE_S = 60.0  # between two checks of one topic
MAX_TOPICS = 1000  # with a planned check; further ones are not checked

Name = tuple[str, str]


class SendNotices:
    """Notified by the engine. `stop` cancels the planned checks."""

    def __init__(self, engine: Engine, notices: Notices, timer: Timer = LoopTimer()) -> None:
        self._engine = engine
        self._notices = notices
        self._timer = timer
        self._planned: dict[Name, tuple[int, Handle]] = {}  # due time of the job that the check is for
        self._rested_s: dict[Name, float] = {}  # when a topic may be checked again
        self._looking: set[asyncio.Task[None]] = set()

    def refused(self, namespace: str, topic: str, error: DuelineError) -> None:
        """A send was refused because of the store's state, which concerns many topics."""
        self._notices.notice(
            ("refused", error.code),
            "a send was refused",
            namespace=namespace,
            topic=topic,
            code=error.code,
            detail=error.message,
        )

    def stored(self, namespace: str, topic: str, due_at_ms: int) -> None:
        name = (namespace, topic)
        planned = self._planned.get(name)
        if planned is not None and planned[0] <= due_at_ms:
            return
        if namespace == INTERNAL_NAMESPACE or (planned is None and len(self._planned) >= MAX_TOPICS):
            return
        self._plan(name, due_at_ms)

    def stop(self) -> None:
        for _, handle in self._planned.values():
            handle.cancel()
        for task in self._looking:
            task.cancel()
        self._planned.clear()

    def _plan(self, name: Name, due_at_ms: int) -> None:
        before = self._planned.get(name)
        if before is not None:
            before[1].cancel()
        rest_s = self._rested_s.get(name, 0.0) - self._timer.time()
        wait_ms = max(0, due_at_ms - self._engine.store.now_ms()) + PATIENCE_MS
        handle = self._timer.call_later(max(rest_s, wait_ms / 1000), lambda: self._begin(name))
        self._planned[name] = (due_at_ms, handle)

    def _begin(self, name: Name) -> None:
        del self._planned[name]
        self._rested_s.pop(name, None)
        if len(self._rested_s) >= MAX_TOPICS:
            del self._rested_s[next(iter(self._rested_s))]
        self._rested_s[name] = self._timer.time() + PAUSE_S
        task = asyncio.get_running_loop().create_task(self._look(name))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look(self, name: Name) -> None:
        try:
            view = await self._engine.topic(*name)
        except DuelineError:
            return  # the topic is gone, or the store is down, which `Health` logs
        ready_ms = self._engine.store.now_ms() - (view.oldest_ready_at_ms or 0)
        if view.ready and ready_ms >= PATIENCE_MS and not (view.waiters or view.leased or view.paused or view.push):
            self._notices.notice(
                ("unconsumed", *name),
                "nobody consumes this topic",
                namespace=name[0],
                topic=name[1],
                ready=view.ready,
                oldest_ready_s=ready_ms // 1000,
            )
        if view.next_due_at_ms is not None:
            self.stored(*name, view.next_due_at_ms)
