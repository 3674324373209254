"""Counts of the last complete window, by topic. No I/O.

Windows follow the store's clock (every whole minute by default), so that those of all processes of a server coincide.
Before the first window is complete there is nothing to show. Calls are counted when they are answered. Lease timeouts
and dead messages are taken from the engine's metrics when a window is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from ...engine.job import LeasedJob, Reason
from ...engine.metrics import EngineMetrics

MAX_TOPICS = 1_000


class Counts(msgspec.Struct):
    """Metrics of one topic in one window. Gaps are measured from trigger time to pull."""

    send_msg: int = 0
    pull_msg: int = 0
    delete_msg: int = 0
    ack_msg: int = 0
    get_msg: int = 0
    trigger_msg_ready: int = 0
    trigger_msg_end_life: int = 0
    trigger_msg_timeout: int = 0
    gaps: int = 0
    gap_sum_ms: int = 0
    gap_max_ms: int = 0

    def calls(self) -> dict[str, int]:
        """The eight counters, by their names on the wire."""
        return {wire: getattr(self, name) for name, wire in CALLS.items()}

    def pulled(self, jobs: Sequence[LeasedJob], now_ms: int) -> None:
        self.pull_msg += len(jobs)
        for job in jobs:
            due_ms = job.first_due_at_ms
            gap_ms = max(0, now_ms - due_ms)
            self.gaps += 1
            self.gap_sum_ms += gap_ms
            self.gap_max_ms = max(self.gap_max_ms, gap_ms)
            self.trigger_msg_ready += job.delivery == 1 and job.created_at_ms < due_ms


CALLS = {
    "send_msg": "sendMsg",
    "pull_msg": "pullMsg",
    "delete_msg": "deleteMsg",
    "ack_msg": "ackMsg",
    "get_msg": "getMsg",
    "trigger_msg_ready": "triggerMsgReady",
    "trigger_msg_end_life": "triggerMsgEndLife",
    "trigger_msg_timeout": "triggerMsgTimeout",
}


class Report(msgspec.Struct):
    """The report of a process: its last complete window, and when this dialect was last used (0: never)."""

    topics: dict[str, Counts] = {}
    last_use_ms: int = 0


class Monitor:
    """`start` closes windows on time until `stop`; both may be called twice."""

    def __init__(self, namespace: str, window_ms: int, now_ms: Callable[[], int], metrics: EngineMetrics) -> None:
        self._namespace = namespace
        self._window_ms = window_ms
        self._now_ms = now_ms
        self._metrics = metrics
        self._number: int | None = None  # of the current window
        self._filling: dict[str, Counts] = {}
        self._last: dict[str, Counts] = {}
        self._seen: dict[str, tuple[int, int]] = {}  # lease timeouts and deaths already counted, by topic
        self._rejected: dict[str, int] = {}  # messages that died by ack=false, without a lease timeout
        self._alarm: asyncio.TimerHandle | None = None
        self.last_use_ms = 0

    def start(self) -> None:
        if self._alarm is None:
            self._tick()

    def stop(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def of(self, topic: str) -> Counts:
        """The counts of this topic in the current window. The number of topics is bounded; further ones are dropped."""
        self.last_use_ms = now_ms = self._now_ms()
        self.close_windows(now_ms)
        found = self._filling.get(topic)
        if found is None:
            found = Counts()
            if len(self._filling) < MAX_TOPICS:
                self._filling[topic] = found
        return found

    def rejected(self, topic: str) -> None:
        """Count a message that died by ack=false."""
        if topic in self._rejected or len(self._rejected) < MAX_TOPICS:
            self._rejected[topic] = self._rejected.get(topic, 0) + 1

    def report(self) -> Report:
        self.close_windows(self._now_ms())
        return Report(self._last, self.last_use_ms)

    def close_windows(self, now_ms: int) -> None:
        number = now_ms // self._window_ms
        if number == self._number:
            return
        if self._number is None:
            self._number = number
            return
        self._count_what_time_did()
        self._last = self._filling if number == self._number + 1 else {}
        self._filling = {}
        self._number = number

    def _count_what_time_did(self) -> None:
        for (namespace, topic), metrics in self._metrics.topics.items():
            if namespace != self._namespace:
                continue
            exhausted = metrics.dead[Reason.EXHAUSTED]
            over = metrics.leases_lost + exhausted - self._rejected.get(topic, 0)
            deaths = metrics.dead[Reason.EXPIRED] + exhausted
            seen_over, seen_deaths = self._seen.get(topic, (0, 0))
            self._seen[topic] = (over, deaths)
            if over > seen_over or deaths > seen_deaths:
                counts = self._filling.setdefault(topic, Counts())
                counts.trigger_msg_timeout += max(0, over - seen_over)
                counts.trigger_msg_end_life += max(0, deaths - seen_deaths)

    def _tick(self) -> None:
        now_ms = self._now_ms()
        self.close_windows(now_ms)
        rest_ms = self._window_ms - now_ms % self._window_ms
        self._alarm = asyncio.get_running_loop().call_later(rest_ms / 1000, self._tick)
