"""The events of one reference store for several engines, as if each were a process of its own."""

from __future__ import annotations

from dueline.engine.directory import TopicChange
from dueline.engine.engine import Engine
from dueline.engine.job import Partition


class SharedEvents:
    """Wake-ups and announcements reach every engine, except the announcements for `deaf` ones. The first engine gets
    the rest."""

    def __init__(self, *engines: Engine) -> None:
        self.engines = list(engines)
        self.deaf: set[Engine] = set()

    def woken(self, partition: Partition) -> None:
        for engine in self.engines:
            engine.woken(partition)

    def noted(self, partition: Partition, at_ms: int) -> None:
        self.engines[0].noted(partition, at_ms)

    def unlisted(self, partition: Partition) -> None:
        self.engines[0].unlisted(partition)

    def topic_changed(self, change: TopicChange | None) -> None:
        for engine in self.engines:
            if engine not in self.deaf:
                engine.topic_changed(change)
