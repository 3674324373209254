"""The client methods on topics, their push targets and the server. Those on jobs are in `api`, those on
schedules in `schedule_api`, those on access tokens in `token_api`, those that show what happens in `overview_api`.
No I/O.

topics          topics topic set_topic delete_topic pause resume namespaces
push targets    push set_push remove_push pause_push resume_push attempts
the server      info ready events workers audit
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..api import answers as r
from . import calls
from .calls import Call
from .method import Pages, Steps, method, pages
from .overview_api import OverviewApi
from .schedule_api import ScheduleApi
from .sending import MergePolicy, OnConflict, RetryRule, Waits, merge_fields, retry_rule, with_attempts
from .times import Duration, Moment, duration_ms, moment_ms
from .token_api import TokenApi

PAGE_ROWS = 500


class TopicApi(OverviewApi, ScheduleApi, TokenApi):
    """The methods on topics that Client and AsyncClient share."""

    @pages
    def topics(self, page: int = PAGE_ROWS) -> Pages[r.Topic]:
        """All topics of the namespace with their counts."""
        return Pages(lambda cursor: calls.topics(cursor, page), _topics)

    @method
    def topic(self, topic: str, bands_ms: Sequence[int] = ()) -> Call[r.Topic]:
        """A topic's counts and policy. Raises NotFound when the topic was never used.

        `bands_ms` counts the scheduled jobs that are due within each of these times from now (ascending), in `bands`.
        """
        return calls.topic(topic, bands_ms)

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
        """Set the whole policy of a topic: omitted fields go back to the server's defaults. It applies to jobs that are
        sent from now on. `on_dead`: the topic or URL that dead jobs are forwarded to. `partitions`: at least as
        many as the topic has. They can be added while it is used, but not taken away; raises Conflict (expanding) until
        the partitions that it had before are empty.

        `version`: raises VersionMismatch if the topic has changed since. `by_worker`: the fields that remain owned by a
        worker, in the form that `Topic.policy` shows. `set_by="worker"`: changes only fields that are unset or owned by
        a worker; omitted fields and an operator's values stay."""
        durations = {"lease": lease, "ttl": ttl, "retain": retain, "dead_retain": dead_retain, "spread": spread}
        policy: dict[str, Any] = {
            f"{name}_ms": duration_ms(value, name) for name, value in durations.items() if value is not None
        }
        retry_fields = {"max_attempts": max_attempts, "retry": retry}
        retry_policy = with_attempts({name: value for name, value in retry_fields.items() if value is not None})
        others = {
            "max_attempts": retry_policy.get("max_attempts"),
            "retry": retry_rule(retry_policy.get("retry")),
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
        """Delete a topic with its policy and push target. Raises Conflict (topic_not_empty) while it has jobs, and
        NotFound when there is no such topic."""
        return calls.delete_topic(topic)

    @pages
    def namespaces(self, page: int = PAGE_ROWS) -> Pages[r.Namespace]:
        """All namespaces with at least one topic."""
        return Pages(lambda cursor: calls.namespaces(cursor, page), _namespaces)

    @method
    def pause(self, topic: str, until: Moment | None = None) -> Call[r.Paused]:
        """Stop delivery until a moment, or until resumed. Sends are still accepted and running leases continue."""
        return calls.pause(topic, None if until is None else moment_ms(until, "until"))

    @method
    def resume(self, topic: str) -> Call[r.Paused]:
        """Resume delivery."""
        return calls.resume(topic)

    # Push targets.

    @method
    def push(self, topic: str) -> Call[r.Push]:
        """A topic's push target and its current state. Raises NotFound when it has none."""
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
        """Deliver the jobs of a topic by HTTP calls to `url`, or to a `service` that discovery resolves.

        This replaces the whole target: omitted fields get their defaults. `breaker`: `{"failures", "open_ms"}`, or
        False for none. A masked secret, as `push` shows it, keeps the stored one."""
        retry_policy = {
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
        target = {name: value for name, value in retry_policy.items() if value is not None}
        return calls.set_push(topic, {**target, "breaker": None} if breaker is False else target)

    @method
    def remove_push(self, topic: str) -> Call[r.PushRemoved]:
        """Remove the push target. The jobs stay and can be pulled."""
        return calls.remove_push(topic)

    @method
    def pause_push(self, topic: str) -> Call[r.Paused]:
        """Stop calling the push target until resumed."""
        return calls.pause_push(topic)

    @method
    def resume_push(self, topic: str) -> Call[r.Paused]:
        """Resume calling the push target."""
        return calls.resume_push(topic)

    @pages
    def attempts(self, topic: str, id: str | None = None, page: int = PAGE_ROWS) -> Pages[r.Attempt]:
        """The calls made to the push target, newest first, for all jobs or for one."""
        return Pages(lambda cursor: calls.attempts(topic, id, cursor, page), _attempts)

    # The server.

    @method
    def info(self) -> Call[r.Info]:
        """The server's version, durability, limits and clock."""
        return calls.info()

    @method
    def ready(self) -> Call[r.Readiness]:
        """Whether the server is ready, and if not, why."""
        return calls.ready()

    @method
    def workers(self) -> Steps[tuple[r.Worker, ...]]:
        """The workers that reported in the last minute, and what they run."""
        found: r.Workers = yield calls.workers()
        return found.workers

    @pages
    def events(self, *topics: str, after: str | None = None) -> Pages[r.Event]:
        """What happens, from now on or after an earlier event (its `cursor`). It does not end. No topics: all.

        The first event is a `hello`. A `gap` says that earlier events may be missing: read again what you need to
        know. Events are for observation: do not count with them, and do not skip an ack because of one."""
        return Pages(lambda cursor: calls.events(topics, after if cursor is None else cursor), _events)

    @pages
    def audit(
        self,
        namespace: str | None = None,
        who: str | None = None,
        action: str | None = None,
        since: Moment | None = None,
        page: int = PAGE_ROWS,
    ) -> Pages[r.AuditEntry]:
        """The audit log: who changed what, newest first, for all namespaces or for one. `who`: the id of a token.
        `action`: the name of an operation, such as "delete_topic"."""
        since_ms = None if since is None else moment_ms(since, "since")
        return Pages(lambda cursor: calls.audit(namespace, who, action, since_ms, cursor, page), _entries)


def _events(page: r.EventPage) -> Sequence[r.Event]:
    return page.events


def _topics(page: r.TopicPage) -> Sequence[r.Topic]:
    return page.topics


def _namespaces(page: r.NamespacePage) -> Sequence[r.Namespace]:
    return page.namespaces


def _attempts(page: r.AttemptPage) -> Sequence[r.Attempt]:
    return page.attempts


def _entries(page: r.AuditPage) -> Sequence[r.AuditEntry]:
    return page.entries
