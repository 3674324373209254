"""The metrics page of the camellia dialect.

It covers one server, which may be several processes (`node`). It uses the original's unprefixed names, because the
original's dashboard queries those. JVM metrics are replaced by the nearest equivalent, or left out.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable

from ..._version import __version__
from ...engine.errors import DuelineError
from ...telemetry.families import Family, gauge
from ..contract import DialectMetrics
from .encode import BANDS, TEXT
from .monitor import Monitor, Report
from .node import HIGHEST, SUMS, families_of, report_of
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
        self._topics: tuple[float, Family | None] = (0.0, None)

    def snapshot(self) -> list[Family]:
        return families_of(self._monitor.report())

    async def page(self, families: list[Family]) -> list[Family]:
        """The merged families of all processes, with the internal ones converted to camellia's names."""
        report = report_of(families)
        shown = [family for family in families if family.name not in (SUMS, HIGHEST)]
        now_ms = time.time_ns() // 1_000_000
        topics = await self._topic_info()
        return [
            *shown,
            _info(),
            gauge("uptime", "Milliseconds since the start.", {(): now_ms - self._started_ms}),
            gauge("start_time", "When it started, in milliseconds.", {(): self._started_ms}),
            _memory(families),
            self._cpu_family(families),
            _garbage(families),
            *_window(report),
            *([topics] if topics is not None else []),
        ]

    def content_type(self, accept: str, chosen: str) -> str:
        """The original's content type, unless the client asks for a version of the format."""
        return TEXT if chosen.startswith("text/plain") and "version=" not in accept else chosen

    def _cpu_family(self, families: list[Family]) -> Family:
        """Percent of one processor: CPU seconds per second since the last call, times 100."""
        now_s, used_s = self._now_s(), _number(families, "process_cpu_seconds")
        before_s, before_used_s = self._cpu
        self._cpu = (now_s, used_s)
        usage = 100 * max(0.0, used_s - before_used_s) / max(now_s - before_s, 0.001) if before_used_s else 0.0
        numbers: dict[tuple[str, ...], float] = {("cpu_num",): os.cpu_count() or 1, ("usage",): usage}
        return gauge("cpu", "Processors of this machine, and percent of one that is used.", numbers, ("type",))

    async def _topic_info(self) -> Family | None:
        """Sizes of up to 200 topics, read from the store at most every 5 s."""
        now_s = self._now_s()
        fresh_until_s, family = self._topics
        if now_s < fresh_until_s or not self._store_answers():
            return family
        try:
            infos = await self._pages.topic_infos(TOPICS_SHOWN)
        except DuelineError:
            return family
        numbers: dict[tuple[str, ...], float] = {}
        for info in infos:
            for name in ("readyQueueSize", "ackQueueSize", "waitingQueueSize"):
                numbers[(info["topic"], name)] = info[name]
            for band in BANDS:
                numbers[(info["topic"], _band_name(band))] = info["waitingQueueInfo"][f"sizeOf{band}"]
        family = gauge("topic_info", "Messages by topic and queue.", numbers, ("topic", "type"))
        self._topics = (now_s + FRESH_S, family)
        return family


def _band_name(band: str) -> str:
    low, _, high = band.partition("To")
    return f"size_{low}_{high.lower()}"


def _info() -> Family:
    """Labels that would change with every scrape (the load) stay empty, because each value would be a new series."""
    labels = {
        "camellia_version": __version__,
        "arch": platform.machine(),
        "os_name": platform.system(),
        "os_version": platform.release(),
        "system_load_average": "",
        "vm_vendor": "Python Software Foundation",
        "vm_name": platform.python_implementation(),
        "vm_version": platform.python_version(),
        "jvm_info": "dueline",
        "java_version": "",
    }
    return gauge("info", "What runs here.", {tuple(labels.values()): 1}, tuple(labels))


def _memory(families: list[Family]) -> Family:
    resident = _number(families, "process_resident_memory_bytes")
    total, free = _machine_memory()
    numbers: dict[tuple[str, ...], float] = {
        ("free_memory",): free,
        ("total_memory",): resident,
        ("max_memory",): total,
        ("heap_memory_usage",): resident,
        ("no_heap_memory_usage",): 0,
        ("netty_direct_memory",): 0,
    }
    return gauge("memory_info", "Bytes: resident of all processes; free and all of the machine.", numbers, ("type",))


def _machine_memory() -> tuple[int, int]:
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page
    except (ValueError, OSError):
        return 0, 0


def _garbage(families: list[Family]) -> Family:
    """Collections by generation. Python does not measure their duration, so none is shown."""
    numbers: dict[tuple[str, ...], float] = {}
    for family in families:
        if family.name == "python_gc_collections":
            for labels, count in family.numbers.items():
                numbers[(f"generation {labels[0]}" if labels else "all", "count")] = count
    return gauge("gc", "Garbage collections.", numbers, ("name", "type"))


def _window(report: Report) -> list[Family]:
    """The last complete window."""
    labels = ("topic", "type")
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
    return [
        gauge("request", "Calls and events of the last complete window.", request, labels),
        gauge("pull_msg_time_gap", "Milliseconds from trigger time to pull, last complete window.", pull, labels),
        gauge("ready_queue_time_gap", "Milliseconds from trigger time to ready, last complete window.", ready, labels),
    ]


def _number(families: Iterable[Family], name: str) -> float:
    return next((sum(family.numbers.values()) for family in families if family.name == name), 0.0)
