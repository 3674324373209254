"""The server's own metrics on the hot path: plain numbers in plain dictionaries, read when a scrape comes in."""

from __future__ import annotations

from .families import Buckets, Family, Histogram, Kind, counter

HTTP_BOUNDS_S = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)
CALL_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
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
            histogram = self.durations[route] = Histogram(HTTP_BOUNDS_S)
        histogram.observe(seconds)

    def families(self) -> list[Family]:
        return [
            counter(
                "dueline_http_requests",
                "Answered HTTP requests.",
                ("route", "method", "code"),
                {(route, method, str(status)): count for (route, method, status), count in self.requests.items()},
            ),
            durations("dueline_http_request_duration_seconds", "From request to answer.", "route", self.durations),
        ]


class CallMetrics:
    """Durations of store calls by script."""

    def __init__(self) -> None:
        self.durations: dict[str, Histogram] = {}

    def called(self, script: str, seconds: float) -> None:
        histogram = self.durations.get(script)
        if histogram is None:
            histogram = self.durations[script] = Histogram(CALL_BOUNDS_S)
        histogram.observe(seconds)

    def families(self) -> list[Family]:
        help = "One script call, as seen here."
        return [durations("dueline_store_call_duration_seconds", help, "script", self.durations)]


def durations(name: str, help: str, label: str, histograms: dict[str, Histogram]) -> Family:
    """A histogram family with one label."""
    bounds = next(iter(histograms.values())).bounds if histograms else ()
    samples = {(value,): Buckets(list(h.counts), h.total) for value, h in histograms.items()}
    return Family(name, Kind.HISTOGRAM, help, (label,), bounds=bounds, buckets=samples)
