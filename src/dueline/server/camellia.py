"""What the camellia dialect needs from its server, and its metrics page.

Its metrics cover one server, which may be several processes. Siblings exchange them as families with internal names,
which are converted before the page is shown. The page uses the original's unprefixed names, because its dashboard
queries those. JVM metrics are replaced by the nearest equivalent, or left out.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from .._version import __version__
from ..dialects.camellia import CamelliaDialect, Counts, Report
from ..dialects.camellia.encode import BANDS, TEXT
from ..engine.errors import DuelineError
from ..telemetry.families import Family, Merge, gauge

SUMS, HIGHEST = "camellia_internal_sums", "camellia_internal_highest"
OFFLINE_FILE = "camellia-offline"
TOPICS_SHOWN = 200
FRESH_S = 5.0
_NO_TOPIC = ("", "last_use_ms")


class CamelliaNode:
    """The server as the dialect's pages see it. `folder` is shared by its processes; None if there is only one."""

    def __init__(
        self, folder: Path | None, ready: Callable[[], bool], families: Callable[[], Awaitable[list[Family]]]
    ) -> None:
        self._file = None if folder is None else folder / OFFLINE_FILE
        self._online = True
        self.ready = ready
        self._families = families

    def online(self) -> bool:
        return self._online if self._file is None else not self._file.exists()

    def set_online(self, online: bool) -> None:
        self._online = online
        if self._file is not None:
            self._file.unlink(missing_ok=True) if online else self._file.touch()

    async def report(self) -> Report:
        return report_of(await self._families())


def families_of(report: Report) -> list[Family]:
    """One process's metrics, in the form that siblings exchange."""
    sums: dict[tuple[str, ...], float] = {}
    highest: dict[tuple[str, ...], float] = {_NO_TOPIC: report.last_use_ms}
    for topic, counts in report.topics.items():
        for name in Counts.__struct_fields__:
            into = highest if name == "gap_max_ms" else sums
            into[(topic, name)] = getattr(counts, name)
    return [
        gauge(SUMS, "Metrics of one process.", sums, ("topic", "name")),
        gauge(HIGHEST, "Metrics of one process.", highest, ("topic", "name"), Merge.MAX),
    ]


def report_of(families: Iterable[Family]) -> Report:
    """The metrics of all processes, from their merged families."""
    report = Report({})
    for family in families:
        if family.name in (SUMS, HIGHEST):
            for (topic, name), value in family.numbers.items():
                if (topic, name) == _NO_TOPIC:
                    report.last_use_ms = int(value)
                else:
                    setattr(report.topics.setdefault(topic, Counts()), name, int(value))
    return report


class CamelliaMetrics:
    """Adds the metrics that camellia documents to our own."""

    def __init__(self, dialect: CamelliaDialect, now_s: Callable[[], float] = time.monotonic) -> None:
        self._dialect = dialect
        self._now_s = now_s
        self._started_ms = time.time_ns() // 1_000_000
        self._cpu = (now_s(), 0.0)
        self._topics: tuple[float, Family | None] = (0.0, None)

    async def page(self, families: list[Family], store_answers: bool) -> list[Family]:
        """The merged families of all processes, with the internal ones converted to camellia's names."""
        report = report_of(families)
        shown = [family for family in families if family.name not in (SUMS, HIGHEST)]
        now_ms = time.time_ns() // 1_000_000
        topics = await self._topic_info(store_answers)
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

    def _cpu_family(self, families: list[Family]) -> Family:
        """Percent of one processor: CPU seconds per second since the last call, times 100."""
        now_s, used_s = self._now_s(), _number(families, "process_cpu_seconds")
        before_s, before_used_s = self._cpu
        self._cpu = (now_s, used_s)
        usage = 100 * max(0.0, used_s - before_used_s) / max(now_s - before_s, 0.001) if before_used_s else 0.0
        numbers: dict[tuple[str, ...], float] = {("cpu_num",): os.cpu_count() or 1, ("usage",): usage}
        return gauge("cpu", "Processors of this machine, and percent of one that is used.", numbers, ("type",))

    async def _topic_info(self, store_answers: bool) -> Family | None:
        """Sizes of up to 200 topics, read from the store at most every 5 s."""
        now_s = self._now_s()
        fresh_until_s, family = self._topics
        if now_s < fresh_until_s or not store_answers:
            return family
        try:
            infos = await self._dialect.pages.topic_infos(TOPICS_SHOWN)
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


def content_type(accept: str, chosen: str) -> str:
    """The original's content type, unless the client asks for a version of the format."""
    return TEXT if chosen.startswith("text/plain") and "version=" not in accept else chosen


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
