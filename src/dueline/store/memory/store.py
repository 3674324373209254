"""The store's operations over a dict of jobs: the readable form of the contract in `engine.store`.

There are no indexes, and nothing depends on clean-up. Nothing here awaits, so each operation is atomic.
Every changing operation runs inside `_change`, which afterwards sends the engine its events: wake-ups, clean-up work,
and partitions that the directory does not list.
"""

from __future__ import annotations

import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial

from ...engine.bands import Bands, ForecastPart
from ...engine.directory import TopicChange
from ...engine.fence import Fence
from ...engine.history import History, What, history_budget
from ...engine.job import BodyKind, Job, LeasedJob, Partition, Reason, State
from ...engine.limits import PULL_BYTES, Limits
from ...engine.open_groups import GroupPage
from ...engine.outcomes import OutcomeHook
from ...engine.posts import PostedByTask
from ...engine.store import (
    CleanOutcome,
    Code,
    Control,
    Edit,
    Extend,
    OnConflict,
    Outcome,
    Page,
    Pull,
    PullOutcome,
    Purge,
    Query,
    Ref,
    Release,
    Revive,
    SendItem,
    SendOutcome,
    Spare,
    StalePolicy,
    Stats,
)
from ...engine.store_events import Events
from . import dead, fencing, groups, histories, holders
from .audit_log import MemoryAuditLog
from .change import Change
from .charts import MemoryCharts
from .counts import banded, count
from .directory import MemoryDirectory
from .edits import edited
from .event_stream import MemoryEventStream
from .listing import group_page, list_page
from .outcome_reports import report
from .partitions import PartitionState, RecordSet
from .push_log import MemoryPushLog
from .records import Group, Record, Status, due_ms, is_overdue, job_of, judged, leased_job_of
from .tokens import MemoryTokens
from .workers import MemoryWorkers


class MemoryStore(PostedByTask):
    """`engine.store.Store` in memory. `clock` gives the store's time in whole milliseconds."""

    def __init__(self, clock: Callable[[], int], history_bytes: int = Limits().max_history_bytes) -> None:
        self._history_bytes = history_bytes
        self.directory = MemoryDirectory(clock, self._topic_changed)
        self.pushes = MemoryPushLog(clock)
        self.audit = MemoryAuditLog(clock)
        self.charts = MemoryCharts(clock)
        self.tokens = MemoryTokens(clock)
        self.stream = MemoryEventStream(clock)
        self.workers, self.hook = MemoryWorkers(clock), OutcomeHook()
        self.events: Events | None = None
        self._clock = clock
        self._partitions: dict[Partition, PartitionState] = {}
        self._record_sets: dict[tuple[str, str | None, int], RecordSet] = {}
        self._watched: set[Partition] = set()
        self._watches_topics = False
        self._token_base, self._token_numbers = secrets.token_hex(8), itertools.count(1)

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    def now_ms(self) -> int:
        return self._clock()

    async def watch(self, partition: Partition) -> None:
        self._watched.add(partition)

    async def unwatch(self, partition: Partition) -> None:
        self._watched.discard(partition)

    async def watch_topics(self) -> None:
        self._watches_topics = True

    def _topic_changed(self, change: TopicChange) -> None:
        if self._watches_topics and self.events is not None:
            self.events.topic_changed(change)

    def next_ms(self, partition: Partition) -> int | None:
        """The exact earliest time at which a pull could return a job. The model test checks waiting pulls with it."""
        return self._state(partition).next_ms(self._clock())

    async def send(self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0) -> list[SendOutcome]:
        state = self._state(partition)
        known = state.policy_version
        # Where a namespace has closed it, a partition need not know the policy.
        if policy_version < known or (policy_version > 0 == known and state.record_set.closed is None):
            raise StalePolicy(known)
        with self._change(partition) as change:
            return report(self.hook, "send", change, items, [self._send(change, item) for item in items])

    def _send(self, change: Change, item: SendItem) -> SendOutcome:
        if item.merge is not None:
            return groups.join(change, item, item.merge, partial(self._store, change))
        decided = None if item.occurrence is None else fencing.decided(change, item.occurrence)
        if decided is not None:
            return decided
        found = change.record_set.find(item.id, change.now_ms)
        if item.replaces is not None:
            return self._replace(change, item, item.replaces, found)
        if found is None:
            if change.state.closed is not None:
                return change.moved()
            if item.occurrence is not None:
                fencing.sent(change, item.occurrence)
            return _sent(Code.CREATED, self._store(change, item), change)
        old, status = found
        rule = item.on_live if status.live else item.on_ended
        if item.on_overdue is not None and is_overdue(old, status, change.now_ms):
            rule = item.on_overdue
        if rule is OnConflict.REPLACE:
            if change.state.closed is not None and status.state in (State.DONE, State.CANCELLED):
                del change.record_set.records[item.id]
                return change.moved()
            return _sent(Code.REPLACED, self._store(change, item), change)
        if old.topic != change.state.partition.topic:
            return SendOutcome(Code.ELSEWHERE, status.state, 0, 0, old.topic)
        same = item.occurrence is None and (rule is OnConflict.KEEP or item.fingerprint == old.fingerprint)
        return _sent(Code.KEPT if same else Code.ID_EXISTS, old, change)

    def _replace(
        self, change: Change, item: SendItem, version: int, found: tuple[Record, Status] | None
    ) -> SendOutcome:
        """Replace the live job that has this version; 0: there must be none."""
        old = found[0] if found is not None and found[1].live else None
        current = 0 if old is None else old.number
        if version != current:
            return SendOutcome(Code.VERSION_MISMATCH, State.DONE, 0, current)
        new = self._store(change, item)
        if old is not None:
            new.progress, new.started = old.progress, bool(old.progress)
        return _sent(Code.CREATED if old is None else Code.REPLACED, new, change)

    def _store(self, change: Change, item: SendItem, group: Group | None = None) -> Record:
        record = Record(
            id=item.id,
            topic=change.state.partition.topic,
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
        record.plan(due_ms(change.now_ms, item.delay_ms, item.at_ms), change.record_set.take_number(), change.now_ms)
        change.record_set.records[item.id] = record
        change.touched.append(record)
        return record

    async def pull(self, partition: Partition, pull: Pull) -> PullOutcome:
        with self._change(partition) as change:
            state, now_ms = change.state, change.now_ms
            if pull.wait_ms > 0:
                state.wait_until_ms = max(state.wait_until_ms, now_ms + pull.wait_ms)
            places = [credit for credit in pull.credits for _ in range(credit.max)]
            room = max(0, min(len(places), state.room(now_ms)))
            jobs: list[LeasedJob] = []
            taken_bytes = lost = 0
            more = False
            ready = state.ready(now_ms)
            for record in ready:
                if len(jobs) == room:
                    break
                over = record.leased
                into = groups.give_to_open(change, record) if over else None
                if into is not None:
                    # This pull filled the group and made it due, so the next pull can take it.
                    more = more or (into.time_ms <= now_ms and all(into is not one for one in ready))
                    continue
                taken_bytes += record.size
                if jobs and taken_bytes > PULL_BYTES:
                    more = True
                    break
                credit = places[len(jobs)]
                chosen_ms = credit.lease_ms if credit.lease_ms is not None else record.policy.lease_ms
                lease_ms = pull.default_lease_ms if chosen_ms is None else chosen_ms
                jobs.append(self._lease(change, record, lease_ms, credit.by))
                lost += over
            state.rate.took(len(jobs), now_ms)
            if self.hook.outcomes is not None:
                self.hook.outcomes.pulled(partition, jobs, pull.credits)
            return PullOutcome(
                jobs,
                state.next_ms(now_ms),
                more and len(jobs) < room,
                now_ms,
                leases_lost=lost,
                policy_version=state.policy_version,
            )

    def _lease(self, change: Change, record: Record, lease_ms: int, by: str | None) -> LeasedJob:
        late_ms = change.now_ms - record.time_ms
        histories.remember_lost(change, record)
        record.deliveries += 1
        record.leased = record.started = True
        histories.remember(change, record, What.DELIVERED, attempt=record.attempts, by=by)
        record.token = f"{self._token_base}-{next(self._token_numbers)}"
        record.time_ms = change.now_ms + lease_ms
        record.updated_at_ms = change.now_ms
        if record.group is not None:
            record.group.open = False
        change.touched.append(record)
        return leased_job_of(record, record.token, late_ms)

    async def ack(self, partition: Partition, items: Sequence[Ref]) -> list[Outcome]:
        with self._change(partition) as change:
            return report(self.hook, "ack", change, items, [holders.ack(change, item) for item in items])

    async def release(self, partition: Partition, items: Sequence[Release]) -> list[Outcome]:
        with self._change(partition) as change:
            return report(self.hook, "release", change, items, [holders.release(change, item) for item in items])

    async def extend(self, partition: Partition, items: Sequence[Extend]) -> list[Outcome]:
        with self._change(partition) as change:
            return [holders.extend(change, item) for item in items]

    async def cancel(
        self, partition: Partition, ids: Sequence[str], forget: bool = False, spare: Spare = Spare.NONE
    ) -> list[Outcome]:
        with self._change(partition) as change:
            done = [self._cancel(change, id, forget, spare) for id in ids]
            return report(self.hook, "cancel", change, [Ref(id) for id in ids], done)

    def _cancel(self, change: Change, id: str, forget: bool, spare: Spare) -> Outcome:
        found = change.find(id)
        if isinstance(found, Outcome):
            return found
        record, status = found
        if spare is Spare.LEASED and status.state is State.LEASED:
            return Outcome(Code.JOB_LEASED)
        ended = status.state in (State.DONE, State.DEAD)
        if spare is Spare.OVERDUE and is_overdue(record, status, change.now_ms):
            ended = True
        elif status.live:
            record.end(State.CANCELLED, None, change.now_ms)
            change.touched.append(record)
        if forget:
            del change.record_set.records[id]
        return Outcome(Code.ALREADY_DONE if ended else Code.OK)

    async def edit(self, partition: Partition, items: Sequence[Edit]) -> list[Outcome]:
        with self._change(partition) as change:
            return report(self.hook, "edit", change, items, [edited(change, item) for item in items])

    async def revive(self, partition: Partition, revive: Revive) -> list[tuple[str, Outcome]]:
        with self._change(partition) as change:
            ids = dead.dead_ids(change, revive.limit) if revive.ids is None else revive.ids
            done = report(self.hook, "revive", change, ids, [dead.revive(change, id, revive) for id in ids])
            return list(zip(ids, done, strict=True))

    async def purge(self, partition: Partition, purge: Purge) -> list[tuple[str, Outcome]]:
        with self._change(partition) as change:
            ids = dead.dead_ids(change, purge.limit) if purge.ids is None else purge.ids
            done = report(self.hook, "purge", change, ids, [dead.purge(change, id) for id in ids])
            return list(zip(ids, done, strict=True))

    async def control(self, partition: Partition, control: Control) -> None:
        if partition.namespace_ids and not partition.topic:
            self._state(partition).record_set.close(control.policy_version or 0, bool(control.closed))
            return
        with self._change(partition) as change:
            state = change.state
            if control.pause_until_ms is not None:
                state.paused_until_ms = control.pause_until_ms
            if control.max_in_flight is not None:
                state.max_in_flight = control.max_in_flight
            if control.rate_per_s is not None:
                state.rate.set(control.rate_per_s, change.now_ms)
            if control.policy_version is not None:
                if control.closed is not None and control.policy_version >= state.policy_version:
                    self._close(change, control.closed)
                state.policy_version = max(state.policy_version, control.policy_version)

    def _close(self, change: Change, closed: bool) -> None:
        state = change.state
        wakes = closed and not state.topic_closed and state.wait_until_ms > change.now_ms
        state.topic_closed = closed
        if wakes and state.partition in self._watched and self.events is not None:
            self.events.woken(state.partition)

    async def fence(self, partition: Partition, fences: Sequence[Fence]) -> list[Fence]:
        with self._change(partition) as change:
            return fencing.write(change, fences)

    async def fences(self, partition: Partition, cursor: bytes = b"") -> tuple[list[Fence], bytes | None]:
        return [fencing.shown(*entry) for entry in self._state(partition).fences.items()], None

    async def read(self, partition: Partition, ids: Sequence[str], body: bool = True) -> list[Job | None]:
        now_ms, record_set = self._clock(), self._state(partition).record_set
        found = [record_set.find(id, now_ms) for id in ids]
        mine = [one if one is not None and partition.topic in ("", one[0].topic) else None for one in found]
        return [None if one is None else job_of(*one, body) for one in mine]

    async def history(self, partition: Partition, id: str) -> History | None:
        found = self._state(partition).record_set.find(id, self._clock())
        return None if found is None or found[0].topic != partition.topic else histories.shown(*found)

    async def list(self, partition: Partition, query: Query) -> Page:
        return list_page(self._state(partition), query, self._clock())

    async def groups(self, partition: Partition, cursor: bytes, limit: int) -> GroupPage:
        return group_page(self._state(partition), cursor, limit, self._clock())

    async def stored_ids(self, partition: Partition, limit: int) -> frozenset[str] | None:
        ids = frozenset(self._state(partition).record_set.records)
        return None if len(ids) > limit else ids

    async def stats(self, partition: Partition, edges_ms: Sequence[int] = (), from_now: bool = False) -> Stats:
        return count(self._state(partition), edges_ms, from_now, self._clock())

    async def forecast(self, parts: Sequence[ForecastPart], edges_ms: Sequence[int]) -> Bands:
        return banded([(self._state(part.partition), part.paused_bands) for part in parts], edges_ms, self._clock())

    async def clean(self, partition: Partition, limit: int = 200) -> CleanOutcome:
        """Make jobs dead whose ttl or attempts are over, and remove records whose retention is over."""
        now_ms, state = self._clock(), self._state(partition)
        counts: Counter[str] = Counter()
        for record in [record for record in state.record_set.records.values() if record.topic == partition.topic]:
            if counts["work"] >= limit:
                break
            did = list(state.record_set.tidy(record, now_ms))
            counts.update(did)
            if self.hook.outcomes is not None and record.reason is not None and record.reason in did:
                self.hook.outcomes.died(partition, [(record.id, record.reason)])
        for schedule, fence in list(state.fences.items()):
            if fence.ends_ms is not None and fence.ends_ms <= now_ms:
                del state.fences[schedule]
        next_ms = state.tidy_ms()
        state.agenda_at_ms = next_ms or 0
        return CleanOutcome(
            expired=counts[Reason.EXPIRED],
            exhausted=counts[Reason.EXHAUSTED],
            purged=counts["purged"],
            dead_trimmed=counts["trimmed"],
            next_ms=next_ms,
            more=next_ms is not None and next_ms <= now_ms,
        )

    async def agenda_noted(self, partition: Partition, at_ms: int) -> None:
        self._state(partition).agenda_at_ms = at_ms

    async def retire(self, partition: Partition, topic_too: bool = False) -> bool:
        now_ms, state = self._clock(), self._state(partition)
        waited = state.wait_until_ms > now_ms
        kept = state.paused_until_ms > now_ms or state.policy_version or state.max_in_flight or state.rate.per_s
        if ((kept or waited) and not topic_too) or state.fences or any(True for _ in state.jobs(now_ms)):
            return False
        del self._partitions[partition]
        if waited:
            self._state(partition).wait_until_ms = state.wait_until_ms
            return True
        if state.record_set.closed is None and not any(
            other.record_set is state.record_set for other in self._partitions.values()
        ):
            del self._record_sets[_set_name(partition)]
        return True

    def _state(self, partition: Partition) -> PartitionState:
        if partition not in self._partitions:
            self._partitions[partition] = PartitionState(
                partition, self._record_sets.setdefault(_set_name(partition), RecordSet())
            )
        return self._partitions[partition]

    @contextmanager
    def _change(self, partition: Partition) -> Generator[Change]:
        """Run one changing operation, then send its events to the engine."""
        budget = history_budget(self._history_bytes, partition)
        change = Change(self._state(partition), self._clock(), budget)
        record_set, now_ms = change.record_set, change.now_ms
        watched = [other for other in self._watched if self._state(other).record_set is record_set]
        before = {other: self._state(other).next_ms(now_ms) for other in watched}
        yield change
        if self.events is None:
            return
        for other, before_ms in before.items():
            after_ms = self._state(other).next_ms(now_ms)
            if after_ms is not None and (before_ms is None or after_ms < before_ms):
                self.events.woken(other)
        note_ms = change.state.note_ms(change.touched, change.work_ms, now_ms)
        if note_ms is not None:
            self.events.noted(partition, note_ms)
        if not self.directory.knows(partition.namespace, partition.topic):
            self.events.unlisted(partition)


def _set_name(partition: Partition) -> tuple[str, str | None, int]:
    return partition.namespace, None if partition.namespace_ids else partition.topic, partition.number


def _sent(code: Code, record: Record, change: Change) -> SendOutcome:
    return SendOutcome(code, judged(record, change.now_ms).state, record.due_at_ms, record.number)
