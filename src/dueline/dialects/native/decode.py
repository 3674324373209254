"""From the request structs of `api` to the engine's commands. No I/O.

The type of a field restricts its values; rules about two fields together are checked here. The limits of the product
are checked once, in the engine.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...api import requests as r
from ...api import schedule_requests as sr
from ...engine import commands, policy
from ...engine.errors import DuelineError, InvalidField, MissingField
from ...engine.job import BodyKind, Reason, State
from ...engine.json_text import check_json
from ...engine.limits import check_name
from ...engine.store import Extend, OnConflict, Query, Ref, Release
from .merging import merge_into, merge_policy
from .own_headers import own_headers
from .times import when
from .wire import NOT_A_NAME, is_name, plain_name

_JSON = BodyKind.JSON  # looking up a member of an enum is slow
_CONFLICTS = {None: None, "reject": OnConflict.REJECT, "keep": OnConflict.KEEP, "replace": OnConflict.REPLACE}


def sends(jobs: Sequence[r.NewJob]) -> list[commands.Send]:
    """Many sends. One malformed job fails the whole request."""
    found: list[commands.Send] = []
    for place, job in enumerate(jobs):
        try:
            found.append(send(job))
        except DuelineError as error:
            error.field = f"[{place}].{error.field}" if error.field else f"[{place}]"
            raise
    return found


def bands(request: r.GetTopic) -> tuple[int, ...]:
    """The bounds of the bands of a topic. Empty: none are asked for."""
    bounds = tuple(request.bands_ms or ())
    if any(later <= earlier for earlier, later in pairwise(bounds)):
        raise InvalidField("must ascend", "bands_ms")
    return bounds


def send(job: r.NewJob) -> commands.Send:
    if job.id is not None and not is_name(job.id):
        raise InvalidField(NOT_A_NAME, "id")
    merge = job.merge
    if merge is not None and merge.item_id is not None and not is_name(merge.item_id):
        raise InvalidField(NOT_A_NAME, "merge.item_id")
    body, kind = body_of(job)
    delay_ms, at_ms = when(job)
    return commands.Send(
        job.id,
        body,
        kind,
        delay_ms,
        at_ms,
        job.lease_ms,
        job.ttl_ms,
        job.max_attempts,
        UNSET if job.retry is None else retry(job.retry),
        _CONFLICTS[job.on_conflict],
        None,
        job.tags or (),
        own_headers(job.headers) if job.headers else (),
        merge=None if merge is None else merge_into(merge),
        plain_id=True,
    )


def patch(request: r.PatchJob, id: str) -> commands.Patch:
    delay_ms, at_ms = when(request)
    body, kind = body_of(request) if isinstance(request.body, Raw) or request.body_base64 is not None else (None, None)
    return commands.Patch(
        id=id,
        delay_ms=delay_ms,
        at_ms=at_ms,
        body=body,
        kind=kind,
        lease_ms=request.lease_ms,
        ttl_ms=request.ttl_ms,
        max_attempts=request.max_attempts,
        retry=request.retry if request.retry is None or request.retry is UNSET else retry(request.retry),
        tags=UNSET if isinstance(request.tags, UnsetType) else request.tags or (),
        headers=UNSET if isinstance(request.headers, UnsetType) else own_headers(request.headers),
        version=request.version,
    )


def pull_one(request: r.PullJobs, namespace: str, topic: str) -> commands.Pull:
    return commands.Pull(namespace, (topic,), request.max, request.lease_ms, request.wait_ms, by=request.by)


def pull_several(request: r.PullTopics, namespace: str) -> commands.Pull:
    for place, topic in enumerate(request.topics):
        check_name(topic, f"topics[{place}]")
    topics = tuple(request.topics)
    return commands.Pull(namespace, topics, request.max, request.lease_ms, request.wait_ms, by=request.by)


def acks(jobs: Sequence[r.Lease]) -> list[Ref]:
    return [Ref(job.id, job.lease) for job in jobs]


def releases(request: r.ReleaseJobs) -> list[Release]:
    return [
        Release(
            id=job.id,
            token=job.lease,
            delay_ms=job.delay_ms,
            error=job.error,
            count=job.count is not False,
            dead=Reason.REJECTED if job.discard else None,
        )
        for job in request.jobs
    ]


def extends(request: r.ExtendJobs) -> list[Extend]:
    return [Extend(job.id, job.lease, job.lease_ms) for job in request.jobs]


def job_filter(which: r.Filter) -> commands.Filter:
    state = None if which.state is None else State(which.state)
    return commands.Filter(state, which.tag, which.due_after_ms, which.due_before_ms)


def one_way(request: r.CancelJobs | r.ReviveJobs | r.PurgeJobs) -> list[str] | commands.Filter:
    """The ids or the filter of a bulk call: exactly one of them."""
    if request.ids is not None:
        if request.filter is not None:
            raise InvalidField("give ids or a filter, not both", "filter")
        if request.dry_run:
            raise InvalidField("is allowed only with a filter", "dry_run")
        return request.ids
    if request.filter is None:
        raise MissingField("give ids or a filter", "ids")
    return job_filter(request.filter)


def topic_patch(request: r.PutTopic) -> commands.TopicPatch:
    on_dead = request.on_dead
    if on_dead is not None and on_dead.topic is not None:
        plain_name(on_dead.topic, "on_dead.topic")
    return commands.TopicPatch(
        policy.TopicPolicy(
            lease_ms=request.lease_ms,
            max_attempts=request.max_attempts,
            ttl_ms=request.ttl_ms,
            retain_ms=request.retain_ms,
            dead_retain_ms=request.dead_retain_ms,
            retry=None if request.retry is None else retry(request.retry),
            on_conflict=request.on_conflict,
            spread_ms=request.spread_ms,
            max_body_bytes=request.max_body_bytes,
            merge=merge_policy(request.merge),
            on_dead=None if on_dead is None else policy.OnDead(on_dead.topic, on_dead.url),
            by_worker=frozenset(request.by_worker or ()),
        ),
        request.partitions,
        request.version,
        of_worker=request.set_by == "worker",
    )


def retry(request: r.Retry | Literal["none"]) -> policy.Retry:
    """A retry policy of a request, as the engine's value."""
    if request == "none":
        return policy.AT_ONCE
    backoff = {
        name: value
        for name in ("base_ms", "factor", "max_ms", "jitter")
        if (value := getattr(request, name)) is not None
    }
    if request.ladder is not None:
        if backoff:
            raise InvalidField("cannot be combined with a ladder", f"retry.{next(iter(backoff))}")
        return policy.Ladder(
            tuple(policy.duration_ms(rung, f"retry.ladder[{place}]") for place, rung in enumerate(request.ladder))
        )
    if request.base_ms is None:
        raise MissingField("a retry policy needs ladder or base_ms", "retry.base_ms")
    if request.max_ms is None:  # a base above the default cap becomes the cap
        backoff["max_ms"] = max(request.base_ms, policy.Backoff(1).max_ms)
    return policy.Backoff(**backoff)


def listing(request: r.ListJobs) -> Query:
    state = None if request.state is None else State(request.state)
    return msgspec.structs.replace(_query(request, state, request.body is True), merge_key=request.merge_key)


def dead_listing(request: r.ListDead) -> Query:
    query = _query(request, State.DEAD, request.body is not False)
    return msgspec.structs.replace(query, newest=request.newest is True)


def cursor_bytes(text: str | None) -> bytes:
    """The bytes behind a next_cursor of an earlier answer."""
    if not text:
        return b""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidField("is not a cursor from an earlier answer", "cursor") from None


def _query(request: r.ListJobs | r.ListDead, state: State | None, body: bool) -> Query:
    return Query(
        state=state,
        tag=request.tag,
        due_after_ms=request.due_after_ms,
        due_before_ms=request.due_before_ms,
        cursor=cursor_bytes(request.cursor),
        limit=request.limit,
        body=body,
    )


def body_of(job: r.NewJob | r.PatchJob | sr.NewTemplate) -> tuple[bytes, BodyKind]:
    """The body of a request: exactly one of its two forms."""
    if job.body is UNSET:
        if job.body_base64 is None:
            raise MissingField("give body or body_base64", "body")
        return _base64(job.body_base64), BodyKind.BYTES
    if job.body_base64 is not None:
        raise InvalidField("give body or body_base64, not both", "body_base64")
    raw = bytes(job.body)
    check_json(raw)
    return raw, _JSON


def _base64(text: str) -> bytes:
    """Decode standard base64 with padding. Only canonical base64 is accepted, so that answers repeat it exactly."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidField("is not standard base64 with padding", "body_base64") from None
    if base64.b64encode(data) != text.encode():
        raise InvalidField("is not canonical base64", "body_base64")
    return data
