"""What a dispatcher tells of itself, for figures and logs. Whoever wires it decides what becomes of that."""

from __future__ import annotations

from typing import Protocol

from ..engine.push_log import Attempt


class Watch(Protocol):
    """Called inside the event loop; must not wait and must not raise."""

    def called(self, namespace: str, topic: str, attempt: Attempt, failure: str | None) -> None:
        """A call has ended. `failure`: its kind when no answer came (CallFailed.kind)."""

    def nobody(self, namespace: str, topic: str, why: str) -> None:
        """A job is due and there is nobody to call. Reported again with every look, once a second."""

    def in_flight(self, namespace: str, topic: str, calls: int) -> None:
        """How many jobs this process is pushing now."""

    def paused(self, namespace: str, topic: str, paused: bool) -> None:
        """Whether the target is paused."""

    def gone(self, namespace: str, topic: str) -> None:
        """This process pushes this topic no more."""


class Unwatched:
    """Nobody looks."""

    def called(self, namespace: str, topic: str, attempt: Attempt, failure: str | None) -> None: ...
    def nobody(self, namespace: str, topic: str, why: str) -> None: ...
    def in_flight(self, namespace: str, topic: str, calls: int) -> None: ...
    def paused(self, namespace: str, topic: str, paused: bool) -> None: ...
    def gone(self, namespace: str, topic: str) -> None: ...
