"""The server as the dialect's pages show it: all of its processes as one node, which may be taken offline.

The processes exchange their reports as families with internal names, which the metrics page converts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from ...telemetry.families import Family, Merge, gauge
from .monitor import Counts, Report

SUMS, HIGHEST = "camellia_internal_sums", "camellia_internal_highest"
OFFLINE_FILE = "camellia-offline"
_NO_TOPIC = ("", "last_use_ms")


class CamelliaNode:
    """`ready`: whether the server accepts sends and pulls. `folder` is shared by its processes; None if there is only
    one. `families`: the merged metrics of all processes."""

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
        """The metrics of all its processes."""
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
