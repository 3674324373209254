"""Requests as Go's encoding/json would decode them into the original's structs. No I/O.

Keys match in any case. Unknown keys are ignored. A missing or null field has its zero value. Of repeated fields the
last one counts, but a wrong type in any of them fails the whole request, as does anything after the object. Each byte
that is not UTF-8 and each lone surrogate becomes U+FFFD. Texts are trimmed as in Go, after the types were checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from posixpath import normpath
from typing import Annotated, Any, Final, NoReturn

import msgspec

from ...engine.errors import BadRequest

UNREADABLE = "解析json失败"
NO_ID = "job id不能为空"
NO_TOPIC = "topic 不能为空"
NO_POP_TOPIC = "topic不能为空"
BAD_DELAY = "delay 取值范围1 - (2^31 - 1)"
BAD_TTR = "ttr 取值范围1 - 86400"

MAX_DELAY_S = 1 << 31  # one more than the message says, because the original compares with >
MAX_TTR_S = 86_400

_SPACES = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_SURROGATE = re.compile("[\ud800-\udfff]")
_plain = msgspec.json.Decoder(dict[str, str | _Int64]).decode
_NO_INT64: Final = object()  # a number that does not fit the original's integer: 1.5, 3600.0, 1e3, 2^63
_JOB: Final[Mapping[str, str | int]] = {"topic": "", "id": "", "delay": 0, "ttr": 0, "body": ""}


class Push(msgspec.Struct, frozen=True):
    """A job. Times are in seconds, as in the request."""

    topic: str
    id: str
    delay_s: int
    ttr_s: int
    body: str


def push(raw: bytes) -> Push:
    """Reports the first fault. The checks have the original's order."""
    fields = _fields(raw, _JOB)
    job = Push(fields["topic"], fields["id"], fields["delay"], fields["ttr"], fields["body"])
    if not job.id:
        raise BadRequest(NO_ID)
    if not job.topic:
        raise BadRequest(NO_TOPIC)
    if not 0 < job.delay_s <= MAX_DELAY_S:
        raise BadRequest(BAD_DELAY)
    if not 0 < job.ttr_s <= MAX_TTR_S:
        raise BadRequest(BAD_TTR)
    return job


def pop(raw: bytes) -> tuple[str, ...]:
    """The topics in order of priority, without duplicates. The list is trimmed as a whole, not name by name."""
    topic: str = _fields(raw, {"topic": ""})["topic"]
    if not topic:
        raise BadRequest(NO_POP_TOPIC)
    return tuple(dict.fromkeys(topic.split(",")))


def job_id(raw: bytes) -> str:
    id: str = _fields(raw, {"id": ""})["id"]
    if not id:
        raise BadRequest(NO_ID)
    return id


def clean_path(path: str) -> str:
    """A path as Go's mux looks it up: without empty, "." and ".." segments. A trailing slash stays."""
    clean = normpath("/" + path.lstrip("/"))
    return clean + "/" if path.endswith("/") and clean != "/" else clean


def _fields(raw: bytes, zeros: Mapping[str, str | int]) -> dict[str, Any]:
    """The fields that `zeros` names, each in the type of its zero value."""
    fields: dict[str, Any] = dict(zeros)
    usual = _usual(raw)
    for key, value in _pairs(raw) if usual is None else usual.items():
        name = key.lower()
        if name not in zeros or value is None:
            continue
        if type(value) is not type(zeros[name]):
            _refuse()
        if isinstance(value, str):
            value = (value if usual is not None else _SURROGATE.sub("\ufffd", value)).strip(_SPACES)
        fields[name] = value
    return fields


def _usual(raw: bytes) -> dict[str, str | int] | None:
    """The object, if it hides nothing from a faster decoder: only texts and integers of 64 bits, and no repeated key,
    which would leave more quotes than those of the keys and texts that were found."""
    if b"\\\\" in raw:  # else a backslash before a quote escapes it
        return None
    try:
        found = _plain(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    texts = len(found)
    for value in found.values():
        texts += value.__class__ is str
    return found if raw.count(b'"') - raw.count(b'\\"') == 2 * texts else None


def _pairs(raw: bytes) -> list[tuple[str, Any]]:
    """The keys and values of the object, in order. `null` counts as an empty object."""
    try:
        value = json.loads(
            raw.decode(errors="surrogateescape"),
            object_pairs_hook=list,
            parse_int=_int64,
            parse_float=lambda _: _NO_INT64,
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError):
        _refuse()
    if value is None:
        return []
    if not isinstance(value, list) or raw.lstrip(b" \t\r\n")[:1] != b"{":
        _refuse()
    return value  # pyright: ignore[reportUnknownVariableType]


def _int64(text: str) -> object:
    if len(text) > 20:  # out of range, and perhaps too long for int()
        return _NO_INT64
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else _NO_INT64


def _refuse(_: object = None) -> NoReturn:
    raise BadRequest(UNREADABLE)
