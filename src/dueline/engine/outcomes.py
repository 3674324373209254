"""How a store reports what its calls have changed to the `recorder`. No I/O here.

A store reports an outcome when the answer arrives, not when the call begins. So a call that is under way when recording
begins is either reported, or took effect before. While nobody records, a call costs one test of an attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .job import LeasedJob, Partition, Reason


class Outcomes(Protocol):
    """Receives what calls have changed. Called inside the event loop; must not block or raise."""

    def done(self, operation: str, partition: Partition, items: Sequence[Any], results: Sequence[Any]) -> None:
        """The items and results of a send, append, ack, release, cancel or edit, or of a revive or purge (ids and
        outcomes). The partition has a topic."""

    def pulled(self, partition: Partition, jobs: Sequence[LeasedJob]) -> None: ...
    def died(self, partition: Partition, deaths: Sequence[tuple[str, Reason]]) -> None:
        """Jobs that a pull or a clean-up found to be dead."""

    def lost(self) -> None:
        """A call may have changed something that this process does not know."""


class OutcomeHook:
    """Where a store finds who records. None: nobody."""

    __slots__ = ("outcomes",)

    def __init__(self) -> None:
        self.outcomes: Outcomes | None = None
