"""One request: strict JSON, keys in any case, numbers also as numeric text. No I/O.

What the document leaves open follows its sibling (ouqiang) where it can: ids and topics are trimmed, a missing body is "".
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import msgspec

from ...engine.errors import BadRequest, DuelineError

MAX_S = 1e10  # seconds; far beyond the last time there is
_NUMBER = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
COMMANDS = {"add": "add", "put": "add", "push": "add", "pop": "pop", "finish": "finish", "delete": "delete"}


class Refused(BadRequest):
    """A request that is answered with success false; `id` is the job's if it was understood."""

    def __init__(self, message: str, id: str | None = None) -> None:
        super().__init__(message)
        self.id = id


class Asked(msgspec.Struct, frozen=True):
    """What a request wants. Times in ms; `wait_ms` is an extension (`timeout`), 0 by default."""

    command: str
    topic: str = ""
    id: str = ""
    delay_ms: int = 0
    ttr_ms: int | None = None
    body: str = ""
    wait_ms: int = 0


def asked(raw: bytes) -> Asked:
    fields = _fields(raw)
    name = fields.get("command")
    command = COMMANDS.get(name) if isinstance(name, str) else None
    id = _name(fields, "id")
    if command is None:
        raise Refused("unknown command", id or None)
    if command == "pop":
        return Asked(command, _required(fields, "topic"), wait_ms=_ms(fields, "timeout", 0, id) or 0)
    if command != "add":
        return Asked(command, id=_required(fields, "id"))
    topic, id = _name(fields, "topic"), _required(fields, "id")
    if not topic:
        raise Refused("topic required", id)
    delay_ms = _ms(fields, "delay", None, id)
    if delay_ms is None or delay_ms < 0:
        raise Refused("delay invalid", id)
    ttr_ms = _ms(fields, "ttr", None, id)
    if ttr_ms is not None and ttr_ms < 1000:
        raise Refused("ttr invalid", id)
    return Asked(command, topic, id, delay_ms, ttr_ms, _body(fields.get("body")))


def _constant(_: str) -> NoReturn:
    raise ValueError


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode(), parse_constant=_constant)
    except (ValueError, RecursionError):
        raise Refused("invalid json") from None
    if not isinstance(value, dict):
        raise Refused("invalid json")
    return {str(key).casefold(): one for key, one in value.items() if one is not None}


def _name(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name, "")
    return _SURROGATE.sub("�", value).strip() if isinstance(value, str) else ""


def _required(fields: dict[str, Any], name: str) -> str:
    value = _name(fields, name)
    if not value:
        raise Refused(f"{name} required", _name(fields, "id") or None)
    return value


def _ms(fields: dict[str, Any], name: str, default: int | None, id: str) -> int | None:
    """Seconds to whole milliseconds, rounded up: never early."""
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -MAX_S <= value <= MAX_S:
        raise Refused(f"{name} invalid", id or None)
    return math.ceil(round(value * 1000, 6))


def _body(value: Any) -> str:
    """A text as it is; an object or array as its compact JSON text."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _SURROGATE.sub("�", text)


def id_of(error: DuelineError) -> str | None:
    return error.id if isinstance(error, Refused) else None
