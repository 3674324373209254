"""Builds a job to send from Python values: its body, times and policy in the API's terms. No I/O.

    new_job({"order": 7}, delay="30m")  ->  NewJob with an id of its own

The id is generated here, before anything is sent. Retrying a send, or a whole `send_many`, therefore never creates a
second job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Required, TypedDict, Unpack, cast

import msgspec
from msgspec import Raw

from ..api.requests import Merge, NewJob
from .calls import bytes_body, new_id
from .times import Duration, Moment, duration_ms, moment_ms

OnConflict = Literal["reject", "keep", "replace"]
Waits = Sequence[Duration] | Mapping[str, Any] | Literal["none"]
RetryRule = Waits | int


class MergePolicy(TypedDict, total=False):
    """When a merge group is due and how large it gets. Omitted fields use the topic's values, else the defaults.

    `quiet`: due this long after its newest item (sends then give no time of their own). `max_wait`: due this long after
    its first item at the latest. `max_items`: due now with this many items. `update`: if sends give times, the first
    one's counts ("once") or the last one's ("always")."""

    quiet: Duration | None
    max_wait: Duration | None
    max_items: int | None
    update: Literal["once", "always"] | None


class MergeOptions(MergePolicy, total=False):
    """The merge group that a send joins, by its `key`. `item_id`: an item that is already in the group is not added
    again; generated if not given."""

    key: Required[str]
    item_id: str | None


class Policy(TypedDict, total=False):
    """How a job is delivered. Omitted fields use the topic's values, else the server's defaults.

    `lease`: how long a consumer has for it. `ttl`: it expires this long after its due time. `max_attempts`: None means
    no limit. `retry`: the waits before the 2nd, 3rd... attempt, such as ["2m", "10m", "1h"] (after the last one the job
    is dead); or {"base_ms", "factor", "max_ms", "jitter"}; or "none" to retry at once; or a number: `retry=3` is
    `max_attempts=4`, the first attempt and three retries, with the waits of the topic or the server."""

    lease: Duration | None
    ttl: Duration | None
    max_attempts: int | None
    retry: RetryRule | None
    tags: Sequence[str]
    headers: Mapping[str, str]


class Times(TypedDict, total=False):
    """When a job is due: after `delay`, or at a moment, not both. Neither: now."""

    delay: Duration | None
    at: Moment | None


class Edits(Policy, Times, total=False):
    """The fields that `patch` can change. Omitted fields keep their values."""

    body: Any


class SendOptions(Policy, Times, total=False):
    """All options of a send.

    `id`: 1 to 128 of A-Z a-z 0-9 . _ : - and unique in its topic; generated if not given. `on_conflict`: what happens
    when the id is taken: "reject" (IdExists, unless it is the same request), "keep" (the old job stays) or "replace".
    `merge`: add an item to the merge group with this key instead of creating a job; not together with `id`."""

    id: str | None
    on_conflict: OnConflict | None
    merge: str | MergeOptions | None


def new_job(body: Any = None, **options: Unpack[SendOptions]) -> NewJob:
    """One job for `send_many`. Raises TypeError or ValueError that names the argument."""
    return job_of(body, options)


def job_of(body: Any, options: SendOptions) -> NewJob:
    """`new_job` for callers that have the options as a dict."""
    fields = body_fields(body)
    if options:
        _add_send_options(fields, options)
    if not fields.get("id") and "merge" not in fields:
        fields["id"] = new_id()
    return NewJob(**fields)


def _add_send_options(fields: dict[str, Any], options: SendOptions) -> None:
    """Add the options of a send to the fields of a request. Raises TypeError or ValueError that names the option."""
    given = cast("Mapping[str, Any]", options)
    if "at" in given:
        _check_times(given)
    if "retry" in given:
        given = with_attempts(given)
    for name, value in given.items():
        add = _SEND_FIELDS.get(name)
        if add is None:
            raise TypeError(f"a job has no option {', '.join(sorted(options.keys() - _SEND_FIELDS.keys()))}")
        add(fields, value)


def _merge(merge: str | MergeOptions) -> Merge:
    """The group of an item, with an item id so that a retry does not add the item again."""
    if isinstance(merge, str):
        return Merge(merge, item_id=new_id())
    unknown = merge.keys() - {*MergePolicy.__annotations__, *MergeOptions.__annotations__}
    if unknown or "key" not in merge:
        raise TypeError(f"merge has no option {', '.join(sorted(unknown))}" if unknown else "merge needs a key")
    return Merge(key=merge["key"], item_id=merge.get("item_id") or new_id(), **merge_fields(merge))


def merge_fields(merge: MergePolicy | MergeOptions) -> dict[str, Any]:
    """A merge policy as the fields of a request."""
    quiet, max_wait = merge.get("quiet"), merge.get("max_wait")
    return {
        "quiet_ms": None if quiet is None else duration_ms(quiet, "quiet"),
        "max_wait_ms": None if max_wait is None else duration_ms(max_wait, "max_wait"),
        "max_items": merge.get("max_items"),
        "update": merge.get("update"),
    }


def job_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The policy and times among the options, as the fields of a request; other options are left out."""
    fields: dict[str, Any] = {}
    _add_job_fields(fields, options)
    return fields


def time_fields(delay: Duration | None, at: Moment | None) -> dict[str, Any]:
    """At most one time, as the fields of a request."""
    return job_fields({"delay": delay, "at": at})


def _add_job_fields(fields: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Add the policy and times among the options to the fields of a request; other options are left out."""
    _check_times(options)
    for name, value in with_attempts(options).items():
        add = _FIELDS.get(name)
        if add is not None:
            add(fields, value)


def _check_times(options: Mapping[str, Any]) -> None:
    if options.get("at") is not None and options.get("delay") is not None:
        raise ValueError("give delay or at, not both")


def _delay(fields: dict[str, Any], value: Duration | None) -> None:
    """A text is sent unchanged, so that the server sees its full precision."""
    if value is not None:
        ms = duration_ms(value)
        if isinstance(value, str):
            fields["delay"] = value
        else:
            fields["delay_ms"] = ms


def _at(fields: dict[str, Any], value: Moment | None) -> None:
    """A text is sent unchanged, so that the server sees its full precision."""
    if isinstance(value, str):
        fields["at"] = value
    elif value is not None:
        fields["at_ms"] = moment_ms(value)


def _span(name: str, nullable: bool = True) -> Callable[[dict[str, Any], Any], None]:
    """A duration. None is null in the API; if that is not `nullable`, the field is left out."""
    field = f"{name}_ms"

    def add(fields: dict[str, Any], value: Any) -> None:
        if value is not None:
            fields[field] = duration_ms(value, name)
        elif nullable:
            fields[field] = None

    return add


def _group(fields: dict[str, Any], value: str | MergeOptions | None) -> None:
    if value is not None:
        fields["merge"] = _merge(value)


_FIELDS: dict[str, Callable[[dict[str, Any], Any], None]] = {
    "delay": _delay,
    "at": _at,
    "lease": _span("lease"),
    "ttl": _span("ttl"),
    "max_attempts": lambda fields, value: fields.update(max_attempts=value),
    "retry": lambda fields, value: fields.update(retry=retry_rule(value)),
    "tags": lambda fields, value: fields.update(tags=_tags(value)),
    "headers": lambda fields, value: fields.update(headers=dict(value)),
}
_SEND_FIELDS: dict[str, Callable[[dict[str, Any], Any], None]] = {
    **_FIELDS,
    "lease": _span("lease", nullable=False),  # null in the API means none at all; here None means the topic's
    "ttl": _span("ttl", nullable=False),
    "id": lambda fields, value: fields.update(id=value),
    "on_conflict": lambda fields, value: fields.update(on_conflict=value),
    "merge": _group,
}


def with_attempts(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options. A `retry` that is a number becomes `max_attempts`. Raises ValueError."""
    retries = options.get("retry")
    if not isinstance(retries, int) or isinstance(retries, bool):
        return options
    if retries < 0:
        raise ValueError("retry: a number of retries must be at least 0")
    if "max_attempts" in options:
        raise ValueError(f"retry={retries} means max_attempts={retries + 1}: give only one of them")
    others = {name: value for name, value in options.items() if name != "retry"}
    return {**others, "max_attempts": retries + 1}


def retry_rule(rule: Waits | None) -> dict[str, Any] | Literal["none"] | None:
    """A ladder of durations, "none", or the API's own object. Raises TypeError."""
    if rule is None:
        return None
    if rule == "none":
        return "none"
    if isinstance(rule, Mapping):
        return dict(rule)
    if isinstance(rule, str) or not isinstance(rule, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f'retry: must be a list of waits, such as ["2m", "10m"], or "none", not {rule!r}')
    return {"ladder": [wait if isinstance(wait, str) else f"{duration_ms(wait, 'retry')}ms" for wait in rule]}


_BYTES = (bytes, bytearray, memoryview)


def body_fields(body: Any) -> dict[str, Any]:
    """Bytes are sent as base64, `msgspec.Raw` is JSON text and is sent unchanged, anything else is encoded as JSON.

    Besides Python's own values, these encode as JSON: msgspec structs, dataclasses, attrs classes, pydantic models,
    datetimes, UUIDs, Decimals and enums. Raises TypeError for other values."""
    if isinstance(body, _BYTES):
        return {"body_base64": bytes_body(bytes(cast("bytes", body)))}
    if isinstance(body, Raw):
        return {"body": body}
    return {"body": Raw(_JSON.encode(body))}


def _as_json(value: Any) -> Any:
    """The hook for values that msgspec does not know: a pydantic model serialises itself, with the names it reads."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} cannot be the body of a job: it is neither JSON nor bytes")
    return dump(mode="json", by_alias=True)


_JSON = msgspec.json.Encoder(enc_hook=_as_json)


def _tags(tags: Sequence[str]) -> tuple[str, ...]:
    if isinstance(tags, str):
        raise TypeError("tags: must be a list of strings, not one string")
    return tuple(tags)
