"""The metrics of this process, as plain numbers for telemetry. No I/O.

A topic has metrics from its first counted change until it is removed. Names that were only queried take no slot. At
most 200 topics have metrics of their own; all others are counted per namespace and shown together under `OTHER`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Literal

from ..metrics.metric import Histogram
from ..metrics.table import DELIVERY_LATENESS, JOB_ATTEMPTS, SCHEDULE_LATENESS
from .job import LeasedJob, Reason
from .limits import INTERNAL_NAMESPACE
from .store import CleanOutcome, Code, Outcome

MAX_TOPICS = 200
MAX_NAMESPACES = 64  # whose other topics are counted apart from each other
OTHER = ("other", "other")

Word = Literal["acked", "extended", "cancelled", "revived", "purged"]

_ATTEMPTS = tuple(int(bound) for bound in JOB_ATTEMPTS.bounds)
_LATE_BOUNDS_MS = tuple(int(bound * 1000) for bound in DELIVERY_LATENESS.bounds)
_attempts_place, _late_place = partial(bisect_left, _ATTEMPTS), partial(bisect_left, _LATE_BOUNDS_MS)


class TopicMetrics:
    """Counts of one topic since the start of this process. `is_own`: no other topic has them, and it is not gone.

    `late` has one count per bound of DELIVERY_LATENESS (not cumulative) and a last one for everything later; so has
    `attempts`, by JOB_ATTEMPTS.
    """

    COUNTS = (
        "acked",
        "attempts",
        "attempts_sum",
        "cancelled",
        "dead",
        "dead_trimmed",
        "extended",
        "late",
        "late_sum_ms",
        "leases_lost",
        "pulled",
        "purged",
        "released",
        "revived",
        "sent",
    )
    __slots__ = (*COUNTS, "is_own")

    def __init__(self, is_own: bool = False) -> None:
        self.is_own = is_own
        self.sent = {"created": 0, "kept": 0, "replaced": 0, "appended": 0, "refused": 0}
        self.dead = {reason.value: 0 for reason in Reason}
        self.late = [0] * (len(_LATE_BOUNDS_MS) + 1)
        self.late_sum_ms = 0
        self.attempts = [0] * (len(_ATTEMPTS) + 1)
        self.attempts_sum = 0
        self.pulled = self.acked = self.released = self.extended = self.leases_lost = 0
        self.cancelled = self.revived = self.purged = self.dead_trimmed = 0

    def add(self, other: TopicMetrics) -> None:
        for name in self.COUNTS:
            mine, theirs = getattr(self, name), getattr(other, name)
            if isinstance(mine, dict):
                setattr(self, name, {word: count + theirs[word] for word, count in mine.items()})
            elif isinstance(mine, list):
                setattr(self, name, [a + b for a, b in zip(mine, theirs, strict=True)])
            else:
                setattr(self, name, mine + theirs)

    def count(self, word: Word, number: int) -> None:
        setattr(self, word, getattr(self, word) + number)

    def count_pulled(self, jobs: Sequence[LeasedJob], deaths: Iterable[Reason], leases_lost: int) -> None:
        late_ms, attempts = [job.late_ms for job in jobs], [job.attempt for job in jobs]
        self.pulled += len(jobs)
        self.leases_lost += leases_lost
        self.late_sum_ms += sum(late_ms)
        self.attempts_sum += sum(attempts)
        for place in map(_late_place, late_ms):
            self.late[place] += 1
        for place in map(_attempts_place, attempts):
            self.attempts[place] += 1
        for reason in deaths:
            self.dead[reason] += 1

    def count_released(self, results: Iterable[Outcome]) -> None:
        for result in results:
            if result.code is Code.DEAD and result.reason is not None:
                self.dead[result.reason] += 1
            elif result.code is Code.OK:
                self.released += 1

    def count_cleaned(self, cleaned: CleanOutcome) -> None:
        self.dead[Reason.EXPIRED] += cleaned.expired
        self.dead[Reason.EXHAUSTED] += cleaned.exhausted
        self.dead_trimmed += cleaned.dead_trimmed


class ScheduleMetrics:
    """What became of the occurrences of schedules. `failed` counts tries."""

    def __init__(self) -> None:
        self.fired = self.missed = self.skipped = self.failed = 0
        self.late = Histogram(SCHEDULE_LATENESS)

    def count_fired(self, late_ms: int) -> None:
        self.fired += 1
        self.late.observe(late_ms / 1000)


class EngineMetrics:
    """Metrics per (namespace, topic), and those of schedules."""

    def __init__(self) -> None:
        self.schedules = ScheduleMetrics()
        self._own: dict[tuple[str, str], TopicMetrics] = {}
        self._others: dict[str, TopicMetrics] = {}  # of the other topics, by namespace

    @property
    def topics(self) -> dict[tuple[str, str], TopicMetrics]:
        """By topic, as they are shown. `OTHER` is the sum of all topics without metrics of their own."""
        if not self._others:
            return self._own
        other = TopicMetrics()
        for one in self._others.values():
            other.add(one)
        return {**self._own, OTHER: other}

    def of(self, namespace: str, topic: str) -> TopicMetrics:
        """The topic's metrics, or those that it shares with others once there are too many topics."""
        key = (namespace, topic)
        found = self._own.get(key)
        if found is not None:
            return found
        if namespace == INTERNAL_NAMESPACE:
            return TopicMetrics()  # no user's jobs: not counted
        if len(self._own) < MAX_TOPICS:
            return self._own.setdefault(key, TopicMetrics(is_own=True))
        known = namespace in self._others or len(self._others) < MAX_NAMESPACES
        return self._others.setdefault(namespace if known else "", TopicMetrics())

    def by_topic(self) -> Iterator[tuple[str, str, TopicMetrics]]:
        """All metrics, each with its namespace and topic. They are "" for metrics that many of them share."""
        for (namespace, topic), metrics in self._own.items():
            yield namespace, topic, metrics
        for namespace, metrics in self._others.items():
            yield namespace, "", metrics

    def drop(self, namespace: str, topic: str) -> None:
        """The topic is gone; its slot is free for another."""
        found = self._own.pop((namespace, topic), None)
        if found is not None:
            found.is_own = False


def succeeded(results: Iterable[Outcome]) -> int:
    """How many of the results are OK."""
    ok = Code.OK  # looking up a member of an enum is slow
    return len([result for result in results if result.code is ok])
