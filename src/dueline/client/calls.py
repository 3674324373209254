"""Every call of the native API as a value: its operation, its request, and the type of its answer. No I/O.

    calls.send(...) -> Call --(a client does the I/O)--> Answer | DuelineApiError

`client.Client` and `async_client.AsyncClient` share this module. Over HTTP, `address` writes a call as bytes and
`read_answer` reads the answer. In one process the API replies with values, which `read_reply` reads.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, UnsetType

from ..api import answers as r
from ..api import live_requests as lr
from ..api import push_requests as pr
from ..api import requests as q
from ..api.operations import READY
from ..api.reply import Reply
from ..api.requests import Lease, NewJob
from .errors import DuelineApiError, RateLimited, ServerFault, Unavailable, error_of

T = TypeVar("T")

EVENTS_WAIT_MS = 20_000  # how long one page of events is waited for


class Call(msgspec.Struct, Generic[T], frozen=True):
    """One call of an operation of `api.operations`. `params` fill the placeholders of its path. `request` is the struct
    of its body or its query, or any value with the same JSON.

    `repeatable`: it is idempotent, so it may be retried after an unknown outcome. `wait_ms`: how long the server may
    take before it answers. `accepts`: statuses besides 2xx that carry an answer. `many`: each item has its own result,
    so refused items do not raise, even if all were refused."""

    operation: str
    answer: type[T]
    params: tuple[str, ...] = ()
    request: Any = None
    repeatable: bool = True
    wait_ms: int = 0
    accepts: tuple[int, ...] = ()
    many: bool = False


class Answer(msgspec.Struct, Generic[T], frozen=True):
    """A success. `text` is the answer as the server wrote it, or the reply of an API in this process."""

    value: T
    text: bytes | Reply
    status: int

    @property
    def raw(self) -> bytes:
        """The JSON of the answer."""
        return self.text if isinstance(self.text, bytes) else self.text.json


class Leased(msgspec.Struct, frozen=True):
    """A leased job by its topic, id and lease token. This is enough to ack, release or extend a job whose token was
    stored elsewhere."""

    topic: str
    id: str
    lease: str


def new_id() -> str:
    """A new id. It is generated before the first try, so that all tries refer to the same job."""
    return os.urandom(16).hex()


def json_body(value: Any) -> Raw:
    """Any value as the JSON text of a body."""
    return Raw(msgspec.json.encode(value))


def bytes_body(data: bytes) -> str:
    """Bytes as `body_base64`."""
    return base64.b64encode(data).decode()


def send(topic: str, job: NewJob) -> Call[r.Sent]:
    """Send one job. The call is repeatable only with an id, so a missing one is generated: the job's, or with `merge`
    the item's."""
    return Call("send", r.Sent, (topic,), named(job))


def named(job: NewJob) -> NewJob:
    """Give a job an id, or with `merge` an item id, so that all tries of a send refer to the same job. Every path to
    a queue calls this once, before the first try."""
    if job.merge is None:
        return job if job.id else msgspec.structs.replace(job, id=new_id())
    if job.merge.item_id:
        return job
    return msgspec.structs.replace(job, merge=msgspec.structs.replace(job.merge, item_id=new_id()))


def send_many(topic: str, jobs: Sequence[Mapping[str, Any] | NewJob | Raw]) -> Call[r.SentMany]:
    """Send up to 1000 jobs, 4 MiB. Every job must already have an id, or with `merge` an item_id. Raw is its JSON."""
    return Call("send", r.SentMany, (topic,), list(jobs), many=True)


def get(topic: str, id: str) -> Call[r.Job]:
    return Call("get", r.Job, (topic, id))


def patch(topic: str, id: str, changes: Mapping[str, Any]) -> Call[r.Job]:
    """Reschedule or edit a job. With a `version`, it fails if the job has changed since."""
    return Call("patch", r.Job, (topic, id), changes)


def cancel(topic: str, id: str) -> Call[r.Outcome]:
    return Call("cancel", r.Outcome, (topic, id))


def cancel_many(topic: str, ids: Sequence[str]) -> Call[r.Outcomes]:
    return _many("cancel_jobs", topic, q.CancelJobs(ids=list(ids)))


def cancel_matching(topic: str, which: Mapping[str, Any], dry_run: bool) -> Call[r.Bulk]:
    return Call("cancel_jobs", r.Bulk, (topic,), q.CancelJobs(filter=q.Filter(**which), dry_run=dry_run))


def cancel_groups(topic: str, merge_key: str, dry_run: bool = False) -> Call[r.Bulk]:
    """Cancel the merge groups of a key, except those that are leased."""
    return Call("cancel_jobs", r.Bulk, (topic,), q.CancelJobs(merge_key=merge_key, dry_run=dry_run))


def fire(topic: str, id: str) -> Call[r.Outcome]:
    return Call("fire", r.Outcome, (topic, id), q.Nothing())


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
    which = {"state": state, "tag": tag, "merge_key": merge_key, "due_after_ms": due_after_ms}
    query = given(**which, due_before_ms=due_before_ms, cursor=cursor, limit=limit, body=body or None)
    return Call("list_jobs", r.JobPage, (topic,), q.ListJobs(**query))


def pull(
    topics: Sequence[str],
    max: int = 1,
    lease_ms: int | None = None,
    wait_ms: int = 0,
    by: str | None = None,
    ack: Iterable[Lease] = (),
) -> Call[r.LeasedJobs]:
    """Lease due jobs; with `ack`, ack jobs of the one topic first. It may be retried: those jobs are redelivered when
    their lease expires, and acking again is safe."""
    if len(topics) == 1:
        one = q.PullJobs(max=max, lease_ms=lease_ms, wait_ms=wait_ms, by=by, ack=list(ack))
        return Call("pull", r.LeasedJobs, (topics[0],), one, wait_ms=wait_ms)
    several = q.PullTopics(topics=list(topics), max=max, lease_ms=lease_ms, wait_ms=wait_ms, by=by)
    return Call("pull_topics", r.LeasedJobs, (), several, wait_ms=wait_ms)


def ack(topic: str, jobs: Iterable[Lease]) -> Call[r.Outcomes]:
    return _many("ack", topic, q.AckJobs(jobs=list(jobs)))


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
    how: dict[str, Any] = {"delay_ms": delay_ms, "error": error, "count": None if count else False}
    items = [q.LeaseRelease(id=job.id, lease=job.lease, discard=discard or None, **how) for job in jobs]
    return _many("release", topic, q.ReleaseJobs(jobs=items))


def extend(topic: str, job: Lease, lease_ms: int) -> Call[r.Outcomes]:
    return extend_many(topic, [job], lease_ms)


def extend_many(topic: str, jobs: Iterable[Lease], lease_ms: int) -> Call[r.Outcomes]:
    """Extend leases to `lease_ms` from now. A lease is never shortened."""
    items = [q.LeaseExtend(id=job.id, lease=job.lease, lease_ms=lease_ms) for job in jobs]
    return _many("extend", topic, q.ExtendJobs(jobs=items))


def topics(cursor: str | None = None, limit: int | None = None) -> Call[r.TopicPage]:
    return Call("list_topics", r.TopicPage, (), q.ListTopics(**given(cursor=cursor, limit=limit)))


def topic(name: str, bands_ms: Sequence[int] = ()) -> Call[r.Topic]:
    return Call("get_topic", r.Topic, (name,), q.GetTopic(bands_ms=list(bands_ms) or None))


def set_topic(name: str, policy: Mapping[str, Any]) -> Call[r.Topic]:
    """Set the whole policy (and add `partitions`); omitted fields go back to the server's defaults."""
    return Call("put_topic", r.Topic, (name,), policy)


def delete_topic(name: str) -> Call[r.TopicDeleted]:
    """Not repeatable: a retry would be answered with not_found although the first try succeeded."""
    return Call("delete_topic", r.TopicDeleted, (name,), repeatable=False)


def namespaces(cursor: str | None = None, limit: int | None = None) -> Call[r.NamespacePage]:
    return Call("list_namespaces", r.NamespacePage, (), q.ListTopics(**given(cursor=cursor, limit=limit)))


def pause(name: str, until_ms: int | None = None) -> Call[r.Paused]:
    return Call("pause", r.Paused, (name,), q.PauseTopic(until_ms=until_ms))


def resume(name: str) -> Call[r.Paused]:
    return Call("resume", r.Paused, (name,), q.Nothing())


def dead(
    name: str,
    cursor: str | None = None,
    limit: int | None = None,
    body: bool = True,
    tag: str | None = None,
    newest: bool = False,
) -> Call[r.DeadPage]:
    """List dead jobs, by default with their bodies, and the oldest first."""
    query = given(cursor=cursor, limit=limit, body=None if body else False, tag=tag, newest=newest or None)
    return Call("list_dead", r.DeadPage, (name,), q.ListDead(**query))


def revive(
    name: str, ids: Sequence[str], delay_ms: int | None = None, max_attempts: int | None = None
) -> Call[r.Outcomes]:
    how = given(delay_ms=delay_ms, max_attempts=max_attempts)
    return _many("revive", name, q.ReviveJobs(ids=list(ids), **how))


def revive_matching(
    name: str, which: Mapping[str, Any], dry_run: bool, delay_ms: int | None = None, max_attempts: int | None = None
) -> Call[r.Bulk]:
    how = given(delay_ms=delay_ms, max_attempts=max_attempts)
    return Call("revive", r.Bulk, (name,), q.ReviveJobs(filter=q.Filter(**which), dry_run=dry_run, **how))


def purge(name: str, ids: Sequence[str]) -> Call[r.Outcomes]:
    return _many("purge", name, q.PurgeJobs(ids=list(ids)))


def purge_matching(name: str, which: Mapping[str, Any], dry_run: bool) -> Call[r.Bulk]:
    return Call("purge", r.Bulk, (name,), q.PurgeJobs(filter=q.Filter(**which), dry_run=dry_run))


def push(name: str) -> Call[r.Push]:
    return Call("get_push", r.Push, (name,))


def set_push(name: str, target: Mapping[str, Any]) -> Call[r.Push]:
    """Set the whole target. A masked secret, as the server shows it (whsec_...last4), keeps the stored one."""
    return Call("put_push", r.Push, (name,), target)


def remove_push(name: str) -> Call[r.PushRemoved]:
    """Not repeatable: a retry would be answered with not_found although the first try succeeded."""
    return Call("remove_push", r.PushRemoved, (name,), repeatable=False)


def pause_push(name: str) -> Call[r.Paused]:
    return Call("pause_push", r.Paused, (name,), q.Nothing())


def resume_push(name: str) -> Call[r.Paused]:
    return Call("resume_push", r.Paused, (name,), q.Nothing())


def attempts(
    name: str, id: str | None = None, cursor: str | None = None, limit: int | None = None
) -> Call[r.AttemptPage]:
    return Call("list_attempts", r.AttemptPage, (name,), pr.ListAttempts(**given(id=id, cursor=cursor, limit=limit)))


def audit(
    namespace: str | None = None,
    who: str | None = None,
    action: str | None = None,
    since_ms: int | None = None,
    cursor: str | None = None,
    limit: int | None = None,
) -> Call[r.AuditPage]:
    query = given(namespace=namespace, who=who, action=action, since_ms=since_ms, cursor=cursor, limit=limit)
    return Call("list_audit", r.AuditPage, (), q.ListAudit(**query))


def events(topics: Sequence[str] = (), after: str | None = None, wait_ms: int = EVENTS_WAIT_MS) -> Call[r.EventPage]:
    """One page of events. Without a position, the page is a hello with the current one."""
    wait_ms = 0 if after is None else wait_ms
    query = lr.ListEvents(topic=list(topics) or None, after=after, wait_ms=wait_ms)
    return Call("events", r.EventPage, (), query, wait_ms=wait_ms)


def put_worker(name: str, request: lr.PutWorker) -> Call[r.WorkerSeen]:
    return Call("put_worker", r.WorkerSeen, (name,), request)


def stop_worker(name: str) -> Call[r.WorkerStopped]:
    return Call("stop_worker", r.WorkerStopped, (name,))


def workers() -> Call[r.Workers]:
    return Call("list_workers", r.Workers)


def info() -> Call[r.Info]:
    return Call("info", r.Info)


def ready() -> Call[r.Readiness]:
    """Ask for readiness. A 503 is an answer here, with the reasons."""
    return Call(READY.name, r.Readiness, accepts=(503,))


def _many(operation: str, topic: str, request: q.Request) -> Call[r.Outcomes]:
    return Call(operation, r.Outcomes, (topic,), request, many=True)


def given(**values: Any) -> dict[str, Any]:
    """The options that were given, so that the others have the defaults of the request."""
    return {name: value for name, value in values.items() if value is not None}


def read_answer(call: Call[T], status: int, headers: Mapping[str, str], raw: bytes) -> Answer[T]:
    """The typed answer. Raises the error that the answer describes. Header names must be lower case."""
    if not _succeeded(call, status):
        error = read_error(status, headers, raw)
        if not _has_results(call, error):
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


def read_reply(call: Call[T], reply: Reply) -> Answer[T]:
    """The answer of an API in this process. Raises the error that the reply describes."""
    if reply.error is not None and not _succeeded(call, reply.status):
        error = reply_error(reply)
        if reply.value is None or not _has_results(call, error):
            raise error
    value = reply.value
    if not isinstance(value, call.answer):  # SentResults
        value = msgspec.convert(value, call.answer, from_attributes=True)
    return Answer(value, reply, reply.status)


def read_error(status: int, headers: Mapping[str, str], raw: bytes) -> DuelineApiError:
    """The error for a status outside 2xx, whatever its body is. A 502, 503 or 504 without an error of this API comes
    from a proxy, which does not know whether the server executed the call."""
    try:
        body = msgspec.json.decode(raw, type=r.ErrorAnswer)
    except (msgspec.DecodeError, RecursionError):
        code = "unknown_outcome" if status in (502, 503, 504) else "bad_answer"
        error = error_of(code, f"HTTP {status} without an error of this API", status=status)
    else:
        error = error_of(body.error.code, body.error.message, body.error.field, status, body.id or None)
        error.raw = raw
        error.version = None if isinstance(body.version, UnsetType) else body.version
    error.retry_after_s = _seconds(headers.get("retry-after"))
    return error


def reply_error(reply: Reply) -> DuelineApiError:
    """The error of a refused call to an API in this process."""
    assert reply.error is not None
    error = error_of(reply.error.code, reply.error.message, reply.error.field, reply.status, reply.id or None)
    error.raw = reply.json
    error.version = None if isinstance(reply.version, UnsetType) else reply.version
    error.retry_after_s = reply.retry_after_s
    return error


def refusal_error(refusal: r.Refusal, id: str | None = None) -> DuelineApiError:
    """The error of one item in an answer about many jobs."""
    return error_of(refusal.code, refusal.message, refusal.field, id=id)


def _succeeded(call: Call[Any], status: int) -> bool:
    return 200 <= status < 300 or status in call.accepts


def _has_results(call: Call[Any], error: DuelineApiError) -> bool:
    """Whether this refusal of a call on many jobs has a result for each job, so that it is an answer."""
    return call.many and not isinstance(error, Unavailable | RateLimited)


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; dates and malformed values are ignored."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
