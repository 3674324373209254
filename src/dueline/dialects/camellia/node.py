"""The server as the dialect's pages show it: all of its processes as one node, which may be taken offline.

The processes exchange their reports as internal metrics, which the metrics page replaces by camellia's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from ...metrics.metric import Samples
from .metrics import WINDOW_MAXIMA, WINDOW_SUMS
from .monitor import Counts, Report

INTERNAL = (WINDOW_SUMS, WINDOW_MAXIMA)
OFFLINE_FILE = "camellia-offline"
_NO_TOPIC = ("", "last_use_ms")


class CamelliaNode:
    """`ready`: whether the server accepts sends and pulls. `folder` is shared by its processes; None if there is only
    one. `samples`: the merged metrics of all processes."""

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
        """The metrics of all its processes."""
        return report_of(await self._samples())


def samples_of(report: Report) -> list[Samples]:
    """One process's metrics, in the form that siblings exchange."""
    sums: dict[tuple[str, ...], float] = {}
    maxima: dict[tuple[str, ...], float] = {_NO_TOPIC: report.last_use_ms}
    for topic, counts in report.topics.items():
        for name in Counts.__struct_fields__:
            into = maxima if name == "gap_max_ms" else sums
            into[(topic, name)] = getattr(counts, name)
    return [WINDOW_SUMS.samples(sums), WINDOW_MAXIMA.samples(maxima)]


def report_of(merged: Iterable[Samples]) -> Report:
    """The metrics of all processes, from their merged samples."""
    report = Report({})
    for samples in merged:
        if samples.metric in INTERNAL:
            for (topic, name), value in samples.numbers.items():
                if (topic, name) == _NO_TOPIC:
                    report.last_use_ms = int(value)
                else:
                    setattr(report.topics.setdefault(topic, Counts()), name, int(value))
    return report
