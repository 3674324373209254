"""Every call of the native API as a value: the request, and how to read the answer. No I/O.

    calls.send(...) -> Call --(a client does the I/O)--> status, headers, bytes -> Answer | DuelineApiError

`client.Client` and `async_client.AsyncClient` share this module. They add nothing but I/O.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Raw, UnsetType

from . import results as r
from .errors import DuelineApiError, RateLimited, ServerFault, Unavailable, error_of

T = TypeVar("T")

NAMESPACE_HEADER = "Dueline-Namespace"


class Call(msgspec.Struct, Generic[T], frozen=True):
    """One request. `repeatable`: it is idempotent, so it may be retried after an unknown outcome.
    `wait_ms`: how long the server may take before it answers. `accepts`: statuses besides 2xx that carry an answer.
    `many`: each item has its own result, so refused items do not raise, even if all were refused."""

    method: str
    path: str
    answer: type[T]
    body: bytes | None = None
    repeatable: bool = True
    wait_ms: int = 0
    accepts: tuple[int, ...] = ()
    many: bool = False


class Answer(msgspec.Struct, Generic[T], frozen=True):
    """A success: the typed value, and the bytes exactly as the server wrote them."""

    value: T
    raw: bytes
    status: int


class ErrorBody(msgspec.Struct, frozen=True):
    """{"error": ERR}; an unknown outcome carries the id too."""

    error: r.Refusal
    id: str | None = None


class Lease(msgspec.Struct, frozen=True):
    """A leased job, as a request names it: its id and its lease token."""

    id: str
    lease: str


class Leased(msgspec.Struct, frozen=True):
    """A leased job by its topic, id and lease token. This is enough to ack, release or extend a job whose token was
    stored elsewhere."""

    topic: str
    id: str
    lease: str


class Merge(msgspec.Struct, frozen=True, omit_defaults=True):
    """The merge group that a send joins. None: the topic's value, else the default. `item_id` makes a retry safe."""

    key: str
    quiet_ms: int | None = None
    max_wait_ms: int | None = None
    max_items: int | None = None
    update: str | None = None
    item_id: str | None = None


class NewJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """One job to send, with at most one of the four times; without one it is due now. `body` is sent unchanged."""

    id: str | None = None
    body: Raw | UnsetType = UNSET
    body_base64: str | None = None
    delay: str | None = None
    delay_ms: int | None = None
    at: str | None = None
    at_ms: int | None = None
    lease_ms: int | None = None
    ttl_ms: int | None = None
    max_attempts: int | UnsetType | None = UNSET
    retry: Any = None
    on_conflict: str | None = None
    merge: Merge | None = None
    tags: tuple[str, ...] = ()
    headers: dict[str, str] = {}


def new_id() -> str:
    """A new id. It is generated before the first try, so that all tries refer to the same job."""
    return os.urandom(16).hex()


def json_body(value: Any) -> Raw:
    """Any value as the JSON text of a body."""
    return Raw(msgspec.json.encode(value))


def bytes_body(data: bytes) -> str:
    """Bytes as `body_base64`."""
    return base64.b64encode(data).decode()


def _path(*parts: str) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _post(path: str, body: Any, answer: type[T], repeatable: bool = True, wait_ms: int = 0) -> Call[T]:
    many = answer in (r.Outcomes, r.SentMany)
    return Call("POST", path, answer, msgspec.json.encode(body), repeatable, wait_ms, many=many)


def _query(path: str, **values: Any) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def send(topic: str, job: NewJob) -> Call[r.Sent]:
    """Send one job. The call is repeatable only with an id, so a missing one is generated: the job's, or with `merge`
    the item's."""
    return _post(_path("topics", topic, "jobs"), named(job), r.Sent)


def named(job: NewJob) -> NewJob:
    """The job with an id, or with `merge` an item id, so that all tries of a send refer to the same job. Every path to
    a queue calls this once, before the first try."""
    if job.merge is None:
        return job if job.id else msgspec.structs.replace(job, id=new_id())
    if job.merge.item_id:
        return job
    return msgspec.structs.replace(job, merge=msgspec.structs.replace(job.merge, item_id=new_id()))


def send_many(topic: str, jobs: Sequence[Mapping[str, Any] | NewJob | Raw]) -> Call[r.SentMany]:
    """Send up to 1000 jobs, 4 MiB. Every job must already have an id, or with `merge` an item_id. Raw is its JSON."""
    return _post(_path("topics", topic, "jobs"), list(jobs), r.SentMany)


def get(topic: str, id: str) -> Call[r.Job]:
    return Call("GET", _path("topics", topic, "jobs", id), r.Job)


def patch(topic: str, id: str, changes: Mapping[str, Any]) -> Call[r.Job]:
    """Reschedule or edit a job. With a `version`, it fails if the job has changed since."""
    return Call("PATCH", _path("topics", topic, "jobs", id), r.Job, msgspec.json.encode(changes))


def cancel(topic: str, id: str) -> Call[r.Outcome]:
    return Call("DELETE", _path("topics", topic, "jobs", id), r.Outcome)


def cancel_many(topic: str, ids: Sequence[str]) -> Call[r.Outcomes]:
    return _post(_path("topics", topic, "cancel"), {"ids": ids}, r.Outcomes)


def cancel_matching(topic: str, which: Mapping[str, Any], dry_run: bool) -> Call[r.Bulk]:
    return _post(_path("topics", topic, "cancel"), {"filter": which, "dry_run": dry_run}, r.Bulk)


def cancel_groups(topic: str, merge_key: str, dry_run: bool = False) -> Call[r.Bulk]:
    """Cancel the merge groups of a key, except those that are leased."""
    return _post(_path("topics", topic, "cancel"), {"merge_key": merge_key, "dry_run": dry_run}, r.Bulk)


def fire(topic: str, id: str) -> Call[r.Outcome]:
    return Call("POST", _path("topics", topic, "jobs", id, "fire"), r.Outcome, b"{}")


def list_jobs(
    topic: str,
    state: str | None = None,
    tag: str | None = None,
    due_after_ms: int | None = None,
    due_before_ms: int | None = None,
    cursor: str | None = None,
    limit: int | None = None,
    body: bool = False,
    merge_key: str | None = None,
) -> Call[r.JobPage]:
    path = _query(
        _path("topics", topic, "jobs"),
        state=state,
        tag=tag,
        merge_key=merge_key,
        due_after_ms=due_after_ms,
        due_before_ms=due_before_ms,
        cursor=cursor,
        limit=limit,
        body=1 if body else None,
    )
    return Call("GET", path, r.JobPage)


def pull(topics: Sequence[str], max: int = 1, lease_ms: int | None = None, wait_ms: int = 0) -> Call[r.LeasedJobs]:
    """Lease due jobs. It may be retried after a lost answer: those jobs are redelivered when their lease expires."""
    wishes = _without_none(max=max, lease_ms=lease_ms, wait_ms=wait_ms)
    if len(topics) == 1:
        return _post(_path("topics", topics[0], "pull"), wishes, r.LeasedJobs, wait_ms=wait_ms)
    return _post(_path("pull"), {"topics": list(topics), **wishes}, r.LeasedJobs, wait_ms=wait_ms)


def ack(topic: str, jobs: Iterable[Lease]) -> Call[r.Outcomes]:
    return _post(_path("topics", topic, "ack"), {"jobs": list(jobs)}, r.Outcomes)


def release(
    topic: str,
    job: Lease,
    delay_ms: int | None = None,
    error: str | None = None,
    count: bool = True,
    discard: bool = False,
) -> Call[r.Outcomes]:
    """Give a job back. If the first try succeeded, a retry is answered with lease_lost and changes nothing."""
    return release_many(topic, [job], delay_ms, error, count, discard)


def release_many(
    topic: str,
    jobs: Iterable[Lease],
    delay_ms: int | None = None,
    error: str | None = None,
    count: bool = True,
    discard: bool = False,
) -> Call[r.Outcomes]:
    """Give jobs back, all with the same options."""
    how = _without_none(delay_ms=delay_ms, error=error)
    if not count:
        how["count"] = False
    if discard:
        how["discard"] = True
    items = [{"id": job.id, "lease": job.lease, **how} for job in jobs]
    return _post(_path("topics", topic, "release"), {"jobs": items}, r.Outcomes)


def extend(topic: str, job: Lease, lease_ms: int) -> Call[r.Outcomes]:
    return extend_many(topic, [job], lease_ms)


def extend_many(topic: str, jobs: Iterable[Lease], lease_ms: int) -> Call[r.Outcomes]:
    """Extend leases to `lease_ms` from now. A lease is never shortened."""
    items = [{"id": job.id, "lease": job.lease, "lease_ms": lease_ms} for job in jobs]
    return _post(_path("topics", topic, "extend"), {"jobs": items}, r.Outcomes)


def topics(cursor: str | None = None, limit: int | None = None) -> Call[r.TopicPage]:
    return Call("GET", _query(_path("topics"), cursor=cursor, limit=limit), r.TopicPage)


def topic(name: str) -> Call[r.Topic]:
    return Call("GET", _path("topics", name), r.Topic)


def set_topic(name: str, policy: Mapping[str, Any]) -> Call[r.Topic]:
    """Set the whole policy (and `partitions` of a new topic); omitted fields go back to the server's defaults."""
    return Call("PUT", _path("topics", name), r.Topic, msgspec.json.encode(policy))


def delete_topic(name: str) -> Call[r.TopicDeleted]:
    """Not repeatable: a retry would be answered with not_found although the first try succeeded."""
    return Call("DELETE", _path("topics", name), r.TopicDeleted, repeatable=False)


def namespaces(cursor: str | None = None, limit: int | None = None) -> Call[r.NamespacePage]:
    return Call("GET", _query(_path("namespaces"), cursor=cursor, limit=limit), r.NamespacePage)


def pause(name: str, until_ms: int | None = None) -> Call[r.Paused]:
    return _post(_path("topics", name, "pause"), _without_none(until_ms=until_ms), r.Paused)


def resume(name: str) -> Call[r.Paused]:
    return _post(_path("topics", name, "resume"), {}, r.Paused)


def dead(
    name: str, cursor: str | None = None, limit: int | None = None, body: bool = True, tag: str | None = None
) -> Call[r.JobPage]:
    """List dead jobs, by default with their bodies."""
    path = _query(_path("topics", name, "dead"), cursor=cursor, limit=limit, body=None if body else 0, tag=tag)
    return Call("GET", path, r.JobPage)


def revive(
    name: str, ids: Sequence[str], delay_ms: int | None = None, max_attempts: int | None = None
) -> Call[r.Outcomes]:
    body = {"ids": list(ids), **_without_none(delay_ms=delay_ms, max_attempts=max_attempts)}
    return _post(_path("topics", name, "dead", "revive"), body, r.Outcomes)


def revive_matching(
    name: str, which: Mapping[str, Any], dry_run: bool, delay_ms: int | None = None, max_attempts: int | None = None
) -> Call[r.Bulk]:
    body = {"filter": which, "dry_run": dry_run, **_without_none(delay_ms=delay_ms, max_attempts=max_attempts)}
    return _post(_path("topics", name, "dead", "revive"), body, r.Bulk)


def purge(name: str, ids: Sequence[str]) -> Call[r.Outcomes]:
    return _post(_path("topics", name, "dead", "purge"), {"ids": list(ids)}, r.Outcomes)


def purge_matching(name: str, which: Mapping[str, Any], dry_run: bool) -> Call[r.Bulk]:
    return _post(_path("topics", name, "dead", "purge"), {"filter": which, "dry_run": dry_run}, r.Bulk)


def push(name: str) -> Call[r.Push]:
    return Call("GET", _path("topics", name, "push"), r.Push)


def set_push(name: str, target: Mapping[str, Any]) -> Call[r.Push]:
    """Set the whole target. A masked secret, as the server shows it (whsec_...last4), keeps the stored one."""
    return Call("PUT", _path("topics", name, "push"), r.Push, msgspec.json.encode(target))


def remove_push(name: str) -> Call[r.PushRemoved]:
    """Not repeatable: a retry would be answered with not_found although the first try succeeded."""
    return Call("DELETE", _path("topics", name, "push"), r.PushRemoved, repeatable=False)


def pause_push(name: str) -> Call[r.Paused]:
    return _post(_path("topics", name, "push", "pause"), {}, r.Paused)


def resume_push(name: str) -> Call[r.Paused]:
    return _post(_path("topics", name, "push", "resume"), {}, r.Paused)


def attempts(
    name: str, id: str | None = None, cursor: str | None = None, limit: int | None = None
) -> Call[r.AttemptPage]:
    path = _query(_path("topics", name, "push", "attempts"), id=id, cursor=cursor, limit=limit)
    return Call("GET", path, r.AttemptPage)


def info() -> Call[r.Info]:
    return Call("GET", "/v1/info", r.Info)


def ready() -> Call[r.Readiness]:
    """Ask for readiness. A 503 is an answer here, with the reasons."""
    return Call("GET", "/readyz", r.Readiness, accepts=(503,))


def headers_of(call: Call[Any], namespace: str | None, token: str | None) -> dict[str, str]:
    """The request's own headers; the client adds those of the connection."""
    headers = {"Accept": "application/json"}
    if call.body is not None:
        headers["Content-Type"] = "application/json"
    if namespace:
        headers[NAMESPACE_HEADER] = namespace
    if token:
        headers["Authorization"] = f"Bearer {token}"
    return headers


def read_answer(call: Call[T], status: int, headers: Mapping[str, str], raw: bytes) -> Answer[T]:
    """The typed answer. Raises the error that the answer describes. Header names must be lower case."""
    if not (200 <= status < 300 or status in call.accepts):
        error = read_error(status, headers, raw)
        if not call.many or isinstance(error, Unavailable | RateLimited):
            raise error
        try:
            return Answer(msgspec.json.decode(raw, type=call.answer), raw, status)
        except (msgspec.DecodeError, RecursionError):
            raise error from None
    try:
        return Answer(msgspec.json.decode(raw, type=call.answer), raw, status)
    except (msgspec.DecodeError, RecursionError) as wrong:
        message = f"the answer is not this API's: {wrong}. Is this the address of a Dueline server?"
        raise ServerFault("bad_answer", message, status=status) from wrong


def read_error(status: int, headers: Mapping[str, str], raw: bytes) -> DuelineApiError:
    """The error for a status outside 2xx, whatever its body is. A 502, 503 or 504 without an error of this API comes
    from a proxy, which does not know whether the server executed the call."""
    try:
        body = msgspec.json.decode(raw, type=ErrorBody)
    except (msgspec.DecodeError, RecursionError):
        code = "unknown_outcome" if status in (502, 503, 504) else "bad_answer"
        error = error_of(code, f"HTTP {status} without an error of this API", status=status)
    else:
        error = error_of(body.error.code, body.error.message, body.error.field, status, body.id)
        error.raw = raw
    error.retry_after_s = _seconds(headers.get("retry-after"))
    return error


def refusal_error(refusal: r.Refusal, id: str | None = None) -> DuelineApiError:
    """The error of one item in an answer about many jobs."""
    return error_of(refusal.code, refusal.message, refusal.field, id=id)


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; dates and malformed values are ignored."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
