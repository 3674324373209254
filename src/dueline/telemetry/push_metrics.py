"""The push metrics of a process: calls by topic and answer, their durations, calls in flight, refused URLs.

At most 200 topics have series of their own; the rest are counted together as "other". A topic that is no longer pushed
frees its place. The dispatchers call `called`, `in_flight`, `paused` and `gone`. The code that
refuses a URL calls `denied`.
"""

from __future__ import annotations

from collections import Counter

from ..engine.metrics import MAX_TOPICS, OTHER
from ..engine.push_log import Attempt
from ..metrics import table
from ..metrics.metric import Histogram, Samples

REFUSED = "refused"  # the failure kind of a call that the egress rules forbade at connect time
AT_SEND, AT_CONNECT = "send", "connect"
_Key = tuple[str, str]


class PushMetrics:
    """Plain numbers, read when a scrape comes in."""

    def __init__(self) -> None:
        self._durations: dict[_Key, Histogram] = {}  # its keys are the topics that have a place
        self._calls: dict[_Key, Counter[str]] = {}
        self._in_flight: dict[_Key, int] = {}
        self._paused: dict[_Key, bool] = {}
        self._denied: Counter[str] = Counter()

    def called(self, namespace: str, topic: str, attempt: Attempt, failure: str | None) -> None:
        """A call has ended. `failure` is its kind if no answer came: one of a few words defined by the server."""
        key = self._place(namespace, topic)
        answer = f"{attempt.status // 100}xx" if attempt.status else failure or "none"
        self._calls[key][answer] += 1
        self._durations[key].observe(attempt.duration_ms / 1000)
        if failure == REFUSED:
            self.denied(AT_CONNECT)

    def no_instance(self, namespace: str, topic: str, why: str) -> None:
        """There was nothing to call. This changes no metric."""

    def breaker(self, namespace: str, topic: str, failures: int, host: str | None) -> None:
        """The breaker has opened or closed. This changes no metric."""

    def in_flight(self, namespace: str, topic: str, calls: int) -> None:
        """Set the number of jobs of this topic that are being pushed now."""
        self._in_flight[namespace, topic] = calls

    def paused(self, namespace: str, topic: str, paused: bool) -> None:
        self._paused[namespace, topic] = paused

    def gone(self, namespace: str, topic: str) -> None:
        """This process no longer pushes this topic. Its place becomes free."""
        for metric in (self._durations, self._calls, self._in_flight, self._paused):
            metric.pop((namespace, topic), None)

    def denied(self, reason: str) -> None:
        """The egress rules forbade a URL: at connect time, or (AT_SEND) before anything was stored."""
        self._denied[reason] += 1

    def samples(self) -> list[Samples]:
        return [
            table.PUSH_REQUESTS.samples(
                {(*key, answer): count for key, calls in self._calls.items() for answer, count in calls.items()}
            ),
            table.PUSH_DURATION.histograms(self._durations),
            table.PUSH_INFLIGHT.samples(self._summed(self._in_flight)),
            table.PUSH_DENIED.samples({(reason,): count for reason, count in self._denied.items()}),
            table.PUSH_TARGET_PAUSED.samples({key: min(count, 1) for key, count in self._summed(self._paused).items()}),
        ]

    def _place(self, namespace: str, topic: str) -> _Key:
        """The name under which this topic is counted."""
        key = (namespace, topic)
        if key not in self._durations:
            if len(self._durations) - (OTHER in self._durations) >= MAX_TOPICS:
                key = OTHER
            if key not in self._durations:
                self._durations[key] = Histogram(table.PUSH_DURATION)
                self._calls[key] = Counter()
        return key

    def _summed(self, values: dict[_Key, int] | dict[_Key, bool]) -> dict[tuple[str, ...], float]:
        """The values by name. Topics without a place are summed, once no more places are free."""
        free = MAX_TOPICS - len(self._durations) + (OTHER in self._durations)
        found: dict[tuple[str, ...], float] = {}
        for key, value in values.items():
            name = key
            if key not in self._durations:
                name = key if free > 0 else OTHER
                free -= 1
            found[name] = found.get(name, 0) + value
        return found
