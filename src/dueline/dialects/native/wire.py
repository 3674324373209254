"""From HTTP requests to the structs of `api`, and the same checks for structs made in this process. No I/O.

JSON is decoded straight into the request types; a job's body stays raw text. Decoding errors become bad_json,
unknown_field, missing_field or invalid_field, with a JSON path. Values that could break a later reader are refused,
too: text that is not UTF-8, numbers that do not fit into a double.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw

from ...api.operations import BY_NAME, Operation
from ...engine.errors import (
    BadJson,
    BodyTooLarge,
    DuelineError,
    Forbidden,
    InvalidField,
    MissingField,
    TooManyItems,
    UnknownField,
    UnsupportedMediaType,
)
from ...engine.json_text import MAX_DEPTH
from ...engine.limits import INTERNAL_NAMESPACE
from ...rights import EVERYTHING, Grant
from ..http import Request

DEFAULT_NAMESPACE = "default"
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)
NOT_A_NAME = "must be 1 to 128 of A-Z a-z 0-9 . _ : -"
NUMBERS = frozenset({"limit", "count", "hours", "due_after_ms", "due_before_ms", "since_ms", "wait_ms"})  # in queries
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_PLACE = re.compile(r" - at (?:key in )?`\$\.?([^`]*)`\Z")
_NAMED = re.compile(r"Object (missing required|contains unknown) field `(.*)`", re.DOTALL)
_TOO_LONG = re.compile(r"Expected `(?:array|object)` of length <= (\d+)")
_WRITTEN_TIME = re.compile(r"(?:\[(\d+)\]\.)?(at|delay)_ms")
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_UNPAIRED = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")

_shallow = msgspec.json.Decoder(dict[str, Raw] | list[dict[str, Raw]]).decode
_to_json = msgspec.json.Encoder().encode

Read = Callable[[Request], Any]


class Caller(msgspec.Struct, frozen=True):
    """Whose jobs a call is about, and what the caller may do."""

    namespace: str
    grant: Grant = EVERYTHING


@lru_cache(4096)
def caller_of(named: str | None, grant: Grant = EVERYTHING) -> Caller:
    """The caller, by the namespace that the request names and the one that its token is bound to."""
    if named is None:
        return Caller(grant.namespace or DEFAULT_NAMESPACE, grant)
    if not grant.reaches(named):
        raise Forbidden("This token belongs to another namespace.")
    return Caller(plain_namespace(named), grant)


def plain_namespace(name: str) -> str:
    """Check the name of a namespace that a native call names. Returns it."""
    if name == INTERNAL_NAMESPACE:
        raise InvalidField("is reserved for the server", "namespace")
    return plain_name(name, "namespace")


@lru_cache(4096)
def plain_name(name: str, field: str) -> str:
    """Check the name of a namespace, or of a topic that a native call may create. Returns it."""
    if not is_name(name):
        raise InvalidField(NOT_A_NAME, field)
    return name


def is_name(text: str) -> bool:
    """Whether it is a name or an id that a native call may create (NOT_A_NAME says which)."""
    if text.isascii() and text.encode().isalnum() and len(text) <= 128:  # bytes have the fast isalnum
        return True  # fast path for generated ids
    return _NAME.fullmatch(text) is not None


def reader(operation: Operation) -> Read:
    """A function that reads the request struct of an operation from HTTP."""
    if operation.query is not None:
        return lambda request: query_string(request, operation.query)
    if operation.request is None:
        return lambda _: None
    decode = msgspec.json.Decoder(operation.request).decode
    empty = operation.request() if operation.body_optional else None

    def read(request: Request) -> Any:
        body = request.body
        if empty is not None and not body:
            return empty
        check_media(request)
        return decoded(decode, body)

    return read


_DECODERS = {
    name: None if kind is None else msgspec.json.Decoder(kind).decode
    for name, kind in ((name, one.query or one.request) for name, one in BY_NAME.items())
}


def checked(operation: str, request: Any, max_bytes: int) -> Any:
    """The request struct of an operation, checked like one that came by HTTP. Nothing checks the fields of a struct
    when Python makes it, so it is written as JSON and read again. `request` may also be the JSON itself (Raw) or a
    mapping."""
    decode = _DECODERS[operation]
    if decode is None:
        return None
    text = _to_json({} if request is None else request)
    if len(text) > max_bytes:
        raise BodyTooLarge(f"The body has more than {max_bytes} bytes.")
    return decoded(decode, text)


def query_string(request: Request, kind: Any) -> Any:
    """The query of a URL as `kind`. Unknown and repeated names are refused like unknown fields."""
    try:
        pairs = parse_qsl(request.query, keep_blank_values=True, errors="strict", max_num_fields=64)
    except ValueError:
        raise InvalidField("is not a query in UTF-8", "query") from None
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name == "topic":
            values.setdefault(name, []).append(text)
            continue
        if name in values:
            raise InvalidField("is given twice", name)
        values[name] = _query_value(name, text)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error) from None


def _query_value(name: str, text: str) -> Any:
    """A query value as the JSON value it stands for. A value that does not fit stays a text and is refused later."""
    if name in NUMBERS and _WHOLE.fullmatch(text):
        return int(text)
    if name in ("bands_ms", "edges_ms"):
        return [int(one) if _WHOLE.fullmatch(one) else one for one in text.split(",")]
    if name in ("body", "newest"):
        return {"1": True, "true": True, "0": False, "false": False}.get(text, text)
    return text


def check_media(request: Request) -> None:
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


def decoded(decode: Callable[[bytes], Any], body: bytes) -> Any:
    """The value of a body in JSON. Raises BadRequest: BadJson, or an error that names the field."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadJson(f"The body is not UTF-8 (byte {error.start}).") from None
    if not body:
        raise BadJson("The body is empty.")
    try:
        return decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _refusal(error, body) from None


def _refusal(error: Exception, body: bytes = b"") -> DuelineError:
    """Our error for an error of the JSON decoder."""
    if isinstance(error, RecursionError):
        return BadJson(f"The body is nested deeper than {MAX_DEPTH}.")
    if not isinstance(error, msgspec.ValidationError):
        return _unpaired_surrogate(body) or BadJson(f"The body is not valid JSON: {error}.")
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


def _unpaired_surrogate(body: bytes) -> InvalidField | None:
    """A precise error for a body whose only fault is an unpaired surrogate, which the decoder reports as malformed or
    truncated. None if the fault is another one.

    Escaped backslashes are removed first, so that every remaining backslash begins an escape. Then each surrogate
    is replaced by an escaped backslash: the text is now valid JSON, and the field that contains one is the culprit.
    """
    escaped = rb"\\"
    plain = _PAIR.sub(b"", body.replace(escaped, b""))
    if _UNPAIRED.search(plain) is None:
        return None
    try:
        written = _shallow(_UNPAIRED.sub(lambda _: escaped, plain))
    except (msgspec.DecodeError, RecursionError):
        return None
    for place, job in enumerate(written if isinstance(written, list) else [written]):
        for name, value in job.items():
            if escaped in bytes(value):
                return InvalidField(
                    "has an unpaired surrogate, which UTF-8 cannot encode",
                    f"[{place}].{name}" if isinstance(written, list) else name,
                )
    return InvalidField("a name has an unpaired surrogate, which UTF-8 cannot encode")


def as_written(request: Any, error: DuelineError) -> None:
    """Name the field of a refused time as in the request, because the engine knows only at_ms and delay_ms."""
    match = _WRITTEN_TIME.fullmatch(error.field or "")
    if match is None:
        return
    place, name = match[1], match[2]
    job = request[int(place or 0)] if isinstance(request, list) else request
    if getattr(job, f"{name}_ms", None) is None and getattr(job, name, None) is not None:
        error.field = f"[{place}].{name}" if place else name
