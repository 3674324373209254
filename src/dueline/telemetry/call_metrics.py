"""The metrics of HTTP requests and of store calls: plain numbers in plain dictionaries, read when a scrape comes in."""

from __future__ import annotations

from ..metrics import table
from ..metrics.metric import Histogram, Samples

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    """Requests by route, method and status, and their durations by route. Routes are names in the router, not paths."""

    def __init__(self) -> None:
        self._durations: dict[tuple[str, str, int], Histogram] = {}  # also the numbers of requests

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answer. Unknown methods are counted together, because clients choose the method."""
        durations = self._durations.get((route, method, status))
        if durations is None:
            key = (route, method if method in METHODS else "other", status)
            durations = self._durations.setdefault(key, Histogram(table.HTTP_REQUEST_DURATION))
        durations.observe(seconds)

    def samples(self) -> list[Samples]:
        counts: dict[tuple[str, ...], float] = {}
        by_route: dict[tuple[str, ...], Histogram] = {}
        for (route, method, status), one in self._durations.items():
            counts[(route, method, str(status))] = sum(one.counts)
            by_route.setdefault((route,), Histogram(table.HTTP_REQUEST_DURATION)).add(one)
        return [table.HTTP_REQUESTS.samples(counts), table.HTTP_REQUEST_DURATION.histograms(by_route)]


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
