"""A job as Jackson would read it into the original's class. No I/O.

Unknown fields are ignored, of repeated ones the last counts, and names are case-sensitive. A text field also accepts a
number or a boolean, as its text. The time also accepts a numeric text; it is 0 if it is missing, null or empty, and a
fraction is cut off. taskId and taskType are required, but may be empty.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ...engine.errors import BadJson, InvalidField, MissingField, UnsupportedMediaType
from ..raw_json import NoObject, Number, written_object

NO_ID = "任务id不能为空"
NO_TYPE = "任务类型不能为空"
LEAST_LONG, MOST_LONG = -(1 << 63), (1 << 63) - 1

_JSON_TYPE = re.compile(r"application/(?:json|[a-z0-9!#$&^_.-]+\+json)", re.ASCII)
_CHARSET = re.compile(r"charset\s*=\s*\"?([^\s;\"]+)", re.ASCII | re.IGNORECASE)
_LONG = re.compile(r"[+-]?[0-9]{1,25}", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")


class ParsedRequest(msgspec.Struct, frozen=True):
    """A job as it was added. `delay_time` is an absolute time in ms. None: not given."""

    task_id: str
    task_type: str
    delay_time: int
    params: str | None
    app_name: str | None


def lookup_path(path: str) -> str:
    """A path as Spring MVC 5 looks it up: repeated slashes count as one, and a trailing slash is ignored."""
    path = re.sub("/{2,}", "/", path)
    return path.removesuffix("/") or "/"


def check_content_type(headers: Mapping[str, str]) -> None:
    """Raises UnsupportedMediaType unless the type is JSON in UTF-8."""
    content_type = headers.get("content-type", "")
    kind = content_type.partition(";")[0].strip().lower()
    if not _JSON_TYPE.fullmatch(kind):
        raise UnsupportedMediaType(f"Content type '{kind}' not supported")
    charset = _CHARSET.search(content_type)
    if charset is not None and charset[1].lower() not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType(f"Charset '{charset[1]}' not supported: send UTF-8")


def parse(raw: bytes) -> ParsedRequest:
    """Raises BadRequest for the first fault, with the name of its field."""
    fields = _fields(raw)
    task_id = _text(fields, "taskId")
    task_type = _text(fields, "taskType")
    delay_time = _long(fields, "delayTime")
    params = _text(fields, "params")
    app_name = _text(fields, "appName")
    if task_id is None:
        raise MissingField(NO_ID, "taskId")
    if task_type is None:
        raise MissingField(NO_TYPE, "taskType")
    return ParsedRequest(task_id, task_type, delay_time, params, app_name)


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        return dict(written_object(raw.decode("utf-8-sig")))
    except NoObject:
        raise BadJson("The body is not a JSON object.") from None
    except ValueError:
        raise BadJson("The body is not JSON in UTF-8.") from None


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise InvalidField("is not a string", name)
    if _SURROGATE.search(value):
        raise InvalidField("has an unpaired surrogate, which UTF-8 cannot encode", name)
    return str(value)


def _long(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if value is None or (isinstance(value, str) and not isinstance(value, Number) and value.strip() in ("", "null")):
        return 0
    if isinstance(value, Number):
        return _within(_whole(value, name), name)
    if not isinstance(value, str) or not _LONG.fullmatch(value.strip()):
        raise InvalidField("is neither a number nor a string that holds one (milliseconds since 1970)", name)
    return _within(int(value), name)


def _whole(written: str, name: str) -> int:
    """A JSON number without its fraction, as a cast in Java."""
    if _LONG.fullmatch(written):
        return int(written)
    number = float(written) if len(written) <= 400 else float("inf")
    if not abs(number) < 1e19:
        raise InvalidField("does not fit into 64 bits", name)
    return int(number)


def _within(number: int, name: str) -> int:
    if not LEAST_LONG <= number <= MOST_LONG:
        raise InvalidField("does not fit into 64 bits", name)
    return number
