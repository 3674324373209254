"""A partition in memory: its jobs, its copy of the topic's settings, and its next times. No I/O.

A record set is the records within which ids are unique. It belongs to one partition of a topic; with `namespace_ids`
all topics of the namespace share it. A PartitionState is the view of one topic onto its record set.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ...engine.job import Partition, State
from ...engine.limits import LAST_MS
from .fencing import StoredFence
from .rates import Rate
from .records import Record, Status, judged, look, servable_from_ms, tidy_from_ms

AGENDA_GRAIN_MS = 10_000


@dataclass(slots=True)
class RecordSet:
    """Records by id, and the last number assigned. A number is a job's version and its order within a millisecond."""

    records: dict[str, Record] = field(default_factory=dict[str, Record])
    last_number: int = 0
    closed: int | None = None  # with `namespace_ids`: takes no new ids of any topic, since this version of the map

    def take_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def close(self, version: int, closed: bool) -> None:
        """Close the partition for all topics, or open it again. `version`: of the partition map; one older than
        that of the last close is ignored."""
        if version >= (self.closed or 0):
            self.closed = version if closed else None

    def find(self, id: str, now_ms: int) -> tuple[Record, Status] | None:
        """The job with this id at this moment; None if there is none or its retention is over."""
        record = self.records.get(id)
        status = None if record is None else look(record, now_ms)
        return None if record is None or status is None else (record, status)

    def tidy(self, record: Record, now_ms: int) -> Iterator[str]:
        """Record the death of a job, or remove the job if its retention is over. Yields the names of the counters to
        increase."""
        status = judged(record, now_ms)
        if look(record, now_ms) is None:
            del self.records[record.id]
            yield "trimmed" if status.state is State.DEAD else "purged"
            yield "work"
        elif record.ended is None and not status.live:
            record.end(State.DEAD, status.reason, status.at_ms)
            yield str(status.reason)
            yield "work"


@dataclass(slots=True)
class PartitionState:
    """The data of one partition besides its jobs."""

    partition: Partition
    record_set: RecordSet
    paused_until_ms: int = 0
    max_in_flight: int = 0
    policy_version: int = 0
    topic_closed: bool = False  # takes no new ids
    wait_until_ms: int = 0
    agenda_at_ms: int = 0
    history_dropped: int = 0
    rate: Rate = field(default_factory=Rate)
    fences: dict[str, StoredFence] = field(default_factory=dict[str, StoredFence])

    @property
    def closed(self) -> int | None:
        """The version since which this partition takes no new ids. None: it does."""
        return self.policy_version if self.topic_closed else self.record_set.closed

    def jobs(self, now_ms: int) -> Iterator[tuple[Record, Status]]:
        """Every job of this topic that exists at this moment."""
        for record in self.record_set.records.values():
            status = look(record, now_ms) if record.topic == self.partition.topic else None
            if status is not None:
                yield record, status

    def ready(self, now_ms: int) -> list[Record]:
        """The jobs that a pull may take, ordered by the time they became deliverable, then by number."""
        found = [record for record, status in self.jobs(now_ms) if status.state is State.READY]
        return sorted(found, key=lambda record: (record.time_ms, record.number))

    def live_deadlines(self, now_ms: int) -> list[int]:
        return sorted(record.time_ms for record, status in self.jobs(now_ms) if status.state is State.LEASED)

    def room(self, now_ms: int) -> int:
        """How many more jobs may be leased now."""
        if self.paused_until_ms > now_ms:
            return 0
        places = self.max_in_flight - len(self.live_deadlines(now_ms)) if self.max_in_flight else LAST_MS
        return min(places, self.rate.room(now_ms))

    def next_ms(self, now_ms: int) -> int | None:
        """The earliest time at which a pull could return a job if nothing else happens until then."""
        times = [servable_from_ms(record, now_ms) for record, _ in self.jobs(now_ms)]
        first_ms = min((time_ms for time_ms in times if time_ms is not None), default=None)
        if first_ms is None:
            return None
        if self.paused_until_ms > now_ms:
            if self.paused_until_ms >= LAST_MS:
                return None
            first_ms = max(first_ms, self.paused_until_ms)
        deadlines = self.live_deadlines(now_ms)
        if self.max_in_flight and len(deadlines) >= self.max_in_flight:
            first_ms = max(first_ms, deadlines[len(deadlines) - self.max_in_flight])
        return max(first_ms, self.rate.allowed_ms(now_ms)) if self.rate.per_s else first_ms

    def tidy_ms(self) -> int | None:
        """When clean-up has work next."""
        times = [
            tidy_from_ms(record) for record in self.record_set.records.values() if record.topic == self.partition.topic
        ]
        times += [fence.ends_ms for fence in self.fences.values()]
        return min((time_ms for time_ms in times if time_ms is not None), default=None)

    def note_ms(self, touched: list[Record], work_ms: list[int], now_ms: int) -> int | None:
        """When the touched records or other work need clean-up, if the directory needs a new hint for that. None: the
        hint that it has is early enough, or nothing needs clean-up."""
        times = [*map(tidy_from_ms, touched), *work_ms]
        first_ms = min((time_ms for time_ms in times if time_ms is not None), default=None)
        if first_ms is None:
            return None
        at_ms = -(-max(first_ms, now_ms) // AGENDA_GRAIN_MS) * AGENDA_GRAIN_MS
        return at_ms if at_ms < self.agenda_at_ms or self.agenda_at_ms <= now_ms else None
