"""Which headers are sent with a call. No I/O.

    a target's own headers    written by the target's owner: all except those that frame the message or that we set
    a job's headers           written by any sender: only kinds that are meant to be forwarded, and never one that
                              receivers use to trust the caller
    ours                      webhook-* (signing) and dueline-* (the dispatcher), which nobody else can set

A target's own header takes precedence over a job's header of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..engine.errors import InvalidField, TooManyItems

MAX_HEADERS = 32
MAX_HEADERS_BYTES = 8 * 1024

Headers = tuple[tuple[str, str], ...]

FRAMING = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of one connection or one message, which only the HTTP client itself may write."""

_OURS = ("webhook-", "dueline-")
_TRAVELLING = frozenset(
    {
        "baggage",
        "content-language",
        "content-type",
        "correlation-id",
        "idempotency-key",
        "request-id",
        "traceparent",
        "tracestate",
    }
)
_TRAVELLING_PREFIXES = ("x-", "ce-", "dueline-dead-")
_TRUSTED = frozenset(
    {
        "x-client-ip",
        "x-cluster-client-ip",
        "x-host",
        "x-http-method",
        "x-http-method-override",
        "x-method-override",
        "x-original-host",
        "x-original-url",
        "x-real-ip",
        "x-rewrite-url",
    }
)
"""Headers that gateways set and applications trust: where a call came from, what it really requests."""
_TRUSTED_PREFIXES = ("x-forwarded-", "x-envoy-", "x-amz", "x-aws-", "x-goog-", "x-ms-")

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", re.ASCII)
_BROKEN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def is_header(name: str, value: str) -> bool:
    """Whether this is a valid header: the name is a token, the value has no line breaks or other control characters."""
    if not _NAME.fullmatch(name) or _BROKEN_VALUE.search(value):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_target_headers(headers: Sequence[tuple[str, str]], field: str = "headers") -> Headers:
    """Return a target's own headers unchanged, or raise InvalidField with the name of the first invalid one."""
    if len(headers) > MAX_HEADERS:
        raise TooManyItems(f"must have at most {MAX_HEADERS} headers, has {len(headers)}", field)
    seen: set[str] = set()
    size = 0
    for name, value in headers:
        lower = name.lower()
        place = f"{field}.{name}" if name.isprintable() else field
        if not _NAME.fullmatch(name):
            raise InvalidField("is not the name of a header", place)
        if not is_header(name, value):
            raise InvalidField("has a line break, another control character or an unpaired surrogate", place)
        if lower in FRAMING:
            raise InvalidField("cannot be set: it frames the message", place)
        if lower.startswith(_OURS):
            raise InvalidField("cannot be set: it is reserved for the server", place)
        if lower in seen:
            raise InvalidField("is given twice", place)
        seen.add(lower)
        size += len(name) + len(value.encode())
    if size > MAX_HEADERS_BYTES:
        raise InvalidField(f"must have at most {MAX_HEADERS_BYTES} bytes together, has {size}", field)
    return tuple(headers)


def travels(name: str) -> bool:
    """Whether a job's header of this name is forwarded."""
    lower = name.lower()
    if lower in FRAMING or lower in _TRUSTED or lower.startswith(_TRUSTED_PREFIXES):
        return False
    return lower in _TRAVELLING or lower.startswith(_TRAVELLING_PREFIXES)


def forwarded(job: Iterable[tuple[str, str]], target: Iterable[tuple[str, str]] = ()) -> Headers:
    """The headers of a call: the target's own, then the job's headers that may be forwarded. Never raises; invalid
    headers are dropped."""
    own = tuple(target)
    taken = {name.lower() for name, _ in own}
    out = list(own)
    for name, value in job:
        if name.lower() not in taken and travels(name) and is_header(name, value):
            taken.add(name.lower())
            out.append((name, value))
    return tuple(out)
