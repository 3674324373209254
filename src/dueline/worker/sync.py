"""A queue for programs and threads without asyncio. It runs an event loop in a background thread.

    with SyncQueue("redis://127.0.0.1:6379") as queue:
        queue.send("orders.close", {"order": 7}, delay="30m")

Threads can share one; their concurrent sends are batched. After a fork, the child opens its own connection (and uses
the parent's embedded store through its socket). The first call connects, and the queue is closed when the program ends.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar, Unpack

from ..api.answers import Job, Outcome, Sent, SentItem
from ..api.requests import NewJob
from ..client.sending import SendOptions, new_job
from ..client.times import Duration, Moment
from .queue import Queue, SendsNow, connect, resolved

T = TypeVar("T")

CLOSE_S = 10.0


class SyncQueue:
    """The queue at `url` (see `connect`). Every method blocks until it is done."""

    def __init__(
        self,
        url: str | None = None,
        namespace: str | None = None,
        token: str | None = None,
        make: Callable[[], Queue] | None = None,
    ) -> None:
        """`make`: called instead of `connect` to create the queue."""
        self._url = url if make is not None else resolved(url)
        self._make = make or (lambda: connect(self._url, namespace, token, any_thread=True))
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._queue: Queue | None = None
        self._now: SendsNow | None = None  # the same queue, if it accepts sends from any thread
        this = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: (here := this()) is not None and here._forked())

    def _forked(self) -> None:
        """After a fork, the loop's thread and the lock's holder do not exist in the child."""
        self._lock = threading.Lock()
        self._loop = self._thread = self._queue = self._now = None

    def __enter__(self) -> SyncQueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, topic: str, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """Store a job. It is stored when this returns."""
        now = self._now
        if now is not None:
            job = new_job(body, **options)
            sent = now.send_now(topic, job)
            if sent is not None:
                return sent
            if job.merge is None:
                options["id"] = job.id  # if the first try did store the job, this send is recognised as the same
        return self.do(lambda queue: queue.send(topic, body, **options))

    def send_many(self, topic: str, jobs: Iterable[NewJob]) -> list[SentItem]:
        """Store any number of jobs made by `new_job`. Returns one result per job, in order."""
        return self.do(lambda queue: queue.send_many(topic, jobs))

    def get(self, topic: str, id: str) -> Job:
        return self.do(lambda queue: queue.get(topic, id))

    def cancel(self, topic: str, id: str, missing_ok: bool = False) -> Outcome:
        return self.do(lambda queue: queue.cancel(topic, id, missing_ok))

    def reschedule(self, topic: str, id: str, delay: Duration | None = None, at: Moment | None = None) -> Job:
        return self.do(lambda queue: queue.reschedule(topic, id, delay, at))

    def do(self, ask: Callable[[Queue], Coroutine[Any, Any, T]]) -> T:
        """Run an operation on the queue and wait for its result."""
        return self.submit(ask).result()

    def submit(self, ask: Callable[[Queue], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run an operation on the queue. Any thread may wait for the future."""
        loop, queue = self._open()
        return asyncio.run_coroutine_threadsafe(ask(queue), loop)

    def close(self) -> None:
        """Close the connection and end the thread. The next call opens them again."""
        with self._lock:
            loop, thread, queue = self._loop, self._thread, self._queue
            self._loop = self._thread = self._queue = self._now = None
        atexit.unregister(self.close)
        if loop is None or thread is None or queue is None or self._pid != os.getpid():
            return
        try:
            asyncio.run_coroutine_threadsafe(queue.close(), loop).result(CLOSE_S)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_S)

    def _open(self) -> tuple[asyncio.AbstractEventLoop, Queue]:
        loop, queue = self._loop, self._queue
        if loop is not None and queue is not None and self._pid == os.getpid():
            return loop, queue
        with self._lock:
            if self._loop is None or self._queue is None or self._pid != os.getpid():
                self._loop, self._queue = asyncio.new_event_loop(), self._make()
                self._pid = os.getpid()
                self._now = self._queue if isinstance(self._queue, SendsNow) else None
                self._thread = threading.Thread(target=_turn, args=(self._loop,), name="dueline-queue", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            return self._loop, self._queue


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
