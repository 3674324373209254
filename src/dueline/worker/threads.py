"""Threads for handlers that are plain functions.

A thread cannot be ended from outside. One whose handler has run into its timeout, or lost its lease, is left alone: its
place is given to a new thread (within the limits of its lane), what it returns is dropped, and it is used again when
its handler ends. All are daemons, so that none of them keeps a stopped program alive.
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
    """Whoever counts the threads that are left alone."""

    def left_alone(self) -> None: ...
    def came_back(self) -> None: ...


class Threads:
    """As many threads as there are calls at a time; idle ones are used again."""

    def __init__(self) -> None:
        self._idle: list[_Thread] = []
        self._stopped = False

    async def run(self, work: Work, watch: Watch) -> Any:
        """The result of `work`, called in a thread. Whoever stops waiting leaves the thread alone; `watch` is told."""
        loop = asyncio.get_running_loop()
        thread = self._idle.pop() if self._idle else _Thread()
        answer: asyncio.Future[Any] = loop.create_future()

        def told(result: Any, error: BaseException | None) -> None:
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
                # A future does not take the first, and the others would end the event loop.
                answer.set_exception(RuntimeError(f"the handler raised {error!r}"))
            else:
                answer.set_exception(error)

        context = contextvars.copy_context()
        thread.begin(lambda: context.run(work), functools.partial(_tell, loop, told))
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                watch.left_alone()
            raise

    def stop(self) -> None:
        """Send the idle ones home; the others go when they are done."""
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


def _tell(loop: asyncio.AbstractEventLoop, told: Callable[..., None], result: Any, error: BaseException | None) -> None:
    try:
        loop.call_soon_threadsafe(told, result, error)
    except RuntimeError:
        pass  # the loop is closed: the worker is gone, and nobody waits
