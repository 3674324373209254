"""The six actions of EXFE's Redis interface, for producers (push) and workers (the others).

    absent ──push──▶ scheduled ──its time, schedule──▶ started ──get──▶ leased ──complete──▶ absent, or scheduled again
                         ▲                                │               │
                         │              nobody gets it ───┴──▶ purged     │
                         └─────────────── release, or the lease ends ─────┘

A queue is a list of tasks under a key; all tasks of a key share one due time. Get locks and reads, complete removes.
Every action except `wait` is one script, so each is atomic. Times are whole unix seconds on the store's clock.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Mapping
from types import TracebackType

from .errors import Invalid, Locked
from .link import Link, Word
from .listener import Listener
from .locks import Lock, Locks
from .objects import Objects

PURGE_AFTER_S = 5
MAX_SECONDS = 1 << 53  # a sorted set's score is a double: larger whole numbers would be rounded


class ExfeQueue:
    """One prefix on one Redis.

    `url` is `redis://`, `rediss://` or `unix://` (or the valkey spelling). `timeout` is the lease of a get in seconds.
    `purge_after`: schedule drops a queue that it has offered for this many seconds without a worker taking it, as
    EXFE's document demands; None never drops one. Safe to share between threads. Connects at the first action.
    """

    def __init__(self, url: str, prefix: str, timeout: int, *, purge_after: int | None = PURGE_AFTER_S) -> None:
        if timeout <= 0:
            raise Invalid(f"invalid timeout: {timeout}", "timeout")
        if purge_after is not None and purge_after <= 0:
            raise Invalid(f"invalid purge_after: {purge_after}", "purge_after")
        self.objects = Objects(prefix)
        self.timeout = timeout
        self._purge_after = purge_after
        self._link = Link(url)
        self._locks = Locks()
        self._listeners: dict[int, Listener] = {}

    def push(
        self,
        key: str,
        task: str | bytes,
        data: Mapping[str, str | bytes] | None = None,
        ontime: float = 0,
        overwrite: str = "once",
        *,
        now: float | None = None,
    ) -> None:
        """Append a task; merge `data` into the queue's hash; wake the workers.

        The queue's due time becomes `ontime` (0 or less means now; a fraction is rounded up) if the queue is new, if
        `overwrite` is "always" (any other word means "once"), or if this is the first push since a get.
        """
        names = self.objects
        if not key or key.endswith(names.ENDINGS):
            raise Invalid(f"invalid key: {key!r} is empty or ends with a reserved suffix", "key")
        pairs: list[Word] = []
        for field, value in (data or {}).items():
            pairs += (field, value)
        keys = (names.timer, names.queue(key), names.data(key), names.overwrite(key), names.start(key))
        arguments = (_now(now), names.channel, key, task, _ontime(ontime), overwrite, *pairs)
        self._link.run("push", keys, arguments)

    def get(self, key: str, number: int, random: str | None = None, *, now: float | None = None) -> list[bytes]:
        """Lock the queue for `timeout` seconds and read its first `number` tasks; they stay in it until complete.

        A negative number reads all, 0 reads one. A second get with the same `random` succeeds, but does not extend the
        lock. Raises `Locked` if another random holds the lock; nothing is changed then.
        """
        names = self.objects
        token = random or f"{int(time.time())}.{secrets.randbits(63)}"
        keys = (names.timer, names.queue(key), names.locker(key), names.overwrite(key), names.start(key))
        tasks: list[bytes] | None = self._link.run("get", keys, (_now(now), key, token, self.timeout, number))
        if tasks is None:
            raise Locked()
        self._locks.take(key, Lock(token, len(tasks), whole=number < 0 or len(tasks) < max(number, 1)))
        return tasks

    def complete(self, key: str, number: int, random: str | None = None) -> bool:
        """Remove the first `number` tasks and unlock. False if the lock was lost or never taken (nothing changes).

        A negative number removes the tasks that this client's get returned, or everything if it made no get. If that
        get returned fewer tasks than requested, later tasks are never removed. The lock must be that of this get, or of
        `random`; a client that knows neither may complete under any lock, as in the original.
        """
        names = self.objects
        lock = self._locks.of(key, random)
        token = random or (lock.random if lock else "")
        count = lock.removes(number) if lock else number
        locks = (names.locker(key), names.overwrite(key), names.start(key))
        keys = (names.timer, names.queue(key), names.data(key), *locks)
        done = bool(self._link.run("complete", keys, (key, count, token)))
        if done:
            self._locks.forget(key, token)
        return done

    def release(self, key: str, ontime: float | None = None, random: str | None = None) -> bool:
        """Unlock and keep the tasks. With `ontime`, the queue is due again at that time. Returns False if another
        worker holds the lock."""
        names = self.objects
        lock = self._locks.of(key, random)
        token = random or (lock.random if lock else "")
        keys = (names.timer, names.queue(key), names.locker(key), names.start(key))
        again = "" if ontime is None else _ontime(ontime)
        done = bool(self._link.run("release", keys, (names.channel, key, again, token)))
        if done:
            self._locks.forget(key, token)
        return done

    def schedule(self, now: float | None = None) -> tuple[int, str]:
        """What to do next: (0, key) get that key; (n, "") nothing is due for n seconds; (-1, "") nothing is scheduled.

        A due key is returned to every worker until one gets it. A locked key is skipped until its lock ends.
        """
        names = self.objects
        self._listener().listen()
        limit = "" if self._purge_after is None else self._purge_after
        arguments = (_now(now), limit, names.queue(""), *names.ENDINGS)
        seconds, key = self._link.run("schedule", (names.timer,), arguments)
        return int(seconds), key.decode("utf-8", "surrogateescape")

    def wait(self, timeout: float) -> bool:
        """Wait for the first push or release since this thread's last schedule. False after `timeout` seconds."""
        return self._listener().heard(max(0.0, timeout))

    def data(self, key: str) -> dict[bytes, bytes]:
        """The queue's data hash as it is now."""
        flat: list[bytes] = self._link.command("HGETALL", self.objects.data(key))
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def close(self) -> None:
        """Close all connections. Locks stay until they expire."""
        for listener in list(self._listeners.values()):
            listener.close()
        self._listeners.clear()
        self._link.close()

    def __enter__(self) -> ExfeQueue:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _listener(self) -> Listener:
        """This thread's own listener, because every worker must receive each message itself."""
        return self._listeners.setdefault(threading.get_ident(), Listener(self._link, self.objects.channel))


def _now(now: float | None) -> int | str:
    """The time as a script's argument: whole seconds, or "" for the store's clock."""
    return "" if now is None else _seconds(now, "now", up=False)


def _ontime(ontime: float) -> int:
    return _seconds(ontime, "ontime", up=True)


def _seconds(value: float, field: str, *, up: bool) -> int:
    if not math.isfinite(value) or abs(value) > MAX_SECONDS:
        raise Invalid(f"invalid {field}: {value}", field)
    return math.ceil(value) if up else math.floor(value)
