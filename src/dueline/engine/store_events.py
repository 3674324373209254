"""What a store tells its engine. No I/O here."""

from __future__ import annotations

from typing import Protocol

from .directory import TopicChange
from .job import Partition


class Events(Protocol):
    """Callbacks from a store to its engine, inside the event loop."""

    def woken(self, partition: Partition) -> None:
        """A job became deliverable earlier than the last `next_ms`, or a wake-up may have been missed."""

    def noted(self, partition: Partition, at_ms: int) -> None:
        """This partition needs clean-up at that time, and the directory has no hint for it yet."""

    def unlisted(self, partition: Partition) -> None:
        """A call changed a partition whose topic is not known to be in the directory; register it."""

    def topic_changed(self, change: TopicChange | None) -> None:
        """A process changed or removed a topic. None: such announcements may have been missed."""
