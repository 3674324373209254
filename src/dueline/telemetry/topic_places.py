"""Which topics have series of their own on the page of a server with several processes.

Each process counts its first 200 topics apart, and a process that is restarted inherits what others had counted. So
together they know many more, and the page would grow with every restart. A file in their folder names the topics that
have a place on the page. All others are added to `OTHER`. A topic keeps its place while a process counts it: otherwise
its counts would move between two series, which looks like a burst.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..engine.metrics import OTHER
from ..metrics.metric import Samples, renamed

_LABELS = ("namespace", "topic")
Topic = tuple[str, str]


class TopicPlaces:
    """`folder` None: there is one process, which bounds its own topics."""

    def __init__(self, folder: Path | None, most: int) -> None:
        self._path = None if folder is None else folder / "topics"
        self._most = most

    def fold(self, samples: Sequence[Samples], *, whole: bool) -> list[Samples]:
        """The samples with at most this many topics. `whole`: they are those of all processes, so a topic that is not
        among them gives its place back."""
        found = {_topic(labels) for one in samples if _has_topics(one) for labels in (*one.numbers, *one.buckets)}
        found.discard(OTHER)
        if self._path is None or not found:
            return list(samples)
        own = self._placed(self._path, found, whole)

        def shown(labels: tuple[str, ...]) -> tuple[str, ...]:
            return labels if _topic(labels) in own else (*OTHER, *labels[2:])

        return [renamed(one, shown) if _has_topics(one) else one for one in samples]

    def _placed(self, path: Path, found: set[Topic], whole: bool) -> set[Topic]:
        """The topics that have a place, after those of `found` took what was free."""
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = _read(file)
            kept = [topic for topic in before if not whole or topic in found]
            kept += sorted(found.difference(kept))[: max(0, self._most - len(kept))]
            if kept != before:
                os.ftruncate(file, 0)
                os.pwrite(file, msgspec.msgpack.encode(kept), 0)
        finally:
            os.close(file)
        return set(kept)


def _read(file: int) -> list[Topic]:
    try:
        return msgspec.msgpack.decode(os.pread(file, os.fstat(file).st_size, 0), type=list[Topic])
    except msgspec.DecodeError:
        return []  # new, or its writer was killed


def _has_topics(samples: Samples) -> bool:
    return samples.metric.labels[:2] == _LABELS


def _topic(labels: tuple[str, ...]) -> Topic:
    return labels[0], labels[1]
