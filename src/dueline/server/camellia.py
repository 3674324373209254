"""What the camellia dialect needs from its server, and its metrics page.

Its metrics cover one server, which may be several processes. Siblings exchange them as internal metrics, which are
replaced by camellia's own metrics (dialects.camellia.metrics) before the page is shown.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from .._version import __version__
from ..dialects.camellia import CamelliaDialect, Counts, Report
from ..dialects.camellia import metrics as m
from ..dialects.camellia.encode import BANDS, TEXT
from ..engine.errors import DuelineError
from ..metrics import table
from ..metrics.metric import Metric, Samples

OFFLINE_FILE = "camellia-offline"
TOPICS_SHOWN = 200
FRESH_S = 5.0
_NO_TOPIC = ("", "last_use_ms")
_INTERNAL = (m.WINDOW_SUMS, m.WINDOW_MAXIMA)


class CamelliaNode:
    """The server as the dialect's pages see it. `folder` is shared by its processes; None if there is only one."""

    def __init__(
        self, folder: Path | None, ready: Callable[[], bool], samples: Callable[[], Awaitable[list[Samples]]]
    ) -> None:
        self._file = None if folder is None else folder / OFFLINE_FILE
        self._online = True
        self.ready = ready
        self._samples = samples

    def online(self) -> bool:
        return self._online if self._file is None else not self._file.exists()

    def set_online(self, online: bool) -> None:
        self._online = online
        if self._file is not None:
            self._file.unlink(missing_ok=True) if online else self._file.touch()

    async def report(self) -> Report:
        return report_of(await self._samples())


def samples_of(report: Report) -> list[Samples]:
    """One process's metrics, in the form that siblings exchange."""
    sums: dict[tuple[str, ...], float] = {}
    maxima: dict[tuple[str, ...], float] = {_NO_TOPIC: report.last_use_ms}
    for topic, counts in report.topics.items():
        for name in Counts.__struct_fields__:
            into = maxima if name == "gap_max_ms" else sums
            into[(topic, name)] = getattr(counts, name)
    return [m.WINDOW_SUMS.samples(sums), m.WINDOW_MAXIMA.samples(maxima)]


def report_of(merged: Iterable[Samples]) -> Report:
    """The metrics of all processes, from their merged samples."""
    report = Report({})
    for samples in merged:
        if samples.metric in _INTERNAL:
            for (topic, name), value in samples.numbers.items():
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
        self._topics: tuple[float, Samples | None] = (0.0, None)

    async def page(self, merged: list[Samples], store_answers: bool) -> list[Samples]:
        """The merged samples of all processes, with the internal ones replaced by camellia's metrics."""
        now_ms = time.time_ns() // 1_000_000
        topics = await self._topic_info(store_answers)
        return [
            *(samples for samples in merged if samples.metric not in _INTERNAL),
            _info(),
            m.UPTIME.value(now_ms - self._started_ms),
            m.START_TIME.value(self._started_ms),
            _memory(merged),
            self._cpu_usage(merged),
            _garbage(merged),
            *_window(report_of(merged)),
            *([topics] if topics is not None else []),
        ]

    def _cpu_usage(self, merged: list[Samples]) -> Samples:
        """Percent of one processor: CPU seconds per second since the last call, times 100."""
        now_s, used_s = self._now_s(), sum(_numbers(merged, table.PROCESS_CPU).values())
        before_s, before_used_s = self._cpu
        self._cpu = (now_s, used_s)
        usage = 100 * max(0.0, used_s - before_used_s) / max(now_s - before_s, 0.001) if before_used_s else 0.0
        return m.CPU.samples({("cpu_num",): os.cpu_count() or 1, ("usage",): usage})

    async def _topic_info(self, store_answers: bool) -> Samples | None:
        """Sizes of up to 200 topics, read from the store at most every 5 s."""
        now_s = self._now_s()
        fresh_until_s, samples = self._topics
        if now_s < fresh_until_s or not store_answers:
            return samples
        try:
            infos = await self._dialect.pages.topic_infos(TOPICS_SHOWN)
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


def content_type(accept: str, chosen: str) -> str:
    """The original's content type, unless the client asks for a version of the format."""
    return TEXT if chosen.startswith("text/plain") and "version=" not in accept else chosen


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
