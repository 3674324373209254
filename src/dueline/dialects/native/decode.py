"""From native requests to engine commands. No I/O.

JSON is decoded straight into the types of `requests`; a job's body stays raw text. Decoding errors become bad_json,
unknown_field, missing_field or invalid_field, with a JSON path. Values that could break a later reader are refused,
too: text that is not UTF-8, nesting deeper than 64, numbers that do not fit into a double.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ...engine import commands, policy
from ...engine.errors import (
    BadJson,
    DuelineError,
    Forbidden,
    InvalidField,
    MissingField,
    TooManyItems,
    UnknownField,
    UnsupportedMediaType,
)
from ...engine.job import BodyKind, Reason, State
from ...engine.json_text import MAX_DEPTH, check_json
from ...engine.limits import INTERNAL_NAMESPACE, check_name
from ...engine.store import Extend, OnConflict, Query, Ref, Release
from ..http import Request
from . import requests as r
from .merging import merge_into, merge_policy
from .own_headers import own_headers
from .times import when

T = TypeVar("T")

DEFAULT_NAMESPACE = "default"
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_PLACE = re.compile(r" - at (?:key in )?`\$\.?([^`]*)`\Z")
_NAMED = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
_TOO_LONG = re.compile(r"Expected `(?:array|object)` of length <= (\d+)")
_WRITTEN_TIME = re.compile(r"(?:\[(\d+)\]\.)?(at|delay)_ms")
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_LONE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

_json = msgspec.json.decode
_one_send = msgspec.json.Decoder(r.SendJob).decode
_many_sends = msgspec.json.Decoder(r.SendJobs).decode
_shallow = msgspec.json.Decoder(dict[str, Raw] | list[dict[str, Raw]]).decode


def namespace_of(request: Request) -> str:
    """The namespace of a request: from its header, else from its token, else "default"."""
    named = request.headers.get("dueline-namespace")
    bound = request.namespace
    if named is None:
        return DEFAULT_NAMESPACE if bound is None else bound
    if bound is not None and named != bound:
        raise Forbidden("This token belongs to another namespace.")
    if named == INTERNAL_NAMESPACE:
        raise InvalidField("is reserved for the server", "namespace")
    return plain_name(named, "namespace")


@lru_cache(4096)
def plain_name(name: str, field: str) -> str:
    """Check the name of a namespace, or of a topic that a native call may create. Returns it."""
    if _NAME.fullmatch(name) is None:
        raise InvalidField("must be 1 to 128 of A-Z a-z 0-9 . _ : -", field)
    return name


def json_request(request: Request, kind: type[T], *, optional: bool = False) -> T:
    """The body of a request as `kind`. `optional`: a missing body is an empty object."""
    if optional and not request.body:
        return _decoded(kind, b"{}")
    _check_media(request)
    return _decoded(kind, request.body)


def sends(request: Request) -> commands.Send | list[commands.Send]:
    """One send (object) or many (array). One malformed item fails the whole request."""
    _check_media(request)
    body = request.body
    _check_text(body)
    try:
        if body.lstrip()[:1] != b"[":
            return _send(_one_send(body))
        many = _many_sends(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refusal(error, body) from None
    found: list[commands.Send] = []
    for place, job in enumerate(many):
        try:
            found.append(_send(job))
        except DuelineError as error:
            error.field = f"[{place}].{error.field}" if error.field else f"[{place}]"
            raise
    return found


def patch(request: Request, id: str) -> commands.Patch:
    asked = json_request(request, r.PatchJob)
    delay_ms, at_ms = when(asked)
    body, kind = _body(asked) if len(bytes(asked.body)) or asked.body_base64 is not None else (None, None)
    return commands.Patch(
        id=id,
        delay_ms=delay_ms,
        at_ms=at_ms,
        body=body,
        kind=kind,
        lease_ms=asked.lease_ms,
        ttl_ms=asked.ttl_ms,
        max_attempts=asked.max_attempts,
        retry=asked.retry if asked.retry is None or asked.retry is UNSET else retry(asked.retry),
        tags=UNSET if asked.tags is UNSET else tuple(asked.tags or ()),
        headers=UNSET if isinstance(asked.headers, UnsetType) else own_headers(asked.headers),
        version=asked.version,
    )


def pull_one(request: Request, namespace: str, topic: str) -> commands.Pull:
    asked = json_request(request, r.PullJobs, optional=True)
    return commands.Pull(namespace, (topic,), asked.max, asked.lease_ms, asked.wait_ms)


def pull_several(request: Request, namespace: str) -> commands.Pull:
    asked = json_request(request, r.PullTopics)
    for place, topic in enumerate(asked.topics):
        check_name(topic, f"topics[{place}]")
    return commands.Pull(namespace, tuple(asked.topics), asked.max, asked.lease_ms, asked.wait_ms)


def acks(request: Request) -> list[Ref]:
    return [Ref(job.id, job.lease) for job in json_request(request, r.AckJobs).jobs]


def releases(request: Request) -> list[Release]:
    return [
        Release(
            id=job.id,
            token=job.lease,
            delay_ms=job.delay_ms,
            error=job.error,
            count=job.count is not False,
            dead=Reason.REJECTED if job.discard else None,
        )
        for job in json_request(request, r.ReleaseJobs).jobs
    ]


def extends(request: Request) -> list[Extend]:
    return [Extend(job.id, job.lease, job.lease_ms) for job in json_request(request, r.ExtendJobs).jobs]


def job_filter(which: r.Filter) -> commands.Filter:
    state = None if which.state is None else State(which.state)
    return commands.Filter(state, which.tag, which.due_after_ms, which.due_before_ms)


def one_way(asked: r.CancelJobs | r.ReviveJobs | r.PurgeJobs) -> list[str] | commands.Filter:
    """The ids or the filter of a bulk call: exactly one of them."""
    if asked.ids is not None:
        if asked.filter is not None:
            raise InvalidField("give ids or a filter, not both", "filter")
        if asked.dry_run:
            raise InvalidField("is allowed only with a filter", "dry_run")
        return asked.ids
    if asked.filter is None:
        raise MissingField("give ids or a filter", "ids")
    return job_filter(asked.filter)


def topic_patch(request: Request) -> commands.TopicPatch:
    asked = json_request(request, r.PutTopic)
    on_dead = asked.on_dead
    if on_dead is not None and on_dead.topic is not None:
        plain_name(on_dead.topic, "on_dead.topic")
    return commands.TopicPatch(
        policy.TopicPolicy(
            lease_ms=asked.lease_ms,
            max_attempts=asked.max_attempts,
            ttl_ms=asked.ttl_ms,
            retain_ms=asked.retain_ms,
            dead_retain_ms=asked.dead_retain_ms,
            retry=None if asked.retry is None else retry(asked.retry),
            on_conflict=asked.on_conflict,
            spread_ms=asked.spread_ms,
            max_body_bytes=asked.max_body_bytes,
            merge=merge_policy(asked.merge),
            on_dead=None if on_dead is None else policy.OnDead(on_dead.topic, on_dead.url),
            by_worker=frozenset(asked.by_worker or ()),
        ),
        asked.partitions,
        asked.version,
        of_worker=asked.set_by == "worker",
    )


def retry(asked: r.Retry | Literal["none"]) -> policy.Retry:
    """A retry policy of a request, as the engine's value."""
    if asked == "none":
        return policy.AT_ONCE
    backoff = {
        name: value for name in ("base_ms", "factor", "max_ms", "jitter") if (value := getattr(asked, name)) is not None
    }
    if asked.ladder is not None:
        if backoff:
            raise InvalidField("cannot be combined with a ladder", f"retry.{next(iter(backoff))}")
        return policy.Ladder(
            tuple(policy.duration_ms(rung, f"retry.ladder[{place}]") for place, rung in enumerate(asked.ladder))
        )
    if asked.base_ms is None:
        raise MissingField("a retry policy needs ladder or base_ms", "retry.base_ms")
    if asked.max_ms is None:  # a base above the default cap becomes the cap
        backoff["max_ms"] = max(asked.base_ms, policy.Backoff(1).max_ms)
    return policy.Backoff(**backoff)


def listing(asked: r.ListJobs) -> Query:
    state = None if asked.state is None else State(asked.state)
    return msgspec.structs.replace(_query(asked, state, asked.body is True), merge_key=asked.merge_key)


def dead_listing(asked: r.ListDead) -> Query:
    return _query(asked, State.DEAD, asked.body is not False)


def query_string(request: Request, kind: type[T]) -> T:
    """The query of a URL as `kind`. Unknown and repeated names are refused like unknown fields."""
    try:
        pairs = parse_qsl(request.query, keep_blank_values=True, errors="strict", max_num_fields=64)
    except ValueError:
        raise InvalidField("is not a query in UTF-8", "query") from None
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name in values:
            raise InvalidField("is given twice", name)
        values[name] = _query_value(name, text)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error) from None


def _query_value(name: str, text: str) -> Any:
    """A query value as the JSON value it stands for. A value that does not fit stays a text and is refused later."""
    if name in ("limit", "due_after_ms", "due_before_ms") and _WHOLE.fullmatch(text):
        return int(text)
    if name == "body":
        return {"1": True, "true": True, "0": False, "false": False}.get(text, text)
    return text


def cursor_bytes(text: str | None) -> bytes:
    """The bytes behind a next_cursor of an earlier answer."""
    if not text:
        return b""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidField("is not a cursor from an earlier answer", "cursor") from None


def _query(asked: r.ListJobs | r.ListDead, state: State | None, body: bool) -> Query:
    return Query(
        state=state,
        tag=asked.tag,
        due_after_ms=asked.due_after_ms,
        due_before_ms=asked.due_before_ms,
        cursor=cursor_bytes(asked.cursor),
        limit=asked.limit,
        body=body,
    )


_CONFLICTS = {None: None, "reject": OnConflict.REJECT, "keep": OnConflict.KEEP, "replace": OnConflict.REPLACE}


def _send(job: r.SendJob) -> commands.Send:
    if job.id is not None and _NAME.fullmatch(job.id) is None:
        raise InvalidField("must be 1 to 128 of A-Z a-z 0-9 . _ : -", "id")
    if job.merge is not None and job.merge.item_id is not None and _NAME.fullmatch(job.merge.item_id) is None:
        raise InvalidField("must be 1 to 128 of A-Z a-z 0-9 . _ : -", "merge.item_id")
    body, kind = _body(job)
    if job.delay_ms is None and job.delay is None and job.at is None and job.at_ms is None:
        delay_ms = at_ms = None
    else:
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
        tuple(job.tags) if job.tags else (),
        own_headers(job.headers) if job.headers else (),
        merge=None if job.merge is None else merge_into(job.merge),
    )


def _body(job: r.SendJob | r.PatchJob) -> tuple[bytes, BodyKind]:
    raw = bytes(job.body)
    if not raw:
        if job.body_base64 is None:
            raise MissingField("give body or body_base64", "body")
        return _base64(job.body_base64), BodyKind.BYTES
    if job.body_base64 is not None:
        raise InvalidField("give body or body_base64, not both", "body_base64")
    check_json(raw)
    return raw, BodyKind.JSON


def _base64(text: str) -> bytes:
    """Decode standard base64 with padding. Only canonical base64 is accepted, so that answers repeat it exactly."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidField("is not standard base64 with padding", "body_base64") from None
    if base64.b64encode(data) != text.encode():
        raise InvalidField("is not canonical base64", "body_base64")
    return data


def _check_media(request: Request) -> None:
    """Require JSON in UTF-8 as the declared type, because any web page can send a body without a type or as a form."""
    given = request.headers.get("content-type", "")
    if given == "application/json" or not request.body:
        return
    kind, _, parameters = given.partition(";")
    kind = kind.strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaType
    charset = re.search(r"charset\s*=\s*\"?([^\s\";]+)", parameters, re.IGNORECASE)
    if charset is not None and charset[1].lower() not in ("utf-8", "utf8"):
        raise UnsupportedMediaType("Send the body as application/json in UTF-8.")


def _check_text(body: bytes) -> None:
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadJson(f"The body is not UTF-8 (byte {error.start}).") from None
    if not body:
        raise BadJson("The body is empty.")


def _decoded(kind: type[T], body: bytes) -> T:
    _check_text(body)
    try:
        return _json(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refusal(error, body) from None


def _refusal(error: Exception, body: bytes = b"") -> DuelineError:
    """Our error for an error of the JSON decoder."""
    if isinstance(error, RecursionError):
        return BadJson(f"The body is nested deeper than {MAX_DEPTH}.")
    if not isinstance(error, msgspec.ValidationError):
        return _lone_surrogate(body) or BadJson(f"The body is not valid JSON: {error}.")
    text, path = str(error), ""
    place = _PLACE.search(text)
    if place is not None:
        text, path = text[: place.start()], place[1]
    long = _TOO_LONG.fullmatch(text)
    if long is not None:
        return TooManyItems(f"must have at most {long[1]} items", path or None)
    named = _NAMED.fullmatch(text)
    if named is None:
        return InvalidField(text[:200], path or None)
    name = named[2][:128]
    field = f"{path}.{name}" if path else name
    if named[1] == "contains unknown":
        return UnknownField(f"There is no field {name!r} here.", field)
    return MissingField(f"The field {name!r} is missing.", field)


def _lone_surrogate(body: bytes) -> InvalidField | None:
    """A precise error for a body whose only fault is a lone surrogate, which the decoder reports as malformed or
    truncated. None if the fault is another one.

    Escaped backslashes are removed first, so that every remaining backslash begins an escape. Then each lone surrogate
    is replaced by an escaped backslash: the text is now valid JSON, and the field that contains one is the culprit.
    """
    mark = rb"\\"
    plain = _PAIR.sub(b"", body.replace(mark, b""))
    if _LONE.search(plain) is None:
        return None
    try:
        written = _shallow(_LONE.sub(lambda _: mark, plain))
    except (msgspec.DecodeError, RecursionError):
        return None
    for place, job in enumerate(written if isinstance(written, list) else [written]):
        for name, value in job.items():
            if mark in bytes(value):
                return InvalidField(
                    "has an unpaired surrogate, which UTF-8 cannot encode",
                    f"[{place}].{name}" if isinstance(written, list) else name,
                )
    return InvalidField("a name has an unpaired surrogate, which UTF-8 cannot encode")


def as_written(request: Request, error: DuelineError) -> None:
    """Name the field of a refused time as in the request, because the engine knows only at_ms and delay_ms."""
    match = _WRITTEN_TIME.fullmatch(error.field or "")
    if match is None:
        return
    try:
        written = _shallow(request.body)
        job = written if isinstance(written, dict) else written[int(match[1] or 0)]
    except (msgspec.DecodeError, RecursionError, IndexError):
        return
    if f"{match[2]}_ms" not in job and match[2] in job:
        error.field = f"[{match[1]}].{match[2]}" if match[1] else match[2]
