"""Decode one request: strict JSON, keys in any case, numbers also as numeric text, names also as numbers. No I/O.

Where the protocol's description leaves something open, we follow ouqiang, its closest relative: ids and topics are
trimmed, null means missing, of repeated fields the last counts, a missing body is "".
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, cast

import msgspec

from ...engine.errors import BadRequest
from ...engine.limits import LAST_MS
from ..raw_json import Number, Object, written_object

MAX_NAME_DIGITS, MAX_EXPONENT_CHARS = 600, 4  # of a number that is used as a name
MAX_S = LAST_MS / 1000  # longer times are cut to this
COMMANDS = {"add": "add", "put": "add", "push": "add", "pop": "pop", "finish": "finish", "delete": "delete"}
_NUMERAL = re.compile(r"\s*[+-]?(?:\d{1,30}(?:\.\d{1,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,9})?\s*", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")


class Refused(BadRequest):
    """A request that is answered with success false. `id` is that of the job, if it could be read."""

    def __init__(self, message: str, id: str | None = None, code: str = BadRequest.code) -> None:
        super().__init__(message)
        self.id = id or None
        self.code = code


class ParsedRequest(msgspec.Struct, frozen=True):
    """A decoded request. Times are in ms. `wait_ms` is an extension of ours (`timeout`), 0 by default."""

    command: str
    topic: str = ""
    id: str = ""
    delay_ms: int = 0
    ttr_ms: int | None = None
    body: str = ""
    wait_ms: int = 0


def parse(raw: bytes) -> ParsedRequest:
    """Raises Refused with a stable text for the first fault. Checks command, topic, id, delay, ttr, in this order."""
    fields = _fields(raw)
    name, id = fields.get("command"), _name(fields, "id")
    command = COMMANDS.get(name) if type(name) is str else None
    if command is None:
        raise Refused("unknown command", id)
    topic = _name(fields, "topic")
    if command in ("add", "pop") and not topic:
        raise Refused("topic required", id)
    if command == "pop":
        return ParsedRequest(command, topic, wait_ms=max(0, _ms(fields, "timeout", id) or 0))
    if not id:
        raise Refused("id required")
    if command != "add":
        return ParsedRequest(command, id=id)
    delay_ms, ttr_ms = _ms(fields, "delay", id), _ms(fields, "ttr", id)
    if delay_ms is None or delay_ms < 0:
        raise Refused("delay invalid", id)
    if ttr_ms is not None and ttr_ms < 1000:
        raise Refused("ttr invalid", id)
    return ParsedRequest(command, topic, id, delay_ms, ttr_ms, _body(fields.get("body", "")))


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        pairs = written_object(raw.decode())
    except ValueError:
        raise Refused("invalid json") from None
    return {key.lower(): one for key, one in pairs if one is not None}


def _name(fields: dict[str, Any], name: str) -> str:
    """A text without surrounding spaces; a number as its decimal text."""
    value = fields.get(name, "")
    if isinstance(value, Number):
        return _decimal(value)
    return _SURROGATE.sub("\ufffd", value).strip() if type(value) is str else ""


def _decimal(number: Number) -> str:
    """The same text for 7, 7.0 and 0.7e1. A number too long for a name stays as it was written and is refused later."""
    exponent = number.lower().partition("e")[2]
    if len(number) > MAX_NAME_DIGITS or len(exponent) > MAX_EXPONENT_CHARS:
        return str(number)
    text = format(Decimal(number), "f")
    return text.rstrip("0").removesuffix(".") if "." in text else text


def _ms(fields: dict[str, Any], name: str, id: str) -> int | None:
    """Seconds as whole milliseconds, rounded up so that nothing is early. Negative stays negative. None: not given."""
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, Number) and not (isinstance(value, str) and _NUMERAL.fullmatch(value)):
        raise Refused(f"{name} invalid", id)
    seconds = max(-MAX_S, min(float(value), MAX_S))
    return math.floor(seconds * 1000) if seconds < 0 else math.ceil(round(seconds * 1000, 6))


def _body(value: Any) -> str:
    """A text unchanged; anything else as compact JSON, with numbers digit for digit."""
    try:
        return _SURROGATE.sub("\ufffd", value if type(value) is str else _compact(value))
    except RecursionError:
        raise Refused("invalid json") from None


def _compact(value: Any) -> str:
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, Object):
        inside = ",".join(f"{_compact(key)}:{_compact(one)}" for key, one in dict(value).items())
        return "{" + inside + "}"
    if isinstance(value, list):
        return "[" + ",".join(_compact(one) for one in cast(list[Any], value)) + "]"
    return json.dumps(value, ensure_ascii=False)
