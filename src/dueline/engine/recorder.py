"""Records what this process does, while somebody listens (`event_stream`).

    the store's outcomes --> a bounded buffer --every FLUSH_S--> append --> the stream

The process joins the stream when it starts, and then costs nothing until it hears that somebody listens: the store's
hook is empty, and there is no periodic call. While it records, it appends what is in the buffer, or a beat, so that
others notice if it falls silent. Events can be lost: the buffer overflowed, an outcome is unknown, or an append failed.
Then the next append adds a gap, at most one in GAP_S.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

from .errors import DuelineError
from .event import MAX_ERROR_CHARS, Event, pack_events
from .event_stream import ENTRIES_PER_CALL
from .job import LeasedJob, Partition, Reason, State
from .limits import INTERNAL_NAMESPACE
from .outcomes import actor_name
from .rounds import Rounds
from .store import Code, Credit, Edit, Outcome, Release, SendOutcome, Store
from .timer import Timer

FLUSH_S = 0.05
BEAT_S = 2.0
GAP_S = 1.0
IDLE_S = 86_400.0
LEAVE_WITHIN_S = 1.0
MAX_BUFFERED = 10_000
BACK_OFF_S = (0.05, 2.0)
_SENT = {Code.CREATED: "sent", Code.REPLACED: "replaced", Code.APPENDED: "appended"}
_DONE = {
    "ack": ("acked", State.DONE),
    "cancel": ("cancelled", State.CANCELLED),
    "edit": ("edited", None),
    "revive": ("revived", None),
    "purge": ("purged", None),
}


class Recorder:
    """Implements `outcomes.Outcomes`. It lives as long as its engine. `member` is its name in the stream."""

    def __init__(self, store: Store, timer: Timer) -> None:
        self.member = secrets.token_hex(8)
        self._store = store
        self._timer = timer
        self._events: list[Event] = []
        self._pending: list[bytes] = []  # entries that are being appended
        self._number = 0  # of the last entry that was appended
        self._until_ms = 0
        self._heard = False  # an announcement came: ask until when to record
        self._joined = False
        self._opened = False  # the stream has to say that this process begins to record
        self._lost = False
        self._gap_at_s = 0.0
        self._flushes = False  # a flush is due soon
        self._rounds = Rounds(self._round, timer, "recording events failed", BACK_OFF_S)

    @property
    def records(self) -> bool:
        """Whether somebody listens, as far as this process knows."""
        return self._store.hook.outcomes is self

    async def start(self) -> None:
        """Join the stream before the first job is changed, so that nothing is missing. If the store does not answer,
        that is tried until it does."""
        try:
            await self._join()
        except DuelineError:
            self._heard = True
        self._rounds.start()

    async def stop(self) -> None:
        """Append what is left, and leave the stream. It may be called twice, and before `start`."""
        if self._rounds.stopping:
            return
        try:
            async with asyncio.timeout(LEAVE_WITHIN_S):
                await self._rounds.stop()
                if self.records:
                    await self._append()
                if self._joined and not self._events and not self._lost:
                    await self._store.stream.leave(self.member)
        except (TimeoutError, DuelineError):
            pass  # listeners get a gap when its silence is noticed
        self._stop_recording()

    # -- what happened

    def done(
        self, operation: str, partition: Partition, items: Sequence[Any], results: Sequence[Any], by: Sequence[str]
    ) -> None:
        now_ms = self._store.now_ms()
        found = [
            _event(operation, partition, item, result, now_ms, actor or None)
            for item, result, actor in zip(items, results, by, strict=True)
        ]
        self._note([event for event in found if event is not None])

    def pulled(self, partition: Partition, jobs: Sequence[LeasedJob], credits: Sequence[Credit]) -> None:
        now_ms, namespace = self._store.now_ms(), partition.namespace
        takers = (credit.actor for credit in credits for _ in range(credit.max))
        self._note(
            [
                Event(namespace, job.topic, "delivered", now_ms, job.id, job.attempt, State.LEASED, by=actor or None)
                for job, actor in zip(jobs, takers, strict=False)
            ]
        )

    def died(self, partition: Partition, deaths: Sequence[tuple[str, Reason]]) -> None:
        now_ms = self._store.now_ms()
        where = (partition.namespace, partition.topic)
        self._note([Event(*where, "dead", now_ms, id, state=State.DEAD, reason=reason) for id, reason in deaths])

    def lost(self) -> None:
        self._lost = True
        self._flush_soon()

    def topic(self, namespace: str, topic: str, what: str) -> None:
        """A topic was changed by this process."""
        if self.records:
            self._note([Event(namespace, topic, what, self._store.now_ms(), by=actor_name() or None)])

    def _note(self, events: list[Event]) -> None:
        """Keep the events of one call. They all belong to one namespace."""
        if not events or events[0].namespace == INTERNAL_NAMESPACE:
            return
        room = MAX_BUFFERED - len(self._events)
        if len(events) > room:
            self._lost = True
            events = events[:room]
        self._events += events
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushes:
            self._flushes = True
            self._timer.call_later(FLUSH_S, self._rounds.wake)

    # -- the stream

    def _announced(self) -> None:
        self._heard = True
        self._rounds.wake()

    async def _join(self) -> None:
        self._heard = False
        try:
            if not self._joined:
                await self._store.stream.watch_interest(self._announced)
            self._until_ms = await self._store.stream.join(self.member)
        except DuelineError:
            self._heard = True
            raise
        self._joined = True
        if self._until_ms and not self.records:
            self._store.hook.outcomes = self

    def _stop_recording(self) -> None:
        if self.records:
            self._store.hook.outcomes = None
        self._number += len(self._pending)
        self._events, self._pending = [], []
        self._lost = self._opened = False

    async def _round(self) -> float:
        if self._heard:
            recorded = self.records
            await self._join()
            self._opened |= self.records and not recorded
        if not self.records:
            return IDLE_S
        if self._until_ms > self._store.now_ms():
            await self._append()
        else:
            self._until_ms = await self._store.stream.close(self.member)
            if not self._until_ms:
                self._stop_recording()
                return IDLE_S
        return 0.0 if len(self._events) >= MAX_BUFFERED // 2 else BEAT_S

    async def _append(self) -> None:
        """Append the oldest events of the buffer; without any, a beat. A call whose outcome is unknown is repeated
        with the same entries, so that none is there twice."""
        self._flushes = False
        if not self._pending:
            packed = pack_events(self._events[: MAX_BUFFERED // 2])[:ENTRIES_PER_CALL]
            self._pending = [data for _, data in packed]
            del self._events[: sum(count for count, _ in packed)]
        opened, lost = self._opened, self._lost and self._timer.time() >= self._gap_at_s
        if lost:
            self._lost = False
        try:
            until_ms = await self._store.stream.append(self.member, self._number + 1, self._pending, opened, lost)
        except DuelineError:
            self._lost |= lost
            raise
        self._until_ms, self._number, self._opened = until_ms, self._number + len(self._pending), False
        self._pending = []
        if lost:
            self._gap_at_s = self._timer.time() + GAP_S
        if self._events:
            self._flush_soon()
        elif self._lost and not self._flushes:
            self._flushes = True
            self._timer.call_later(GAP_S, self._rounds.wake)


def _event(operation: str, partition: Partition, item: Any, result: Any, now_ms: int, by: str | None) -> Event | None:
    """The event of one outcome. None: nothing changed."""
    namespace, topic = partition.namespace, partition.topic
    if isinstance(result, SendOutcome):
        what = _SENT.get(result.code)
        if what is None:
            return None
        return Event(namespace, topic, what, now_ms, result.group or item.id, None, result.state, by=by)
    if not isinstance(result, Outcome) or result.code not in (Code.OK, Code.DEAD):
        return None
    id = item if isinstance(item, str) else item.id
    if isinstance(item, Release):
        error = None if item.error is None else item.error[:MAX_ERROR_CHARS]
        if result.code is Code.DEAD:
            return Event(namespace, topic, "dead", now_ms, id, None, State.DEAD, result.reason, error, by)
        state = State.SCHEDULED if result.at_ms > now_ms else State.READY
        return Event(namespace, topic, "released", now_ms, id, None, state, None, error, by)
    if isinstance(item, Edit) and item == Edit(item.id, at_ms=0):
        return Event(namespace, topic, "fired", now_ms, id, None, State.READY, by=by)
    known = _DONE.get(operation)
    return None if known is None else Event(namespace, topic, known[0], now_ms, id, None, known[1], by=by)
