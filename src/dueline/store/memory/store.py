"""The store's operations over a dict of jobs: the readable form of the contract in `engine.store`.

There are no indexes and nothing depends on clean-up. Nothing here awaits, so each operation is atomic by itself.
Every changing operation runs inside `_change`, which afterwards tells the engine what others must know: wake-ups,
clean-up work, and lines that the directory does not list.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial

from msgspec.structs import replace

from ...engine.job import BodyKind, Held, Job, Line, Reason, State
from ...engine.limits import PULL_BYTES
from ...engine.store import (
    Cleaned,
    Code,
    Control,
    Done,
    Edit,
    Events,
    Extend,
    OnConflict,
    Page,
    Pull,
    Pulled,
    Purge,
    Query,
    Ref,
    Release,
    Revive,
    SendItem,
    SendResult,
    Spare,
    StalePolicy,
    Stats,
)
from . import groups, holders
from .change import NOT_FOUND, Change
from .directory import MemoryDirectory
from .figures import count
from .lines import LineState, Shelf
from .listing import list_page
from .push_log import MemoryPushLog
from .records import Group, Record, due_ms, held_of, is_overdue, job_of, judged


class MemoryStore:
    """`engine.store.Store` in memory. `clock` gives the store's time in whole milliseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.directory = MemoryDirectory(clock)
        self.pushes = MemoryPushLog(clock)
        self.events: Events | None = None
        self._clock = clock
        self._lines: dict[Line, LineState] = {}
        self._shelves: dict[tuple[str, str | None, int], Shelf] = {}
        self._watched: set[Line] = set()
        self._token_base = secrets.token_hex(8)
        self._token_numbers = itertools.count(1)

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    def now_ms(self) -> int:
        return self._clock()

    async def watch(self, line: Line) -> None:
        self._watched.add(line)

    async def unwatch(self, line: Line) -> None:
        self._watched.discard(line)

    def next_ms(self, line: Line) -> int | None:
        """The exact first moment at which a pull could give something: what the model test holds sleepers to."""
        return self._state(line).next_ms(self._clock())

    async def send(self, line: Line, items: Sequence[SendItem], policy_version: int = 0) -> list[SendResult]:
        known = self._state(line).policy_version
        if policy_version < known or policy_version > 0 == known:
            raise StalePolicy(known)
        with self._change(line) as change:
            return [self._send(change, item) for item in items]

    def _send(self, change: Change, item: SendItem) -> SendResult:
        if item.merge is not None:
            return groups.join(change, item, item.merge, partial(self._store, change))
        found = change.shelf.find(item.id, change.now_ms)
        if found is None:
            return _sent(Code.CREATED, self._store(change, item), change)
        old, seen = found
        rule = item.on_live if seen.live else item.on_ended
        if item.on_overdue is not None and is_overdue(old, seen, change.now_ms):
            rule = item.on_overdue
        if rule is OnConflict.REPLACE:
            return _sent(Code.REPLACED, self._store(change, item), change)
        if old.topic != change.state.line.topic:
            return SendResult(Code.ELSEWHERE, seen.state, 0, 0, old.topic)
        same = rule is OnConflict.KEEP or item.fingerprint == old.fingerprint
        return _sent(Code.KEPT if same else Code.ID_EXISTS, old, change)

    def _store(self, change: Change, item: SendItem, group: Group | None = None) -> Record:
        record = Record(
            id=item.id,
            topic=change.state.line.topic,
            body=item.body if group is None else b"",
            kind=item.kind if group is None else BodyKind.JSON,
            headers=item.headers,
            tags=item.tags,
            policy=item.policy,
            ttl_ms=item.ttl_ms,
            fingerprint=item.fingerprint,
            number=0,
            created_at_ms=change.now_ms,
            updated_at_ms=change.now_ms,
            due_at_ms=0,
            time_ms=0,
            expires_at_ms=None,
            group=group,
        )
        record.plan(due_ms(change.now_ms, item.delay_ms, item.at_ms), change.shelf.take_number(), change.now_ms)
        change.shelf.records[item.id] = record
        change.touched.append(record)
        return record

    async def pull(self, line: Line, pull: Pull) -> Pulled:
        with self._change(line) as change:
            state, now_ms = change.state, change.now_ms
            if pull.wait_ms > 0:
                state.wait_until_ms = max(state.wait_until_ms, now_ms + pull.wait_ms)
            leases_ms = [credit.lease_ms for credit in pull.credits for _ in range(credit.max)]
            room = max(0, min(len(leases_ms), state.room(now_ms)))
            jobs: list[Held] = []
            taken_bytes = lost = 0
            more = False
            ready = state.ready(now_ms)
            for record in ready:
                if len(jobs) == room:
                    break
                over = record.leased
                into = groups.give_to_open(change, record) if over else None
                if into is not None:
                    # Full, and made due by this very pull: to be had by the next one.
                    more = more or (into.time_ms <= now_ms and all(into is not one for one in ready))
                    continue
                taken_bytes += record.size
                if jobs and taken_bytes > PULL_BYTES:
                    more = True
                    break
                lease_ms = leases_ms[len(jobs)]
                chosen_ms = lease_ms if lease_ms is not None else record.policy.lease_ms
                jobs.append(self._lease(change, record, pull.default_lease_ms if chosen_ms is None else chosen_ms))
                lost += over
            state.rate.took(len(jobs), now_ms)
            return Pulled(jobs, state.next_ms(now_ms), more and len(jobs) < room, now_ms, leases_lost=lost)

    def _lease(self, change: Change, record: Record, lease_ms: int) -> Held:
        late_ms = change.now_ms - record.time_ms
        record.deliveries += 1
        record.leased = True
        record.token = f"{self._token_base}-{next(self._token_numbers)}"
        record.time_ms = change.now_ms + lease_ms
        record.updated_at_ms = change.now_ms
        if record.group is not None:
            record.group.open = False
        change.touched.append(record)
        return held_of(record, record.token, late_ms)

    async def ack(self, line: Line, items: Sequence[Ref]) -> list[Done]:
        with self._change(line) as change:
            return [holders.ack(change, item) for item in items]

    async def release(self, line: Line, items: Sequence[Release]) -> list[Done]:
        with self._change(line) as change:
            return [holders.release(change, item) for item in items]

    async def extend(self, line: Line, items: Sequence[Extend]) -> list[Done]:
        with self._change(line) as change:
            return [holders.extend(change, item) for item in items]

    async def cancel(
        self, line: Line, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Done]:
        with self._change(line) as change:
            return [self._cancel(change, id, forget, spare) for id in ids]

    def _cancel(self, change: Change, id: str, forget: bool, spare: Spare) -> Done:
        found = change.find(id)
        if isinstance(found, Done):
            return found
        record, seen = found
        if spare is Spare.LEASED and seen.state is State.LEASED:
            return Done(Code.JOB_LEASED)
        ended = seen.state in (State.DONE, State.DEAD)
        if spare is Spare.OVERDUE and is_overdue(record, seen, change.now_ms):
            ended = True
        elif seen.live:
            record.end(State.CANCELLED, None, change.now_ms)
            change.touched.append(record)
        if forget:
            del change.shelf.records[id]
        return Done(Code.ALREADY_DONE if ended else Code.OK)

    async def edit(self, line: Line, items: Sequence[Edit]) -> list[Done]:
        with self._change(line) as change:
            return [self._edit(change, item) for item in items]

    def _edit(self, change: Change, item: Edit) -> Done:
        found = change.find(item.id)
        if isinstance(found, Done):
            return found
        record, seen = found
        if seen.state is State.LEASED:
            return Done(Code.JOB_LEASED)
        if not seen.live:
            return Done(Code.ALREADY_DONE)
        if item.version is not None and item.version != record.number:
            return Done(Code.VERSION_MISMATCH)
        if record.group is None:  # the items of a group are what was sent
            record.body = record.body if item.body is None else item.body
            record.kind = record.kind if item.kind is None else item.kind
        record.headers = record.headers if item.headers is None else item.headers
        record.tags = record.tags if item.tags is None else item.tags
        record.policy = record.policy if item.policy is None else item.policy
        if item.ttl_ms is not None:
            record.ttl_ms = item.ttl_ms or None
        number = change.shelf.take_number()
        if item.delay_ms is not None or item.at_ms is not None:
            record.plan(due_ms(change.now_ms, item.delay_ms, item.at_ms), number, change.now_ms)
        else:
            if item.ttl_ms is not None:
                record.expires_at_ms = None if record.ttl_ms is None else record.due_at_ms + record.ttl_ms
            record.number = number
            record.updated_at_ms = change.now_ms
            record.drop_lease()
        change.touched.append(record)
        return Done(Code.OK, record.due_at_ms, version=number)

    async def revive(self, line: Line, revive: Revive) -> list[tuple[str, Done]]:
        with self._change(line) as change:
            ids = self._dead_ids(change, revive.limit) if revive.ids is None else revive.ids
            return [(id, self._revive(change, id, revive)) for id in ids]

    def _revive(self, change: Change, id: str, revive: Revive) -> Done:
        found = change.find(id)
        if isinstance(found, Done):
            return found
        record, seen = found
        if seen.state is not State.DEAD:
            return NOT_FOUND
        if revive.set_max_attempts:
            record.policy = replace(record.policy, max_attempts=revive.max_attempts)
        record.ended = record.reason = None
        if record.group is not None:
            record.group.open = False  # also of one that only time ended
        record.refunds, record.given = record.deliveries, 0
        record.plan(due_ms(change.now_ms, revive.delay_ms, None), change.shelf.take_number(), change.now_ms)
        change.touched.append(record)
        return Done(Code.OK, record.due_at_ms, version=record.number)

    async def purge(self, line: Line, purge: Purge) -> list[tuple[str, Done]]:
        with self._change(line) as change:
            ids = self._dead_ids(change, purge.limit) if purge.ids is None else purge.ids
            return [(id, self._purge(change, id)) for id in ids]

    def _purge(self, change: Change, id: str) -> Done:
        found = change.find(id)
        if isinstance(found, Done):
            return found
        if found[1].live:
            return NOT_FOUND
        del change.shelf.records[id]
        return Done(Code.OK)

    def _dead_ids(self, change: Change, limit: int) -> list[str]:
        dead = [(seen.at_ms, record) for record, seen in change.state.jobs(change.now_ms) if seen.state is State.DEAD]
        dead.sort(key=lambda entry: (entry[0], entry[1].number))
        return [record.id for _, record in dead[:limit]]

    async def control(self, line: Line, control: Control) -> None:
        with self._change(line) as change:
            state = change.state
            if control.pause_until_ms is not None:
                state.paused_until_ms = control.pause_until_ms
            if control.max_in_flight is not None:
                state.max_in_flight = control.max_in_flight
            if control.rate_per_s is not None:
                state.rate.set(control.rate_per_s, change.now_ms)
            if control.policy_version is not None:
                state.policy_version = max(state.policy_version, control.policy_version)

    async def read(self, line: Line, ids: Sequence[str], body: bool = True) -> list[Job | None]:
        now_ms, shelf = self._clock(), self._state(line).shelf
        found = [shelf.find(id, now_ms) for id in ids]
        mine = [one if one is not None and (one[0].topic == line.topic or not line.topic) else None for one in found]
        return [None if one is None else job_of(*one, body) for one in mine]

    async def list(self, line: Line, query: Query) -> Page:
        return list_page(self._state(line), query, self._clock())

    async def stats(self, line: Line, bands_ms: Sequence[int] = ()) -> Stats:
        now_ms, state = self._clock(), self._state(line)
        return count(state, bands_ms, now_ms)

    async def clean(self, line: Line, limit: int = 200) -> Cleaned:
        """Write down what is true already: deaths, and records that are gone."""
        now_ms, state = self._clock(), self._state(line)
        counts: Counter[str] = Counter()
        for record in [record for record in state.shelf.records.values() if record.topic == line.topic]:
            if counts["work"] >= limit:
                break
            counts.update(state.shelf.tidy(record, now_ms))
        next_ms = state.tidy_ms()
        state.agenda_at_ms = next_ms or 0
        return Cleaned(
            expired=counts[Reason.EXPIRED],
            exhausted=counts[Reason.EXHAUSTED],
            purged=counts["purged"],
            dead_trimmed=counts["trimmed"],
            next_ms=next_ms,
            more=next_ms is not None and next_ms <= now_ms,
        )

    async def agenda_noted(self, line: Line, at_ms: int) -> None:
        self._state(line).agenda_at_ms = at_ms

    async def retire(self, line: Line, topic_too: bool = False) -> bool:
        now_ms, state = self._clock(), self._state(line)
        waited = state.wait_until_ms > now_ms
        kept = state.paused_until_ms > now_ms or state.policy_version or state.max_in_flight or state.rate.per_s
        if ((kept or waited) and not topic_too) or any(True for _ in state.jobs(now_ms)):
            return False
        del self._lines[line]
        if waited:
            self._state(line).wait_until_ms = state.wait_until_ms
            return True
        if not any(other.shelf is state.shelf for other in self._lines.values()):
            del self._shelves[_shelf_name(line)]
        return True

    def _state(self, line: Line) -> LineState:
        if line not in self._lines:
            self._lines[line] = LineState(line, self._shelves.setdefault(_shelf_name(line), Shelf()))
        return self._lines[line]

    @contextmanager
    def _change(self, line: Line) -> Generator[Change]:
        """Run one changing operation, then tell the engine what became true by it."""
        change = Change(self._state(line), self._clock())
        shelf, now_ms = change.shelf, change.now_ms
        watched = [other for other in self._watched if self._state(other).shelf is shelf]
        before = {other: self._state(other).next_ms(now_ms) for other in watched}
        yield change
        if self.events is None:
            return
        for other, before_ms in before.items():
            after_ms = self._state(other).next_ms(now_ms)
            if after_ms is not None and (before_ms is None or after_ms < before_ms):
                self.events.woken(other)
        note_ms = change.state.note_ms(change.touched, now_ms)
        if note_ms is not None:
            self.events.noted(line, note_ms)
        if not self.directory.knows(line.namespace, line.topic):
            self.events.unlisted(line)


def _shelf_name(line: Line) -> tuple[str, str | None, int]:
    return line.namespace, None if line.wide else line.topic, line.partition


def _sent(code: Code, record: Record, change: Change) -> SendResult:
    return SendResult(code, judged(record, change.now_ms).state, record.due_at_ms, record.number)
