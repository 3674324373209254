"""The workers of one server exchange their metrics, so that a scrape shows the sum, whichever worker answers it.

    worker-INDEX-PID.sock     a living worker writes its samples to each connection
    worker-INDEX-PID.counts   what its counters and histograms showed last; it outlives the worker

Both are in a private folder. The worker that is scraped asks all others. For one that does not answer within a second
(it was killed, or starts, or stops) it reads the file, so no counter ever falls. Each worker writes its file before it
shows its samples, and every KEEP_S.

A worker that replaces a killed one inherits its counts, so the number of files does not grow. Its own file names the
files that it inherited. If one of those still exists, readers ignore it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ..engine.metrics import MAX_TOPICS
from ..metrics.metric import Kind, Samples, merge
from .topic_places import TopicPlaces

ANSWER_S = 1.0
KEEP_S = 1.0  # a killed worker loses at most the counts of this time, and none that a scrape has shown


class Report(msgspec.Struct):
    """The samples of one worker, with the counts that it inherited. `inherited`: from whose files."""

    inherited: list[str]
    samples: list[Samples]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Report).decode


class Siblings:
    """`folder` None: there are no siblings. `snapshot` returns the samples of this process. `counts`: those that must
    outlive it; gauges among them are left out. `pid` and `most_topics` are for tests."""

    def __init__(
        self,
        folder: Path | None,
        index: int,
        snapshot: Callable[[], list[Samples]],
        counts: Callable[[], list[Samples]],
        pid: int | None = None,
        most_topics: int = MAX_TOPICS,
    ) -> None:
        self._folder = folder
        self._slot = f"worker-{index}-"
        self._own = f"{self._slot}{os.getpid() if pid is None else pid}"
        self._snapshot = snapshot
        self._counts = counts
        self._places = TopicPlaces(folder, most_topics)
        self._inherited = Report([], [])
        self._kept = b""
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        if self._folder is None or self._server is not None:
            return
        earlier = [path.stem for path in sorted(self._folder.glob(f"{self._slot}*.counts")) if path.stem != self._own]
        counts = _without_inherited({stem: self._last(stem) for stem in earlier})
        self._inherited = Report(earlier, self._places.fold(merge(counts), whole=False))
        self._keep_on()
        for stem in earlier:
            for path in (self._path(stem, "sock"), self._path(stem, "counts")):
                path.unlink(missing_ok=True)
        path = self._path(self._own, "sock")
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._answer, path)
        path.chmod(0o600)

    async def stop(self) -> None:
        server, self._server = self._server, None
        if self._timer is not None:
            self._timer.cancel()
        if server is not None:
            server.close()
            self._keep()
            self._path(self._own, "sock").unlink(missing_ok=True)

    async def all(self) -> list[list[Samples]]:
        """The samples of this worker and of every other one, and the counts of those that have ended."""
        own = self._report()
        if self._folder is None:
            return [own.samples]
        others = sorted({path.stem for path in self._folder.glob("worker-*-*.*")} - {self._own})
        answers = await asyncio.gather(*map(self._ask, others))
        return _without_inherited({self._own: own, **dict(zip(others, answers, strict=True))})

    async def page(self) -> list[Samples]:
        """The samples of the whole server, with a bounded number of topics."""
        return self._places.fold(merge(await self.all()), whole=True)

    def _report(self) -> Report:
        """What this process shows now. Its counts are on disk when this returns."""
        self._keep()
        return Report(self._inherited.inherited, merge([self._snapshot(), self._inherited.samples]))

    def _keep(self) -> None:
        if self._folder is None:
            return
        counts = [samples for samples in self._counts() if samples.metric.kind is not Kind.GAUGE]
        kept = _encode(Report(self._inherited.inherited, merge([counts, self._inherited.samples])))
        if kept != self._kept:
            fresh = self._path(self._own, "new")
            fresh.write_bytes(kept)
            fresh.replace(self._path(self._own, "counts"))
            self._kept = kept

    def _keep_on(self) -> None:
        self._keep()
        self._timer = asyncio.get_running_loop().call_later(KEEP_S, self._keep_on)

    async def _answer(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(_encode(self._report()))
        writer.close()

    async def _ask(self, stem: str) -> Report | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self._path(stem, "sock"))
                try:
                    return _decode(await reader.read())
                finally:
                    writer.close()
        except (OSError, TimeoutError, msgspec.DecodeError):
            return self._last(stem)

    def _last(self, stem: str) -> Report | None:
        """What a worker showed last."""
        try:
            return _decode(self._path(stem, "counts").read_bytes())
        except (OSError, msgspec.DecodeError):
            return None

    def _path(self, stem: str, kind: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{stem}.{kind}"


def _without_inherited(reports: Mapping[str, Report | None]) -> list[list[Samples]]:
    """The samples of all reports, without those that another one has inherited."""
    found = {stem: report for stem, report in reports.items() if report is not None}
    inherited = {stem for report in found.values() for stem in report.inherited}
    return [report.samples for stem, report in found.items() if stem not in inherited]
