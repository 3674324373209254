"""The events that a dispatcher reports, for metrics and logs."""

from __future__ import annotations

from typing import Protocol

from ..engine.push_log import Attempt


class PushObserver(Protocol):
    """Receives the events. Called inside the event loop; must not block and must not raise."""

    def called(self, namespace: str, topic: str, attempt: Attempt, failure: str | None) -> None:
        """A call has ended. `failure` is CallFailed.kind if there was no response."""

    def no_instance(self, namespace: str, topic: str, why: str) -> None:
        """A job is due, but no instance is available. Repeated with every look, once a second."""

    def breaker(self, namespace: str, topic: str, failures: int, host: str | None) -> None:
        """The breaker has opened after this many failures in a row; 0: it has closed. `host`: that of this host only,
        because the topic's jobs go to many."""

    def in_flight(self, namespace: str, topic: str, calls: int) -> None:
        """How many jobs this process is pushing now."""

    def paused(self, namespace: str, topic: str, paused: bool) -> None:
        """Whether the target is paused."""

    def gone(self, namespace: str, topic: str) -> None:
        """This process no longer pushes this topic."""


class NullObserver:
    """Ignores all events."""

    def called(self, namespace: str, topic: str, attempt: Attempt, failure: str | None) -> None: ...
    def no_instance(self, namespace: str, topic: str, why: str) -> None: ...
    def breaker(self, namespace: str, topic: str, failures: int, host: str | None) -> None: ...
    def in_flight(self, namespace: str, topic: str, calls: int) -> None: ...
    def paused(self, namespace: str, topic: str, paused: bool) -> None: ...
    def gone(self, namespace: str, topic: str) -> None: ...
