"""From the engine's values to native answers. No I/O.

JSON bodies are embedded exactly as they were sent; text becomes a JSON string, bytes become base64. All refusals have
one error shape. `STATUS` is the only place that maps an error code to an HTTP status.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw

from ...durations import duration_text
from ...engine import commands, policy
from ...engine.errors import DuelineError, UnknownOutcome
from ...engine.headers import unpack_headers
from ...engine.items import items_json
from ...engine.job import BodyKind, Job, LeasedJob
from ...engine.replies import refusal
from ...engine.store import Code, Outcome, Page
from ..http import Response
from . import answers as a

STATUS: dict[str, int] = {
    "bad_json": 400,
    "unknown_field": 400,
    "missing_field": 400,
    "invalid_field": 400,
    "too_many_items": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "egress_refused": 403,
    "not_found": 404,
    "no_route": 404,
    "method_not_allowed": 405,
    "id_exists": 409,
    "version_mismatch": 409,
    "lease_lost": 409,
    "job_leased": 409,
    "already_done": 409,
    "topic_not_empty": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "rate_limited": 429,
    "internal": 500,
    "unknown_outcome": 503,
    "store_down": 503,
    "loading": 503,
    "draining": 503,
    "store_full": 507,
}

to_json = msgspec.json.Encoder().encode
_NO_HEADERS = Raw(b"{}")


def answer(value: Any, status: int = 200) -> Response:
    """Any value of `answers` as a response."""
    return Response(status, to_json(value))


def sent(value: commands.Sent) -> Response:
    """The answer of a send. The engine's value has exactly the fields of the wire format."""
    return Response(201 if value.result == "created" else 200, to_json(value))


def many(ids: Sequence[str | None], outcomes: Sequence[Any], success: int = 200) -> Response:
    """The answer of a batch call: results in request order, each an answer or a DuelineError."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, DuelineError)]
    results = [
        a.Failed(id, error_view(outcome)) if isinstance(outcome, DuelineError) else outcome
        for id, outcome in zip(ids, outcomes, strict=True)
    ]
    unknown = next((error for error in errors if error.done is None), None)
    failure = unknown or (errors[0] if errors and len(errors) == len(outcomes) else None)
    if failure is None:
        return Response(success, to_json({"results": results}))
    body = to_json({"error": error_view(failure), "results": results})
    return Response(status_of(failure), body, headers=error_headers(failure))


def many_done(
    ids: Sequence[str], done: Sequence[Outcome | DuelineError], view: Callable[[str, Outcome], Any]
) -> Response:
    """The answer of a batch call, from the outcome of each job or the error of the store call that failed."""
    return many(
        ids,
        [
            one if isinstance(one, DuelineError) else refusal(one.code) or view(id, one)
            for id, one in zip(ids, done, strict=True)
        ],
    )


def released(id: str, done: Outcome) -> a.Released | a.Died:
    if done.code is Code.DEAD:
        return a.Died(id=id, reason=_text(done.reason))
    return a.Released(id=id, due_at_ms=done.at_ms)


def held(jobs: Sequence[LeasedJob]) -> bytes:
    """The answer of a pull."""
    return to_json({"jobs": [held_view(job) for job in jobs]})


def held_view(job: LeasedJob) -> a.LeasedJob:
    body, body_base64, items = _payload(job)
    return a.LeasedJob(
        job.id,
        job.topic,
        body,
        body_base64,
        items,
        job.attempt,
        job.delivery,
        job.max_attempts,
        job.lease,
        job.lease_until_ms,
        job.due_at_ms,
        job.created_at_ms,
        job.tags,
        _headers(job.headers),
        job.merge_key,
    )


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
        headers=_headers(job.headers),
        merge_key=job.merge_key,
        version=job.version,
        last_error=job.last_error,
    )


def job_page(page: Page, with_body: bool) -> a.JobPage:
    return a.JobPage([job_view(job, with_body) for job in page.jobs], cursor_text(page.cursor))


def dead_page(page: Page, with_body: bool, by_reason: dict[str, int]) -> a.DeadPage:
    counts = a.ByReason(**{name: by_reason.get(name, 0) for name in a.ByReason.__struct_fields__})
    return a.DeadPage([job_view(job, with_body) for job in page.jobs], cursor_text(page.cursor), counts)


def topic_view(view: commands.TopicView) -> a.Topic:
    return a.Topic(
        topic=view.topic,
        counts=a.Counts(view.scheduled, view.ready, view.leased, view.done, view.dead, view.cancelled),
        next_due_at_ms=view.next_due_at_ms,
        oldest_ready_at_ms=view.oldest_ready_at_ms,
        waiters=view.waiters,
        paused=view.paused,
        paused_until_ms=view.paused_until_ms,
        partitions=view.partitions,
        policy=policy_view(view.policy),
        version=view.version,
        push=view.push,
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
    """A topic's merge policy, as it would be sent."""
    if merge is None:
        return None
    update: Any = merge.update
    return a.MergePolicy(merge.quiet_ms, merge.max_wait_ms, merge.max_items, update)


def on_dead_view(value: policy.OnDead) -> a.OnDead:
    """The on_dead policy, as it would be sent."""
    return a.OnDead(url=value.url) if value.url is not None else a.OnDead(topic=value.topic or UNSET)


def retry_view(retry: policy.Retry | None) -> dict[str, Any] | Literal["none"] | None:
    """A retry policy as it would be sent."""
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


def failed(error: DuelineError) -> Response:
    """The answer for a whole call that was refused."""
    id = error.id if isinstance(error, UnknownOutcome) else UNSET
    return Response(status_of(error), to_json(a.ErrorAnswer(error_view(error), id)), headers=error_headers(error))


def error_view(error: DuelineError) -> a.Refusal:
    return a.Refusal(error.code, error.message, error.field, error.done if status_of(error) == 503 else UNSET)


def status_of(error: DuelineError) -> int:
    return STATUS.get(error.code, 500)


def error_headers(error: DuelineError) -> tuple[tuple[str, str], ...]:
    status = status_of(error)
    if status in (429, 503):
        return (("retry-after", str(getattr(error, "retry_after_s", 1))),)
    return (("www-authenticate", "Bearer"),) if status == 401 else ()


def _payload(job: LeasedJob | Job) -> tuple[Any, Any, Any]:
    """(body, body_base64, items): exactly one of them is present; null if it is no longer stored."""
    if job.merge_key is not None:
        return UNSET, UNSET, None if job.items is None else Raw(items_json(job.items))
    body, kind = job.body, job.kind
    if kind is BodyKind.JSON:
        return (None if body is None else Raw(body)), UNSET, UNSET
    if kind is BodyKind.TEXT:
        return (None if body is None else body.decode(errors="replace")), UNSET, UNSET
    return UNSET, body, UNSET


def _headers(packed: bytes) -> Any:
    """The engine stores headers as one JSON object, which is sent unchanged unless it was damaged in the store."""
    return Raw(packed) if unpack_headers(packed) else _NO_HEADERS


def _text(reason: Any) -> Any:
    return None if reason is None else reason.value
