"""How a store reports what its calls have changed to the `recorder`. No I/O here.

A store reports an outcome when the answer arrives, not when the call begins. So a call that is under way when recording
begins is either reported, or took effect before. While nobody records, a call costs one test of an attribute.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from .job import LeasedJob, Partition, Reason

if TYPE_CHECKING:
    from .store import Credit


class Actor:
    """Who makes a call: the name of its token, or its address. "": this process itself, or nobody knows. A call that
    has ended clears the name, because tasks that it started inherit its context and may outlive it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


_actor: ContextVar[Actor | None] = ContextVar("actor", default=None)
begin_call = _actor.set


def actor_name() -> str:
    """The name of the caller of the present call."""
    actor = _actor.get()
    return "" if actor is None else actor.name


class Outcomes(Protocol):
    """Receives what calls have changed. Called inside the event loop; must not block or raise."""

    def done(
        self, operation: str, partition: Partition, items: Sequence[Any], results: Sequence[Any], by: Sequence[str]
    ) -> None:
        """The items and results of a send, append, ack, release, cancel or edit, or of a revive or purge (ids and
        outcomes), and the `actor_name` of each. The partition has a topic."""

    def pulled(self, partition: Partition, jobs: Sequence[LeasedJob], credits: Sequence[Credit]) -> None:
        """The jobs of a pull, in the order of its credits."""

    def died(self, partition: Partition, deaths: Sequence[tuple[str, Reason]]) -> None:
        """Jobs that a pull or a clean-up found to be dead."""

    def lost(self) -> None:
        """A call may have changed something that this process does not know."""


class OutcomeHook:
    """Where a store finds who records. None: nobody."""

    __slots__ = ("outcomes",)

    def __init__(self) -> None:
        self.outcomes: Outcomes | None = None
