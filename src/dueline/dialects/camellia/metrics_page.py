"""The metrics page of the camellia dialect.

It covers one server, which may be several processes (`node`). `metrics` declares what it shows.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable

from ..._version import __version__
from ...engine.errors import DuelineError
from ...metrics import table
from ...metrics.metric import Metric, Samples
from ..contract import DialectMetrics
from . import metrics as m
from .encode import BANDS, TEXT
from .monitor import Monitor, Report
from .node import INTERNAL, report_of, samples_of
from .pages import CamelliaPages

TOPICS_SHOWN = 200
FRESH_S = 5.0


class CamelliaMetrics(DialectMetrics):
    """Adds the metrics that camellia documents to our own."""

    def __init__(
        self,
        monitor: Monitor,
        pages: CamelliaPages,
        store_answers: Callable[[], bool],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monitor = monitor
        self._pages = pages
        self._store_answers = store_answers
        self._now_s = now_s
        self._started_ms = time.time_ns() // 1_000_000
        self._cpu = (now_s(), 0.0)
        self._topics: tuple[float, Samples | None] = (0.0, None)

    def snapshot(self) -> list[Samples]:
        return samples_of(self._monitor.report())

    async def page(self, merged: list[Samples]) -> list[Samples]:
        """The merged samples of all processes, with the internal ones replaced by camellia's metrics."""
        now_ms = time.time_ns() // 1_000_000
        topics = await self._topic_info()
        return [
            *(samples for samples in merged if samples.metric not in INTERNAL),
            _info(),
            m.UPTIME.value(now_ms - self._started_ms),
            m.START_TIME.value(self._started_ms),
            _memory(merged),
            self._cpu_usage(merged),
            _garbage(merged),
            *_window(report_of(merged)),
            *([topics] if topics is not None else []),
        ]

    def content_type(self, accept: str, chosen: str) -> str:
        """The original's content type, unless the client asks for a version of the format."""
        return TEXT if chosen.startswith("text/plain") and "version=" not in accept else chosen

    def _cpu_usage(self, merged: list[Samples]) -> Samples:
        """Percent of one processor: CPU seconds per second since the last call, times 100."""
        now_s, used_s = self._now_s(), sum(_numbers(merged, table.PROCESS_CPU).values())
        before_s, before_used_s = self._cpu
        self._cpu = (now_s, used_s)
        usage = 100 * max(0.0, used_s - before_used_s) / max(now_s - before_s, 0.001) if before_used_s else 0.0
        return m.CPU.samples({("cpu_num",): os.cpu_count() or 1, ("usage",): usage})

    async def _topic_info(self) -> Samples | None:
        """Sizes of up to 200 topics, read from the store at most every 5 s."""
        now_s = self._now_s()
        fresh_until_s, samples = self._topics
        if now_s < fresh_until_s or not self._store_answers():
            return samples
        try:
            infos = await self._pages.topic_infos(TOPICS_SHOWN)
        except DuelineError:
            return samples
        numbers: dict[tuple[str, ...], float] = {}
        for info in infos:
            for name in ("readyQueueSize", "ackQueueSize", "waitingQueueSize"):
                numbers[(info["topic"], name)] = info[name]
            for band in BANDS:
                numbers[(info["topic"], _band_name(band))] = info["waitingQueueInfo"][f"sizeOf{band}"]
        samples = m.TOPIC_INFO.samples(numbers)
        self._topics = (now_s + FRESH_S, samples)
        return samples


def _band_name(band: str) -> str:
    low, _, high = band.partition("To")
    return f"size_{low}_{high.lower()}"


def _info() -> Samples:
    """Labels that would change with every scrape (the load) stay empty, because each value would be a new series."""
    values = {
        "camellia_version": __version__,
        "arch": platform.machine(),
        "os_name": platform.system(),
        "os_version": platform.release(),
        "vm_vendor": "Python Software Foundation",
        "vm_name": platform.python_implementation(),
        "vm_version": platform.python_version(),
        "jvm_info": "dueline",
    }
    return m.INFO.samples({tuple(values.get(label, "") for label in m.INFO.labels): 1})


def _memory(merged: list[Samples]) -> Samples:
    resident = sum(_numbers(merged, table.PROCESS_RESIDENT).values())
    total, free = _machine_memory()
    return m.MEMORY_INFO.samples(
        {
            ("free_memory",): free,
            ("total_memory",): resident,
            ("max_memory",): total,
            ("heap_memory_usage",): resident,
            ("no_heap_memory_usage",): 0,
            ("netty_direct_memory",): 0,
        }
    )


def _machine_memory() -> tuple[int, int]:
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page
    except (ValueError, OSError):
        return 0, 0


def _garbage(merged: list[Samples]) -> Samples:
    """Collections by generation. Python does not measure their duration, so none is shown."""
    collections = _numbers(merged, table.GC_COLLECTIONS)
    return m.GC.samples({(f"generation {generation}", "count"): count for (generation,), count in collections.items()})


def _window(report: Report) -> list[Samples]:
    """The last complete window."""
    request: dict[tuple[str, ...], float] = {}
    pull: dict[tuple[str, ...], float] = {}
    ready: dict[tuple[str, ...], float] = {}
    for topic, counts in list(report.topics.items())[:TOPICS_SHOWN]:
        for name, count in counts.calls().items():
            request[(topic, name)] = count
        if counts.gaps:
            pull[(topic, "count")], pull[(topic, "max")] = counts.gaps, counts.gap_max_ms
            pull[(topic, "avg")] = counts.gap_sum_ms / counts.gaps
        if counts.trigger_msg_ready:
            ready[(topic, "count")] = counts.trigger_msg_ready
            ready[(topic, "avg")] = ready[(topic, "max")] = 0
    return [m.REQUEST.samples(request), m.PULL_MSG_TIME_GAP.samples(pull), m.READY_QUEUE_TIME_GAP.samples(ready)]


def _numbers(merged: Iterable[Samples], metric: Metric) -> dict[tuple[str, ...], float]:
    return next((samples.numbers for samples in merged if samples.metric == metric), {})
