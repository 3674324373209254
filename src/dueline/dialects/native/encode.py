"""From the engine's values to the answers of `api`, and from replies to HTTP. No I/O.

JSON bodies are embedded exactly as they were sent; text becomes a JSON string, bytes become base64. All refusals have
one error shape.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw

from ...api import answers as a
from ...api.reply import Reply, to_json
from ...api.statuses import STATUS
from ...durations import duration_text
from ...engine import commands, policy
from ...engine.audit_log import AuditEntry
from ...engine.charts import TopicRates
from ...engine.errors import DuelineError, UnknownOutcome, VersionMismatch
from ...engine.headers import unpack_headers
from ...engine.history import History
from ...engine.items import item_json
from ...engine.job import BodyKind, Job, LeasedJob, State
from ...engine.replies import refusal
from ...engine.store import Code, Outcome, Page
from ...rights import Grant
from ..http import Response

_NULL = Raw(b"null")
_JSON, _OK = BodyKind.JSON, Code.OK  # looking up a member of an enum is slow
_STATES = {state: str(state) for state in State}


def sent(value: commands.Sent) -> a.Sent:
    return a.Sent(
        value.id, value.topic, value.result, _STATES[value.state], value.due_at_ms, value.version, value.items_count
    )


def sent_many(ids: Sequence[str | None], outcomes: Sequence[commands.Sent | DuelineError]) -> Reply:
    """The reply to a batch of sends: results in request order, each a Sent or a Failed."""
    results = [
        a.Failed(id, error_view(one)) if isinstance(one, DuelineError) else sent(one)
        for id, one in zip(ids, outcomes, strict=True)
    ]
    return _many(a.SentResults(results), outcomes, success=201)


def many(
    ids: Sequence[str], done: Sequence[Outcome | DuelineError], view: Callable[[str, Outcome], a.Outcome]
) -> Reply:
    """The reply to another batch call, from the outcome of each job or the error of the store call that failed."""
    return _many(a.Outcomes(outcomes(ids, done, view)), [_error(one) for one in done])


def outcomes(
    ids: Sequence[str], done: Sequence[Outcome | DuelineError], view: Callable[[str, Outcome], a.Outcome]
) -> tuple[a.Outcome, ...]:
    return tuple(
        [
            view(id, one) if (error := _error(one)) is None else a.Outcome(id, error=error_view(error))  # pyright: ignore[reportArgumentType]
            for id, one in zip(ids, done, strict=True)
        ]
    )


def acked(id: str, _: Outcome) -> a.Outcome:
    return a.Outcome(id, "acked")


def _error(one: Outcome | DuelineError) -> DuelineError | None:
    if one.code is _OK:
        return None
    return one if isinstance(one, DuelineError) else refusal(one.code)


def _many(value: a.Outcomes | a.SentResults, outcomes: Sequence[object], success: int = 200) -> Reply:
    """The reply is an error if the outcome of an item is unknown, or if all items were refused."""
    errors = [one for one in outcomes if isinstance(one, DuelineError)]
    if not errors:
        return Reply(value, success)
    unknown = next((error for error in errors if error.done is None), None)
    failure = unknown or (errors[0] if len(errors) == len(outcomes) else None)
    if failure is None:
        return Reply(value, success)
    return Reply(value, status_of(failure), error=error_view(failure), retry_after_s=retry_after_s(failure))


def released(id: str, done: Outcome) -> a.Outcome:
    if done.code is Code.DEAD:
        return a.Outcome(id, "dead", reason=_text(done.reason))
    return a.Outcome(id, "released", due_at_ms=done.at_ms)


def leased_view(job: LeasedJob) -> a.LeasedJob:
    body, body_base64, items = _payload(job)
    return a.LeasedJob(
        id=job.id,
        topic=job.topic,
        body=body,
        body_base64=body_base64,
        items=items,
        attempt=job.attempt,
        delivery=job.delivery,
        max_attempts=job.max_attempts,
        lease=job.lease,
        lease_until_ms=job.lease_until_ms,
        due_at_ms=job.due_at_ms,
        created_at_ms=job.created_at_ms,
        tags=job.tags,
        headers=dict(unpack_headers(job.headers)) if job.headers else {},
        merge_key=job.merge_key,
    )


def history_view(history: History) -> a.History:
    entries = (
        a.HistoryEntry(
            at_ms=one.at_ms,
            what=one.what,
            attempt=one.attempt,
            by=one.by,
            error=one.error,
            due_at_ms=one.due_at_ms,
            reason=None if one.reason is None else one.reason.value,
        )
        for one in history.entries
    )
    return a.History(tuple(entries), history.dropped)


def job_view(job: Job, with_body: bool = True) -> a.Job:
    body, body_base64, items = _payload(job) if with_body else (UNSET, UNSET, UNSET)
    return a.Job(
        id=job.id,
        topic=job.topic,
        state=job.state.value,
        reason=_text(job.reason),
        body=body,
        body_base64=body_base64,
        items=items,
        due_at_ms=job.due_at_ms,
        created_at_ms=job.created_at_ms,
        updated_at_ms=job.updated_at_ms,
        ended_at_ms=job.ended_at_ms,
        attempts=job.attempts,
        max_attempts=job.policy.max_attempts,
        lease_ms=job.policy.lease_ms,
        lease_until_ms=job.lease_until_ms,
        expires_at_ms=job.expires_at_ms,
        retain_until_ms=job.retain_until_ms,
        retry=retry_view(job.policy.retry),
        tags=job.tags,
        headers=dict(unpack_headers(job.headers)),
        merge_key=job.merge_key,
        version=job.version,
        last_error=job.last_error,
    )


def job_page(page: Page, with_body: bool) -> a.JobPage:
    return a.JobPage(tuple(job_view(job, with_body) for job in page.jobs), cursor_text(page.cursor))


def dead_page(page: Page, with_body: bool, by_reason: dict[str, int]) -> a.DeadPage:
    counts = a.ByReason(**{name: by_reason.get(name, 0) for name in a.ByReason.__struct_fields__})
    return a.DeadPage(tuple(job_view(job, with_body) for job in page.jobs), cursor_text(page.cursor), counts)


def access(grant: Grant) -> a.Access:
    return a.Access(
        tuple(sorted(grant.rights)),
        grant.namespace,
        grant.topics,
        grant.token_id or None,
        grant.name or None,
        grant.expires_at_ms,
    )


def topic_view(view: commands.TopicView, rates: Mapping[str, TopicRates], with_bands: bool = False) -> a.Topic:
    rate = rates.get(view.topic) or rates.get("", TopicRates())
    return a.Topic(
        topic=view.topic,
        counts=a.Counts(view.scheduled, view.ready, view.leased, view.done, view.dead, view.cancelled),
        next_due_at_ms=view.next_due_at_ms,
        oldest_ready_at_ms=view.oldest_ready_at_ms,
        waiters=view.waiters,
        paused=view.paused,
        paused_until_ms=view.paused_until_ms,
        partitions=view.partitions,
        policy=msgspec.to_builtins(policy_view(view.policy)),
        version=view.version,
        push=view.push,
        expansion=None if view.expansion is None else a.Expansion(view.expansion.old_partitions, view.expansion.cells),
        bands=view.bands if with_bands else None,
        done_per_s=rate.done_per_s,
        late_p99_ms=rate.late_p99_ms,
        history_dropped=view.history_dropped,
    )


def policy_view(value: policy.TopicPolicy) -> a.Policy:
    on_conflict: Any = value.on_conflict
    return a.Policy(
        lease_ms=value.lease_ms,
        max_attempts=value.max_attempts,
        ttl_ms=value.ttl_ms,
        retain_ms=value.retain_ms,
        dead_retain_ms=value.dead_retain_ms,
        retry=retry_view(value.retry),
        on_conflict=on_conflict,
        merge=merge_view(value.merge),
        spread_ms=value.spread_ms,
        max_body_bytes=value.max_body_bytes,
        on_dead=None if value.on_dead is None else on_dead_view(value.on_dead),
        by_worker=sorted(value.by_worker),
    )


def merge_view(merge: policy.MergePolicy | None) -> a.MergePolicy | None:
    """A topic's merge policy, in the form that a request gives it."""
    if merge is None:
        return None
    update: Any = merge.update
    return a.MergePolicy(merge.quiet_ms, merge.max_wait_ms, merge.max_items, update)


def on_dead_view(value: policy.OnDead) -> a.OnDead:
    """The on_dead policy, in the form that a request gives it."""
    return a.OnDead(url=value.url) if value.url is not None else a.OnDead(topic=value.topic or UNSET)


def retry_view(retry: policy.Retry | None) -> dict[str, Any] | Literal["none"] | None:
    """A retry policy, in the form that a request gives it."""
    if retry is None:
        return None
    if isinstance(retry, policy.AtOnce):
        return "none"
    if isinstance(retry, policy.Ladder):
        return {"ladder": [duration_text(wait_ms) for wait_ms in retry.waits_ms]}
    return {"base_ms": retry.base_ms, "factor": retry.factor, "max_ms": retry.max_ms, "jitter": retry.jitter}


def cursor_text(cursor: bytes | None) -> str | None:
    """A cursor as opaque text."""
    return None if cursor is None else base64.urlsafe_b64encode(cursor).rstrip(b"=").decode()


def refused(error: DuelineError) -> Reply:
    """The reply to a whole call that was refused."""
    id = error.id if isinstance(error, UnknownOutcome) else UNSET
    known = error.version if isinstance(error, VersionMismatch) else None
    return Reply(
        None,
        status_of(error),
        error=error_view(error),
        id=id,
        version=UNSET if known is None else known,
        retry_after_s=retry_after_s(error),
    )


def response(reply: Reply) -> Response:
    """A reply as HTTP sends it."""
    if reply.error is None:
        return Response(reply.status, to_json(reply.value), undelivered=reply.undelivered)
    headers: tuple[tuple[str, str], ...] = ()
    if reply.retry_after_s is not None:
        headers = (("retry-after", str(reply.retry_after_s)),)
    elif reply.status == 401:
        headers = (("www-authenticate", "Bearer"),)
    return Response(reply.status, reply.json, headers=headers)


def error_view(error: DuelineError) -> a.Refusal:
    return a.Refusal(error.code, error.message, error.field, error.done if status_of(error) == 503 else UNSET)


def status_of(error: DuelineError) -> int:
    return STATUS.get(error.code, 500)


def retry_after_s(error: DuelineError) -> int | None:
    return getattr(error, "retry_after_s", 1) if status_of(error) in (429, 503) else None


def _payload(job: LeasedJob | Job) -> tuple[Any, Any, Any]:
    """(body, body_base64, items): exactly one is present. It is null if the body is no longer stored."""
    if job.merge_key is not None:
        return UNSET, UNSET, None if job.items is None else tuple(Raw(item_json(item)) for item in job.items)
    body, kind = job.body, job.kind
    if kind is _JSON:
        return _NULL if body is None else Raw(body), UNSET, UNSET
    if kind is BodyKind.TEXT:
        return _NULL if body is None else Raw(to_json(body.decode(errors="replace"))), UNSET, UNSET
    return UNSET, None if body is None else base64.b64encode(body).decode(), UNSET


def _text(reason: Any) -> Any:
    return None if reason is None else reason.value


def audit_entry(entry: AuditEntry) -> a.AuditEntry:
    return a.AuditEntry(
        id=entry.id,
        at_ms=entry.at_ms,
        who=entry.who,
        who_name=entry.who_name or None,
        address=entry.address or None,
        namespace=entry.namespace,
        action=entry.action,
        topic=entry.topic or None,
        details=entry.details,
        status=entry.status,
        code=entry.code or None,
        server=entry.server,
    )
