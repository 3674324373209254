"""The log of each push target: calls push.lua, and encodes its entries.

    entry   at:6  attempt:4  status:2  duration:4  flags:1  sizes of id, error, excerpt: 2 each  id  error  excerpt

Reports of one topic that arrive while a call is in flight are batched into the next one. A target that is called
thousands of times a second costs the store only a few calls a second.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ...engine.limits import Limits
from ...engine.push_log import Attempt, TargetState
from ..push_log_limits import PAGE, bounded, pack_cursor, unpack_cursor
from .batching import Batcher, in_task
from .calls import Reply
from .codec import pack_id, pack_numbers, unpack_id, unpack_numbers
from .keys import push_keys

REPORT, STATE, ATTEMPTS, RESET = range(1, 5)
OK, HAS_ERROR, HAS_EXCERPT = 1, 2, 4  # the flags of an entry
_HEAD = struct.Struct(">HIIHIBHHH")  # the time is 6 bytes: 2 and 4

Run = Callable[[str, tuple[str, ...], str, bytes, bytes], Awaitable[Reply]]
_Key = tuple[str, str, int, int]


class _Report(msgspec.Struct, frozen=True):
    """One attempt to report. `name` is unique, because one batch may contain two attempts of one job."""

    name: str
    entry: bytes


class ValkeyPushLog:
    """Implements `engine.push_log.PushLog`. `run` makes one call of a changing script and returns its reply."""

    def __init__(self, run: Run, prefix: str, limits: Limits) -> None:
        self._run = run
        self._prefix = prefix
        self._limits = limits
        self._names = itertools.count()
        self._batchers: dict[_Key, Batcher[_Report, TargetState]] = {}

    async def report(
        self, namespace: str, topic: str, attempts: Sequence[Attempt], breaker_failures: int, breaker_open_ms: int
    ) -> TargetState:
        if not attempts:
            return await self.state(namespace, topic)
        reports = [_Report(str(next(self._names)), pack_attempt(bounded(attempt))) for attempt in attempts]
        return (await self._batcher((namespace, topic, breaker_failures, breaker_open_ms)).call(reports))[-1]

    def _batcher(self, key: _Key) -> Batcher[_Report, TargetState]:
        """Only reports with the same breaker settings are batched together."""
        batcher = self._batchers.get(key)
        if batcher is None:

            def idle() -> None:
                self._batchers.pop(key, None)

            batcher = self._batchers[key] = Batcher(
                in_task(lambda reports, _: self._send(key, reports)), _name_of, _size_of, idle, self._limits
            )
        return batcher

    async def _send(self, key: _Key, reports: list[_Report]) -> list[TargetState]:
        namespace, topic, failures, open_ms = key
        entries = [report.entry for report in reports]
        numbers = [REPORT, failures, open_ms, *map(len, entries)]
        state = await self._target(namespace, topic, numbers, b"".join(entries), f"{failures}.{open_ms}")
        return [state] * len(reports)

    async def state(self, namespace: str, topic: str) -> TargetState:
        return await self._target(namespace, topic, [STATE])

    async def _target(
        self, namespace: str, topic: str, numbers: list[int], blob: bytes = b"", variant: str = ""
    ) -> TargetState:
        (failures, open_until, size), error = await self._ask(namespace, topic, numbers, blob, variant)
        return TargetState(failures, open_until, None if size < 0 else error.decode())

    async def attempts(
        self, namespace: str, topic: str, id: str | None, cursor: bytes, limit: int
    ) -> tuple[list[Attempt], bytes | None]:
        """Every page is full, except the last one. At most 4 calls read the whole log, even if few entries match."""
        below, limit = unpack_cursor(cursor), min(limit, PAGE)
        wanted = b"" if id is None else pack_id(id)
        found: list[Attempt] = []
        while len(found) < limit:
            asked = [ATTEMPTS, below, limit - len(found), len(wanted)]
            (last, *sizes), blob = await self._ask(namespace, topic, asked, wanted)
            at = 0
            for size in sizes:
                found.append(unpack_attempt(blob[at : at + size]))
                at += size
            if not last:
                return found, None
            below = last
        return found, pack_cursor(below)

    async def reset(self, namespace: str, topic: str) -> None:
        await self._ask(namespace, topic, [RESET])

    async def _ask(
        self, namespace: str, topic: str, numbers: list[int], blob: bytes = b"", variant: str = ""
    ) -> tuple[list[int], bytes]:
        keys = push_keys(self._prefix, namespace, topic)
        reply = await self._run("push", keys, variant, pack_numbers(numbers), blob)
        return unpack_numbers(reply[4]), reply[5]


def pack_attempt(attempt: Attempt) -> bytes:
    """The log entry of an attempt whose texts are within the limits."""
    id = pack_id(attempt.id)
    error, excerpt = (attempt.error or "").encode(), (attempt.excerpt or "").encode()
    flags = OK * attempt.ok | HAS_ERROR * (attempt.error is not None) | HAS_EXCERPT * (attempt.excerpt is not None)
    high, low = divmod(attempt.at_ms, 1 << 32)
    numbers = (high, low, attempt.attempt, attempt.status, attempt.duration_ms, flags)
    return _HEAD.pack(*numbers, len(id), len(error), len(excerpt)) + id + error + excerpt


def unpack_attempt(entry: bytes) -> Attempt:
    """Raises struct.error, ValueError or IndexError if the entry is invalid."""
    high, low, attempt, status, duration, flags, id, error, excerpt = _HEAD.unpack_from(entry)
    texts = _HEAD.size + id
    if len(entry) != texts + error + excerpt:
        raise ValueError("the sizes in the entry do not add up")
    return Attempt(
        id=unpack_id(entry[_HEAD.size : texts]),
        attempt=attempt,
        at_ms=(high << 32) + low,
        status=status,
        duration_ms=duration,
        ok=bool(flags & OK),
        error=entry[texts : texts + error].decode() if flags & HAS_ERROR else None,
        excerpt=entry[texts + error :].decode() if flags & HAS_EXCERPT else None,
    )


def _name_of(report: _Report) -> str:
    return report.name


def _size_of(report: _Report) -> int:
    return len(report.entry)
