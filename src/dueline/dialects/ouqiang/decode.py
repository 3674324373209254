"""Requests as Go's encoding/json would decode them into the original's structs. No I/O.

Keys match in any case, unknown ones are ignored, a missing or null field is its zero value, a wrong type or anything behind the
object fails the whole request. Bytes that are not UTF-8 and lone surrogates become U+FFFD. Texts are trimmed as Go trims them.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import msgspec

from ...engine.errors import BadRequest

UNREADABLE = "解析json失败"
NO_ID = "job id不能为空"
NO_TOPIC = "topic 不能为空"
NO_POP_TOPIC = "topic不能为空"
BAD_DELAY = "delay 取值范围1 - (2^31 - 1)"
BAD_TTR = "ttr 取值范围1 - 86400"

MAX_DELAY_S = 1 << 31  # one more than its message says: the original compares with >
MAX_TTR_S = 86_400
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_SURROGATE = re.compile("[\ud800-\udfff]")


class Push(msgspec.Struct, frozen=True):
    topic: str
    id: str
    delay_s: int
    ttr_s: int
    body: str


def push(raw: bytes) -> Push:
    fields = _fields(raw)
    id, topic = _text(fields, "id"), _text(fields, "topic")
    delay, ttr, body = _whole(fields, "delay"), _whole(fields, "ttr"), _text(fields, "body")
    if not id:
        raise BadRequest(NO_ID)
    if not topic:
        raise BadRequest(NO_TOPIC)
    if not 0 < delay <= MAX_DELAY_S:
        raise BadRequest(BAD_DELAY)
    if not 0 < ttr <= MAX_TTR_S:
        raise BadRequest(BAD_TTR)
    return Push(topic, id, delay, ttr, body)


def pop(raw: bytes) -> tuple[str, ...]:
    """The topics, in order of priority. They are not trimmed one by one; a repeated one counts once."""
    topic = _text(_fields(raw), "topic")
    if not topic:
        raise BadRequest(NO_POP_TOPIC)
    return tuple(dict.fromkeys(name for name in topic.split(",") if name))


def job_id(raw: bytes) -> str:
    id = _text(_fields(raw), "id")
    if not id:
        raise BadRequest(NO_ID)
    return id


def _refuse(_: object = None) -> NoReturn:
    raise BadRequest(UNREADABLE)


class _Fraction:
    """A number that is no integer in Go's eyes: 1.5, 3600.0, 1e3."""


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(
            raw.decode(errors="replace"),
            object_pairs_hook=list,
            parse_float=lambda _: _Fraction(),
            parse_constant=_refuse,
        )
    except (ValueError, RecursionError):
        _refuse()
    if value is None:
        return {}
    if not isinstance(value, list) or raw.lstrip(b" \t\r\n")[:1] != b"{":
        _refuse()
    fields: dict[str, Any] = {}
    for key, one in value:
        if one is not None:  # null leaves a field as it is
            fields[_SURROGATE.sub("�", key).casefold()] = one
    return fields


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str):
        _refuse()
    return _SURROGATE.sub("�", value).strip(_SPACES)


def _whole(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        _refuse()
    return value
