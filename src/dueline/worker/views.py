"""Converts between the engine's values and the client's, so that direct mode behaves exactly like a server. No I/O."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..client import results as r
from ..client.calls import Merge, NewJob, named
from ..client.errors import DuelineApiError, InvalidRequest, error_of
from ..client.times import duration_ms, moment_ms
from ..durations import duration_text
from ..engine import commands
from ..engine.errors import DuelineError, Unavailable, UnknownOutcome
from ..engine.headers import unpack_headers
from ..engine.items import items_json
from ..engine.job import BodyKind, Job, LeasedJob
from ..engine.json_text import check_json
from ..engine.policy import AT_ONCE, AtOnce, Backoff, Ladder, Retry, TopicPolicy
from ..engine.push_target import CARRIED_HEADERS
from ..engine.replies import refusal
from ..engine.store import Code, MergeUpdate, OnConflict, Outcome

_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_CONFLICTS = {None: None, "reject": OnConflict.REJECT, "keep": OnConflict.KEEP, "replace": OnConflict.REPLACE}
_UPDATES = {None: UNSET, "once": MergeUpdate.ONCE, "always": MergeUpdate.ALWAYS}
_items = msgspec.json.Decoder(tuple[Raw, ...]).decode


def api_error(error: DuelineError) -> DuelineApiError:
    """The error that a client would have received from a server."""
    id = error.id if isinstance(error, UnknownOutcome) else None
    found = error_of(error.code, error.message, error.field, id=id)
    found.retry_after_s = getattr(error, "retry_after_s", None)
    return found


def checked_name(name: str, field: str) -> str:
    """The name, if the HTTP API could address it too. Raises InvalidRequest otherwise."""
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest("invalid_field", "must be 1 to 128 of A-Z a-z 0-9 . _ : -", field)
    return name


def send_command(job: NewJob) -> commands.Send:
    """The engine's command for a job of the client, with an id. Raises InvalidRequest."""
    job = named(job)
    if job.id is not None:
        checked_name(job.id, "id")
    body, kind = _body(job)
    delay_ms, at_ms = _when(job)
    return commands.Send(
        job.id,
        body,
        kind,
        delay_ms,
        at_ms,
        UNSET if job.lease_ms is None else job.lease_ms,
        UNSET if job.ttl_ms is None else job.ttl_ms,
        job.max_attempts,
        UNSET if job.retry is None else retry_of(job.retry),
        _known(_CONFLICTS, job.on_conflict, "on_conflict"),
        None,
        job.tags,
        _headers(job.headers),
        merge=None if job.merge is None else _merge(job.merge),
    )


def patch_command(id: str, changes: dict[str, Any]) -> commands.Patch:
    """The engine's command for a new time in the form of `time_fields`."""
    delay_ms, at_ms = _when(NewJob(**changes))
    return commands.Patch(id, delay_ms, at_ms)


def topic_patch(fields: dict[str, Any]) -> commands.TopicPatch:
    """The engine's command for a policy that a worker proposes, in the form of `job_fields`. Raises InvalidRequest."""
    rule = fields.get("retry")
    retry = None if rule is None else retry_of(rule)
    wanted = TopicPolicy(fields.get("lease_ms"), fields.get("max_attempts"), fields.get("ttl_ms"), retry=retry)
    return commands.TopicPatch(wanted, of_worker=True)


def policy_value(policy: TopicPolicy, name: str) -> Any:
    """A field of a topic's policy that a worker can propose, as the API shows it."""
    value = getattr(policy, name)
    return _retry_view(value) if name == "retry" and value is not None else value


def retry_of(rule: dict[str, Any] | Literal["none"]) -> Retry:
    """A retry rule as the API writes it. Raises InvalidRequest."""
    if rule == "none":
        return AT_ONCE
    try:
        if "ladder" in rule:
            if len(rule) > 1:
                raise ValueError("a ladder excludes the fields of a backoff")
            return Ladder(tuple(_wait_ms(wait, place) for place, wait in enumerate(rule["ladder"])))
        most_ms = max(rule["base_ms"], Backoff(1).max_ms)  # a first wait above the default cap raises the cap
        return msgspec.convert({"max_ms": most_ms, **rule}, Backoff)
    except KeyError:
        raise InvalidRequest("missing_field", "a retry policy needs ladder or base_ms", "retry.base_ms") from None
    except (TypeError, ValueError) as wrong:  # msgspec.ValidationError is a ValueError
        raise InvalidRequest("invalid_field", str(wrong), "retry") from None


def _wait_ms(wait: str, place: int) -> int:
    try:
        return duration_ms(wait)
    except ValueError as wrong:
        raise InvalidRequest("invalid_field", str(wrong), f"retry.ladder[{place}]") from None


def sent(value: commands.Sent) -> r.Sent:
    return r.Sent(
        value.id, value.topic, value.result, value.state.value, value.due_at_ms, value.version, value.items_count
    )


def sent_item(id: str | None, value: commands.Sent | DuelineError) -> r.SentItem:
    if isinstance(value, DuelineError):
        return r.SentItem(id=id, error=r.Refusal(value.code, value.message, value.field))
    return msgspec.convert(sent(value), r.SentItem, from_attributes=True)


def not_answered(results: Sequence[commands.Sent | DuelineError]) -> DuelineError | None:
    """The error for which a server would answer 503 to a send of many: one job's outcome is unknown, or all jobs were
    temporarily refused. None: every job has its result."""
    errors = [one for one in results if isinstance(one, DuelineError)]
    unknown = next((error for error in errors if isinstance(error, UnknownOutcome)), None)
    if unknown is None and errors and len(errors) == len(results) and isinstance(errors[0], Unavailable):
        return errors[0]
    return unknown


def held(job: LeasedJob) -> r.LeasedJob:
    body, body_base64, items = _payload(job)
    return r.LeasedJob(
        body=body,
        body_base64=body_base64,
        items=items,
        id=job.id,
        topic=job.topic,
        attempt=job.attempt,
        delivery=job.delivery,
        lease=job.lease,
        lease_until_ms=job.lease_until_ms,
        due_at_ms=job.due_at_ms,
        created_at_ms=job.created_at_ms,
        max_attempts=job.max_attempts,
        tags=job.tags,
        headers=dict(unpack_headers(job.headers)),
        merge_key=job.merge_key,
    )


def shown(job: Job) -> r.Job:
    body, body_base64, items = _payload(job)
    return r.Job(
        body=body,
        body_base64=body_base64,
        items=items,
        id=job.id,
        topic=job.topic,
        state=job.state.value,
        due_at_ms=job.due_at_ms,
        created_at_ms=job.created_at_ms,
        reason=None if job.reason is None else job.reason.value,
        updated_at_ms=job.updated_at_ms,
        ended_at_ms=job.ended_at_ms,
        attempts=job.attempts,
        max_attempts=job.policy.max_attempts,
        lease_ms=job.policy.lease_ms,
        lease_until_ms=job.lease_until_ms,
        expires_at_ms=job.expires_at_ms,
        retain_until_ms=job.retain_until_ms,
        retry=_retry_view(job.policy.retry),
        tags=job.tags,
        headers=dict(unpack_headers(job.headers)),
        merge_key=job.merge_key,
        version=job.version,
        last_error=job.last_error,
    )


def outcome(id: str, done: Outcome, result: str) -> r.Outcome:
    """What happened to one job; `result` is used if the operation succeeded."""
    refused = refusal(done.code)
    if refused is not None:
        return r.Outcome(id, error=r.Refusal(refused.code, refused.message, refused.field))
    if done.code is Code.DEAD:
        return r.Outcome(id, "dead", reason=None if done.reason is None else done.reason.value)
    if result == "released":
        return r.Outcome(id, result, due_at_ms=done.at_ms)
    return r.Outcome(id, result, lease_until_ms=done.at_ms if result == "extended" else None)


def _body(job: NewJob) -> tuple[bytes, BodyKind]:
    if isinstance(job.body, Raw):
        return _checked(bytes(job.body)), BodyKind.JSON
    if job.body_base64 is None:
        raise InvalidRequest("missing_field", "give body or body_base64", "body")
    try:
        return base64.b64decode(job.body_base64, validate=True), BodyKind.BYTES
    except binascii.Error:
        raise InvalidRequest("invalid_field", "is not base64", "body_base64") from None


def _checked(raw: bytes) -> bytes:
    """JSON that every consumer can read, by the rules of the native API. Invalid JSON would break every pull whose
    answer contains it. Raises InvalidRequest."""
    try:
        if not raw.isascii():
            raw.decode()
        check_json(raw)
    except UnicodeDecodeError as wrong:
        raise InvalidRequest("invalid_field", f"is not UTF-8: {wrong}", "body") from None
    except DuelineError as refused:
        raise api_error(refused) from None
    return raw


def _when(job: NewJob) -> tuple[int | None, int | None]:
    try:
        delay_ms = job.delay_ms if job.delay is None else duration_ms(job.delay)
        return delay_ms, job.at_ms if job.at is None else moment_ms(job.at)
    except ValueError as wrong:
        raise InvalidRequest("invalid_field", str(wrong), "at" if job.delay is None else "delay") from None


def _merge(merge: Merge) -> commands.MergeInto:
    return commands.MergeInto(
        merge.key,
        UNSET if merge.quiet_ms is None else merge.quiet_ms,
        UNSET if merge.max_wait_ms is None else merge.max_wait_ms,
        UNSET if merge.max_items is None else merge.max_items,
        _known(_UPDATES, merge.update, "merge.update"),
        merge.item_id,
    )


def _known(table: dict[str | None, Any], name: str | None, field: str) -> Any:
    if name not in table:
        raise InvalidRequest("invalid_field", f"must be one of {', '.join(filter(None, table))}", field)
    return table[name]


def _headers(headers: dict[str, str]) -> tuple[tuple[str, str], ...]:
    for name in headers:
        if name.lower() in CARRIED_HEADERS:
            raise InvalidRequest("invalid_field", f"{name} is reserved for the server", "headers")
    return tuple(headers.items())


def _payload(
    job: LeasedJob | Job,
) -> tuple[Raw | UnsetType, str | UnsetType | None, tuple[Raw, ...] | UnsetType | None]:
    """(body, body_base64, items), as in an answer of the API."""
    if job.merge_key is not None:
        return UNSET, UNSET, None if job.items is None else _items(items_json(job.items))
    if job.body is None:  # no longer kept
        return (UNSET, None, UNSET) if job.kind is BodyKind.BYTES else (Raw(b"null"), UNSET, UNSET)
    if job.kind is BodyKind.JSON:
        return Raw(job.body), UNSET, UNSET
    if job.kind is BodyKind.TEXT:
        return Raw(msgspec.json.encode(job.body.decode(errors="replace"))), UNSET, UNSET
    return UNSET, base64.b64encode(job.body).decode(), UNSET


def _retry_view(retry: Retry) -> dict[str, Any] | Literal["none"]:
    if isinstance(retry, AtOnce):
        return "none"
    if isinstance(retry, Ladder):
        return {"ladder": [duration_text(wait_ms) for wait_ms in retry.waits_ms]}
    return msgspec.structs.asdict(retry)
