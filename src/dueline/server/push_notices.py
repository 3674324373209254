"""What keeps jobs from being pushed, as lines of the log; and all that a dispatcher tells, handed on to the figures."""

from __future__ import annotations

from ..engine.push_log import Attempt
from ..telemetry.notices import Notices
from ..telemetry.push_figures import AT_SEND, REFUSED, PushFigures

OPENED_BY = "push.allow"  # the setting that opens addresses; push.ports and push.deny_names narrow


class PushNotices:
    """A `push.watch.Watch`. A refusal and an absence are told once a topic, then once a minute."""

    def __init__(self, figures: PushFigures, notices: Notices) -> None:
        self._figures = figures
        self._notices = notices
        self.in_flight = figures.in_flight
        self.paused = figures.paused
        self.gone = figures.gone

    def called(self, namespace: str, topic: str, attempt: Attempt, failure: str | None) -> None:
        self._figures.called(namespace, topic, attempt, failure)
        if failure == REFUSED:
            self._notices.notice(
                (REFUSED, namespace, topic),
                f"the egress guard refused to call a push target; if it is meant, open its address in {OPENED_BY}",
                namespace=namespace,
                topic=topic,
                job=attempt.id,
                reason=attempt.error,
                setting=OPENED_BY,
            )

    def nobody(self, namespace: str, topic: str, why: str) -> None:
        self._notices.notice(("nobody", namespace, topic), f"jobs wait: {why}", namespace=namespace, topic=topic)

    def denied(self, reason: str) -> None:
        """A URL was refused before anything was stored; its sender was told."""
        self._figures.denied(AT_SEND)
        self._notices.notice(
            (REFUSED, AT_SEND),
            f"the egress guard refused a URL in a request; if it is meant, open its address in {OPENED_BY}",
            reason=reason,
            setting=OPENED_BY,
        )
