"""The child's side of the process pool: a process that runs one handler at a time.

    parent -> child    ("job", HandlerLocation, LeasedJob, carrier)    ("extended", ErrorText or None)    ("stopping",)
    child -> parent    ("begun",)    ("done", ending, delay_ms, error)    ("extend", lease_ms)

The carrier names the span that the handler runs in (`client.tracing`).

The child exits when the pipe closes, so it never outlives its parent. It ignores signals that a terminal or an init
system sends to the whole process group. The parent decides when to stop: if a child exited on such a signal, its job
would lose an attempt.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import queue
import signal
import socket
import threading
from typing import Any

import msgspec

from ..api.answers import LeasedJob
from ..client.errors import LeaseLost
from ..client.tracing import inside
from ..parent_death import ends_with
from .context import Context
from .handle import Handle
from .handlers import Handler, HandlerLocation
from .locations import handler_at
from .log import shown_log
from .outcomes import Verdict, verdict_of
from .pipes import ChildsEnd, Message
from .tasks import task_handler


class ChildSettings(msgspec.Struct, frozen=True):
    """The settings of a child. `url`: the queue that its handlers send to; None: they cannot send."""

    parent: int
    url: str | None
    namespace: str | None
    token: str | None
    log_level: int


def child_main(sock: socket.socket, settings: ChildSettings) -> None:
    """The whole life of a child process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _deaf)  # not SIG_IGN, which programs started by a handler would inherit
    ends_with(settings.parent, signal.SIGKILL)()  # works even while a handler holds the GIL
    if not logging.getLogger().handlers:
        logging.basicConfig(level=settings.log_level, handlers=[shown_log()])
    parent = _Parent(ChildsEnd(sock))
    threading.Thread(target=parent.listen, name="dueline-pipe", daemon=True).start()
    found: dict[tuple[HandlerLocation, str], Handler] = {}
    while True:
        location, job, carrier = parent.jobs.get()
        verdict = _run(location, job, carrier, parent, found, settings)
        parent.tell(("done", int(verdict.ending), verdict.delay_ms, verdict.error))


def _run(
    location: HandlerLocation,
    job: LeasedJob,
    carrier: dict[str, str],
    parent: _Parent,
    found: dict[tuple[HandlerLocation, str], Handler],
    settings: ChildSettings,
) -> Verdict:
    parent.lease_until_ms = job.lease_until_ms
    try:
        handler = found.get((location, job.topic))
        if handler is None:
            handler = found[location, job.topic] = _handler(location, job.topic, settings)
        parent.tell(("begun",))
        with inside(carrier):
            return verdict_of(call_here(handler, job, Context(job, parent)))
    except BaseException as raised:  # even SystemExit: a handler must not end the worker
        return verdict_of(raised)


def _handler(location: HandlerLocation, topic: str, settings: ChildSettings) -> Handler:
    there = handler_at(location, topic)
    if not isinstance(there, Handle):
        return task_handler(there)
    there.worker.join_queue(settings.url, settings.namespace, settings.token)
    return there.handler


def call_here(handler: Handler, job: LeasedJob, context: Context) -> Any:
    """Call a handler in this thread, which may block. A coroutine gets an event loop of its own."""
    result = handler.invoke(job, context)
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


class _Parent:
    """The parent, as the handler's context sees it."""

    def __init__(self, pipe: ChildsEnd) -> None:
        self.jobs: queue.SimpleQueue[tuple[HandlerLocation, LeasedJob, dict[str, str]]] = queue.SimpleQueue()
        self.lease_until_ms = 0
        self.stopping = False
        self._pipe = pipe
        self._extended: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()

    def listen(self) -> None:
        """Read the parent's messages; exit when the parent does."""
        while True:
            try:
                kind, *values = self._pipe.hear()
            except EOFError:
                os._exit(0)
            if kind == "job":
                self.jobs.put((values[0], values[1], values[2]))
            elif kind == "extended":
                self._extended.put((values[0], values[1]))
            else:
                self.stopping = True

    def tell(self, message: Message) -> None:
        self._pipe.tell(message)

    def extend_blocking(self, lease_ms: int | None) -> None:
        self.tell(("extend", lease_ms))
        until_ms, error = self._extended.get()
        if error is not None:
            raise LeaseLost("lease_lost", error)
        self.lease_until_ms = until_ms

    async def extend(self, lease_ms: int | None) -> None:
        await asyncio.to_thread(self.extend_blocking, lease_ms)


def _deaf(*_: Any) -> None:
    """Ignore the signal, because the parent decides when this process ends."""
