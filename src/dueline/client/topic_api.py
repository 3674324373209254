"""The methods on topics, their push targets, and the server; `api` has those on jobs. No I/O.

topics          topics topic set_topic delete_topic pause resume namespaces
push targets    push set_push remove_push pause_push resume_push attempts
the server      info ready
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from . import calls
from . import results as r
from .calls import Call
from .method import Pages, method, pages
from .sending import MergePolicy, OnConflict, RetryRule, Waits, merge_fields, retry_rule, with_attempts
from .times import Duration, Moment, duration_ms, moment_ms

PAGE_ROWS = 500


class TopicApi:
    """What a Client and an AsyncClient can do with topics."""

    @pages
    def topics(self, page: int = PAGE_ROWS) -> Pages[r.Topic]:
        """All topics of the namespace with their figures."""
        return Pages(lambda cursor: calls.topics(cursor, page), _topics)

    @method
    def topic(self, topic: str) -> Call[r.Topic]:
        """A topic's figures and policy. Raises NotFound when it was never used."""
        return calls.topic(topic)

    @method
    def set_topic(
        self,
        topic: str,
        *,
        lease: Duration | None = None,
        max_attempts: int | None = None,
        ttl: Duration | None = None,
        retain: Duration | None = None,
        dead_retain: Duration | None = None,
        retry: RetryRule | None = None,
        on_conflict: OnConflict | None = None,
        spread: Duration | None = None,
        max_body_bytes: int | None = None,
        merge: MergePolicy | None = None,
        on_dead: str | None = None,
        partitions: int | None = None,
        version: int | None = None,
        set_by: Literal["worker"] | None = None,
        by_worker: Sequence[str] = (),
    ) -> Call[r.Topic]:
        """Set the whole policy of a topic: what is not said is the server's default again. It holds for jobs that are
        sent from then on. `on_dead`: the topic or the URL that dead jobs are sent on to. `partitions` only of a topic
        that is new.

        `version`: only if the topic still has it, else VersionMismatch. `by_worker`: the fields that stay a worker's,
        in the form that `Topic.policy` shows. `set_by="worker"`: changes only what is unset or a worker's; an
        operator's values stay, and so does what is not said."""
        durations = {"lease": lease, "ttl": ttl, "retain": retain, "dead_retain": dead_retain, "spread": spread}
        policy: dict[str, Any] = {
            f"{name}_ms": duration_ms(value, name) for name, value in durations.items() if value is not None
        }
        told = {"max_attempts": max_attempts, "retry": retry}
        said = with_attempts({name: value for name, value in told.items() if value is not None})
        others = {
            "max_attempts": said.get("max_attempts"),
            "retry": retry_rule(said.get("retry")),
            "on_conflict": on_conflict,
            "max_body_bytes": max_body_bytes,
            "merge": None if merge is None else merge_fields(merge),
            "on_dead": on_dead and {"url" if "://" in on_dead else "topic": on_dead},
            "partitions": partitions,
            "version": version,
            "set_by": set_by,
            "by_worker": list(by_worker) or None,
        }
        policy |= {name: value for name, value in others.items() if value is not None}
        return calls.set_topic(topic, policy)

    @method
    def delete_topic(self, topic: str) -> Call[r.TopicDeleted]:
        """Delete a topic with its policy and push target. Raises Conflict (topic_not_empty) while it holds jobs, and
        NotFound when there is no such topic."""
        return calls.delete_topic(topic)

    @pages
    def namespaces(self, page: int = PAGE_ROWS) -> Pages[r.Namespace]:
        """All namespaces that have a topic."""
        return Pages(lambda cursor: calls.namespaces(cursor, page), _namespaces)

    @method
    def pause(self, topic: str, until: Moment | None = None) -> Call[r.Paused]:
        """Stop delivery, until a moment or a resume. Sends are taken, running leases go on."""
        return calls.pause(topic, None if until is None else moment_ms(until, "until"))

    @method
    def resume(self, topic: str) -> Call[r.Paused]:
        """Deliver again."""
        return calls.resume(topic)

    # Push targets.

    @method
    def push(self, topic: str) -> Call[r.Push]:
        """A topic's push target and how it fares. Raises NotFound when it has none."""
        return calls.push(topic)

    @method
    def set_push(
        self,
        topic: str,
        url: str | None = None,
        *,
        service: str | None = None,
        http_method: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        concurrency: int | None = None,
        rate_per_s: float | None = None,
        success: Sequence[int] | None = None,
        retry: Waits | None = None,
        breaker: Mapping[str, int] | Literal[False] | None = None,
        secrets: Sequence[str] = (),
        paused: bool = False,
    ) -> Call[r.Push]:
        """Have the jobs of a topic delivered by HTTP calls to `url`, or to a `service` that discovery resolves.

        The whole target: what is not said has its default. `breaker`: `{"failures", "open_ms"}`, or False for none. A
        secret as it is shown means the one that is there."""
        said = {
            "url": url,
            "service": service,
            "method": http_method,
            "headers": headers,
            "timeout_ms": None if timeout is None else duration_ms(timeout, "timeout"),
            "concurrency": concurrency,
            "rate_per_s": rate_per_s,
            "success": success,
            "retry": retry_rule(retry),
            "breaker": breaker or None,
            "secrets": list(secrets) or None,
            "paused": paused or None,
        }
        target = {name: value for name, value in said.items() if value is not None}
        return calls.set_push(topic, {**target, "breaker": None} if breaker is False else target)

    @method
    def remove_push(self, topic: str) -> Call[r.PushRemoved]:
        """Remove the target; the jobs stay and can be pulled."""
        return calls.remove_push(topic)

    @method
    def pause_push(self, topic: str) -> Call[r.Paused]:
        """Make no more calls until resumed."""
        return calls.pause_push(topic)

    @method
    def resume_push(self, topic: str) -> Call[r.Paused]:
        """Make calls again."""
        return calls.resume_push(topic)

    @pages
    def attempts(self, topic: str, id: str | None = None, page: int = PAGE_ROWS) -> Pages[r.Attempt]:
        """The calls that were made, the newest first, of all jobs or of one."""
        return Pages(lambda cursor: calls.attempts(topic, id, cursor, page), _attempts)

    # The server.

    @method
    def info(self) -> Call[r.Info]:
        """The server's version, durability, limits and clock."""
        return calls.info()

    @method
    def ready(self) -> Call[r.Readiness]:
        """Whether the server can do its work, and if not, why."""
        return calls.ready()


def _topics(page: r.TopicPage) -> Sequence[r.Topic]:
    return page.topics


def _namespaces(page: r.NamespacePage) -> Sequence[r.Namespace]:
    return page.namespaces


def _attempts(page: r.AttemptPage) -> Sequence[r.Attempt]:
    return page.attempts
