"""Count a process's pushes and log their failures: the first one of a topic at once, then one a minute. A circuit
breaker that opens or closes is always logged."""

from __future__ import annotations

from ..engine.push_log import Attempt
from ..event_log import EventLog
from .notices import Notices
from .push_metrics import AT_SEND, REFUSED, PushMetrics

ALLOW = "push.allow"  # the setting that allows addresses; push.ports and push.deny_names restrict them


class PushNotices(PushMetrics):
    """Push metrics that also log failures. Implements `push.observer.PushObserver`."""

    def __init__(self, notices: Notices) -> None:
        super().__init__()
        self._notices = notices
        self._log = EventLog("dueline.push")

    def called(self, namespace: str, topic: str, attempt: Attempt, failure: str | None) -> None:
        """A call has ended."""
        super().called(namespace, topic, attempt, failure)
        key = ("push", namespace, topic)
        if failure == REFUSED:
            self._notices.notice(
                key,
                f"the egress guard refused to call a push target; to allow the call, add its address to {ALLOW}",
                namespace=namespace,
                topic=topic,
                job=attempt.id,
                reason=attempt.error,
                setting=ALLOW,
            )
        elif not attempt.ok or attempt.error is not None:
            self._notices.notice(
                key,
                "a push failed",
                namespace=namespace,
                topic=topic,
                job=attempt.id,
                attempt=attempt.attempt,
                status=attempt.status or None,
                failure=failure,
                error=attempt.error,
            )

    def no_instance(self, namespace: str, topic: str, why: str) -> None:
        """Jobs are waiting, but there is nothing to call."""
        self._notices.notice(
            ("no instance", namespace, topic), f"jobs are waiting: {why}", namespace=namespace, topic=topic
        )

    def breaker(self, namespace: str, topic: str, failures: int, host: str | None) -> None:
        """The breaker has opened or closed: one line each."""
        fields = {"namespace": namespace, "topic": topic, **({} if host is None else {"host": host})}
        if failures:
            self._log.warning("a push target keeps failing and is not called for a while", **fields, failures=failures)
        else:
            self._log.info("a push target answers again", **fields)

    def refused_at_send(self, reason: str) -> None:
        """A URL was refused before anything was stored. The sender got the error."""
        self.denied(AT_SEND)
        self._notices.notice(
            (REFUSED, AT_SEND),
            f"the egress guard refused a URL in a request; to allow it, add its address to {ALLOW}",
            reason=reason,
            setting=ALLOW,
        )
