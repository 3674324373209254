"""The metrics of HTTP requests and of store calls: plain numbers in plain dictionaries, read when a scrape comes in."""

from __future__ import annotations

from ..metrics import table
from ..metrics.metric import Histogram, Samples

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class _Answers:
    """The answers of one route, method and status. `durations` is that of the route."""

    __slots__ = ("count", "durations")

    def __init__(self, durations: Histogram) -> None:
        self.count = 0
        self.durations = durations


class HttpMetrics:
    """Requests by route, method and status, and their durations by route. Routes are names in the router, not paths."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, int], _Answers] = {}
        self._durations: dict[str, Histogram] = {}

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answer. Unknown methods are counted together, because clients choose the method."""
        answers = self._answers.get((route, method, status))
        if answers is None:
            answers = self._answers_of(route, method if method in METHODS else "other", status)
        answers.count += 1
        answers.durations.observe(seconds)

    def _answers_of(self, route: str, method: str, status: int) -> _Answers:
        durations = self._durations.setdefault(route, Histogram(table.HTTP_REQUEST_DURATION))
        return self._answers.setdefault((route, method, status), _Answers(durations))

    def samples(self) -> list[Samples]:
        return [
            table.HTTP_REQUESTS.samples(
                {(route, method, str(status)): one.count for (route, method, status), one in self._answers.items()}
            ),
            table.HTTP_REQUEST_DURATION.histograms({(route,): one for route, one in self._durations.items()}),
        ]


class CallMetrics:
    """Durations of store calls by script."""

    def __init__(self) -> None:
        self.durations: dict[str, Histogram] = {}

    def called(self, script: str, seconds: float) -> None:
        histogram = self.durations.get(script)
        if histogram is None:
            histogram = self.durations[script] = Histogram(table.STORE_CALL_DURATION)
        histogram.observe(seconds)

    def samples(self) -> list[Samples]:
        return [table.STORE_CALL_DURATION.histograms({(script,): one for script, one in self.durations.items()})]
