"""Parses command line values into the API's numbers and texts. No I/O; an invalid value is a usage error.

A point in time is RFC 3339 ("2026-12-24T18:00:00Z"), the same without a zone (then the local one), or the number of
milliseconds since 1970. Fractions of a millisecond round up, because no job may be early.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
import typer
from msgspec import UNSET, Raw, UnsetType

from ..client.calls import bytes_body, json_body
from ..engine.errors import InvalidField
from ..engine.policy import duration_ms

WHITESPACE = b" \t\r\n"  # of JSON
TOO_DEEP = "nested too deeply for JSON"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class BodyAs(StrEnum):
    """How to interpret a body on the command line."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


def duration(text: str) -> int:
    """Milliseconds of "90s", "1.5h"."""
    try:
        return duration_ms(text)
    except InvalidField as wrong:
        raise typer.BadParameter(wrong.message) from wrong


def time_ms(text: str) -> int:
    """Milliseconds since 1970 of a point in time."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(f'"{text}" is not a time: write it like 2026-12-24T18:00:00Z') from None
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


def one_time(in_ms: int | None, at_ms: int | None) -> dict[str, int]:
    """The time fields of a request: at most one of --in and --at."""
    if in_ms is not None and at_ms is not None:
        raise typer.BadParameter("give --in or --at, not both")
    if in_ms is not None:
        return {"delay_ms": in_ms}
    return {} if at_ms is None else {"at_ms": at_ms}


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """K=V texts as a mapping."""
    found: dict[str, str] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise typer.BadParameter(f'"{text}": write it as KEY=VALUE', param_hint=option)
        found[key] = value
    return found


def body_fields(data: bytes, how: BodyAs) -> tuple[Raw | UnsetType, str | None]:
    """`body` and `body_base64` of a send. AUTO: JSON if it is JSON, else text, else bytes. Invalid JSON that begins
    like an object, a list or a string is a usage error."""
    if how is BodyAs.BYTES:
        return UNSET, bytes_body(data)
    if how in (BodyAs.AUTO, BodyAs.JSON):
        try:
            msgspec.json.decode(data)
            data.decode()
            return Raw(data.strip(WHITESPACE)), None
        except (msgspec.DecodeError, UnicodeDecodeError) as wrong:
            if how is BodyAs.JSON:
                raise typer.BadParameter(f"the body is not JSON: {wrong}") from None
            if data.lstrip(WHITESPACE)[:1] in (b"{", b"[", b'"'):
                raise typer.BadParameter(
                    f"the body begins like JSON but is not valid JSON: {wrong}. To send it as text, add --as text"
                ) from None
        except RecursionError:
            raise typer.BadParameter(f"the body is {TOO_DEEP}: send it with --as text or bytes") from None
    try:
        return json_body(data.decode()), None
    except UnicodeDecodeError:
        if how is BodyAs.TEXT:
            raise typer.BadParameter("the body is not UTF-8 text: send it with --as bytes") from None
        return UNSET, bytes_body(data)


def policy_values(texts: Sequence[str]) -> dict[str, Any]:
    """K=V texts of a topic's policy. A value is JSON, else a duration for a *_ms key, else text; null: the default."""
    values: dict[str, Any] = {}
    for key, text in pairs(texts, "set").items():
        try:
            values[key] = msgspec.json.decode(text)
        except msgspec.DecodeError:
            values[key] = duration(text) if key.endswith("_ms") else text
        except RecursionError:
            raise typer.BadParameter(f"{key}: is {TOO_DEEP}") from None
        if key == "on_dead" and isinstance(values[key], str):
            values[key] = {"url" if "://" in text else "topic": values[key]}
    return values


def filter_of(
    state: str | None, tag: str | None, due_after_ms: int | None, due_before_ms: int | None
) -> dict[str, Any]:
    """A bulk call's filter, with the given conditions only."""
    fields = {"state": state, "tag": tag, "due_after_ms": due_after_ms, "due_before_ms": due_before_ms}
    return {name: value for name, value in fields.items() if value is not None}
