"""Threads for handlers that are plain functions.

A thread cannot be stopped from outside. If its handler has exceeded the timeout or lost its lease, the thread is
abandoned: a new thread takes its place (within the limits of its lane), its result is dropped, and it is reused when
its handler ends. All threads are daemons, so none of them keeps a stopped program alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
from collections.abc import Callable
from typing import Any, Protocol

Work = Callable[[], Any]


class Watch(Protocol):
    """Counts the abandoned threads."""

    def abandoned(self) -> None: ...
    def came_back(self) -> None: ...


class Threads:
    """A pool with as many threads as there are concurrent calls. Idle ones are reused."""

    def __init__(self) -> None:
        self._idle: list[_Thread] = []
        self._stopped = False

    async def run(self, work: Work, watch: Watch) -> Any:
        """Call `work` in a thread and return its result. Cancelling this abandons the thread and notifies `watch`."""
        loop = asyncio.get_running_loop()
        thread = self._idle.pop() if self._idle else _Thread()
        answer: asyncio.Future[Any] = loop.create_future()

        def report(result: Any, error: BaseException | None) -> None:
            if answer.cancelled():
                watch.came_back()
            if self._stopped:
                thread.end()
            else:
                self._idle.append(thread)
            if answer.done():
                return
            if error is None:
                answer.set_result(result)
            elif isinstance(error, StopIteration) or not isinstance(error, Exception):
                # A future rejects StopIteration, and the others would end the event loop.
                answer.set_exception(RuntimeError(f"the handler raised {error!r}"))
            else:
                answer.set_exception(error)

        context = contextvars.copy_context()
        thread.begin(lambda: context.run(work), functools.partial(_tell, loop, report))
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                watch.abandoned()
            raise

    def stop(self) -> None:
        """End the idle threads now, and the others when they are done."""
        self._stopped = True
        while self._idle:
            self._idle.pop().end()


class _Thread:
    """One thread that waits for work."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Work, Callable[..., None]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._turn, name="dueline-handler", daemon=True).start()

    def begin(self, work: Work, tell: Callable[..., None]) -> None:
        self._work.put((work, tell))

    def end(self) -> None:
        self._work.put(None)

    def _turn(self) -> None:
        while (given := self._work.get()) is not None:
            work, tell = given
            try:
                result, error = work(), None
            except BaseException as raised:
                result, error = None, raised
            tell(result, error)
            del given, work, tell, result, error  # an idle thread keeps nothing alive


def _tell(
    loop: asyncio.AbstractEventLoop, report: Callable[..., None], result: Any, error: BaseException | None
) -> None:
    try:
        loop.call_soon_threadsafe(report, result, error)
    except RuntimeError:
        pass  # the loop is closed, so nothing waits for the result
