"""Child processes for handlers that are CPU-bound, or that may have to be killed.

A child is started when there is a job for it. It is spawned, so it imports what it needs and inherits nothing. It runs
one job at a time and is reused. If it exits or is killed (by a signal, or for lack of memory), its job fails and it is
replaced. If its handler exceeds the timeout, the child is killed.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from ..client.errors import DuelineApiError
from ..client.tracing import current_carrier
from .child import ChildSettings, child_main
from .handlers import HandlerLocation
from .leases import JobLease
from .outcomes import ChildDied, Ending, Verdict
from .pipes import Message, WorkersEnd
from .queue import Queue

LAST_BREATH_S = 2.0  # how long a child may take to exit after its pipe was closed
TRIES = 3  # after this many children have died before they began, the job fails

_spawn = multiprocessing.get_context("spawn")


class Processes:
    """A pool with as many children as there are concurrent calls."""

    def __init__(self, queue: Queue, token: str | None = None) -> None:
        level = logging.getLogger("dueline.worker").getEffectiveLevel()
        self._settings = ChildSettings(os.getpid(), queue.url, queue.namespace, token, level)
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()

    async def run(self, location: HandlerLocation, lease: JobLease, begun: Callable[[], None]) -> Verdict:
        """The verdict of a handler on a job. `begun` is called when the child begins with the job. Raises ChildDied.
        Cancelling this wait kills the child.

        If a child died before it began with the job, such as while it was idle, another child gets the job."""
        error = ChildDied("no child process could be started")
        for _ in range(TRIES):
            child = self._idle_one() or self._started()
            try:
                return await self._run(child, location, lease, begun)
            except ChildDied as died:
                if child.has_begun:
                    raise
                error = died
        raise error

    async def _run(
        self, child: _Child, location: HandlerLocation, lease: JobLease, begun: Callable[[], None]
    ) -> Verdict:
        ended = False
        try:
            verdict = await child.work(location, lease, begun)
            ended = True
            return verdict
        finally:
            if ended and child.alive:
                self._idle.append(child)
            else:
                child.kill()

    def stopping(self) -> None:
        """Tell the handlers that the worker is being stopped."""
        for child in self._all:
            child.tell(("stopping",))

    async def stop(self) -> None:
        """End all children: close the pipes of the idle ones, and kill those that still run a handler."""
        for child in list(self._all):
            child.kill()
        await asyncio.gather(*(child.gone.wait() for child in list(self._all)))
        self._idle.clear()

    def _idle_one(self) -> _Child | None:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        return None

    def _started(self) -> _Child:
        child = _Child(self._settings, self._buried)
        self._all.add(child)
        return child

    def _buried(self, child: _Child) -> None:
        self._all.discard(child)
        if child in self._idle:
            self._idle.remove(child)


class _Child:
    """One process and our end of its pipe."""

    def __init__(self, settings: ChildSettings, buried: Any) -> None:
        self.alive = True
        self.has_begun = False
        self.gone = asyncio.Event()
        self._buried = buried
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        self._process = _spawn.Process(target=child_main, args=(theirs, settings), name="dueline-child")
        with theirs:
            self._process.start()
        self._pipe = WorkersEnd(ours, self._receive, self._end)
        self._lease: JobLease | None = None
        self._answer: asyncio.Future[Verdict] | None = None
        self._begun: Callable[[], None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def work(self, location: HandlerLocation, lease: JobLease, begun: Callable[[], None]) -> Verdict:
        self._lease, self._answer, self._begun = lease, self._loop.create_future(), begun
        self.has_begun = False
        self.tell(("job", location, lease.job, current_carrier()))
        return await self._answer

    def tell(self, message: Message) -> None:
        """Send a message without waiting. A child that is still starting reads it later."""
        self._pipe.tell(message)

    def kill(self) -> None:
        if self.alive:
            self._process.kill()
            self._end()

    def _receive(self, message: Message) -> None:
        kind, *values = message
        if kind == "extend":
            self._spawn(self._extend(values[0]))
        elif kind == "begun":
            assert self._begun is not None
            self.has_begun = True
            self._begun()
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(Verdict(Ending(values[0]), values[1], values[2]))

    async def _extend(self, lease_ms: int | None) -> None:
        lease = self._lease
        assert lease is not None
        try:
            await lease.extend(lease_ms)
        except DuelineApiError as error:
            self.tell(("extended", 0, error.message))
        else:
            self.tell(("extended", lease.lease_until_ms, None))

    def _end(self) -> None:
        """The pipe was closed by either side, so the process is ending."""
        if self.alive:
            self.alive = False
            self._pipe.close()
            self._spawn(self._bury())

    async def _bury(self) -> None:
        await asyncio.to_thread(self._process.join, LAST_BREATH_S)
        if self._process.is_alive():  # it has closed the pipe but still runs: its results could not be received
            self._process.kill()
            await asyncio.to_thread(self._process.join)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ChildDied(_last_words(self._process.exitcode)))
        self._buried(self)
        self.gone.set()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _last_words(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            return f"the process that ran the handler was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"the process that ran the handler was killed by signal {-code}"
    return f"the process that ran the handler ended with exit code {code}"
