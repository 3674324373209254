"""The metrics of HTTP requests and of store calls: plain numbers in plain dictionaries, read when a scrape comes in."""

from __future__ import annotations

from ..metrics import table
from ..metrics.metric import Histogram, Samples

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class HttpMetrics:
    """Requests by route, method and status, and their durations by route. Routes are names in the router, not paths."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], int] = {}
        self.durations: dict[str, Histogram] = {}

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one answer. Unknown methods are counted together, because clients choose the method."""
        key = (route, method if method in METHODS else "other", status)
        self.requests[key] = self.requests.get(key, 0) + 1
        histogram = self.durations.get(route)
        if histogram is None:
            histogram = self.durations[route] = Histogram(table.HTTP_REQUEST_DURATION)
        histogram.observe(seconds)

    def samples(self) -> list[Samples]:
        return [
            table.HTTP_REQUESTS.samples(
                {(route, method, str(status)): count for (route, method, status), count in self.requests.items()}
            ),
            table.HTTP_REQUEST_DURATION.histograms({(route,): one for route, one in self.durations.items()}),
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
