"""Checks JSON bodies. They are stored as received, so they are parsed once here, as every consumer will. No I/O."""

from __future__ import annotations

import re

import msgspec

from .errors import InvalidField

MAX_DEPTH = 64

_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_ONE_BRACKET = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(b for b in range(256) if b not in b"[]{}")
_json = msgspec.json.Decoder().decode


def check_json(raw: bytes) -> None:
    """Raises InvalidField with the field `body`."""
    try:
        _json(raw)
    except msgspec.DecodeError as error:
        raise InvalidField(f"cannot be parsed as JSON by every reader: {error}", "body") from None
    except RecursionError:
        raise InvalidField(f"is nested deeper than {MAX_DEPTH}", "body") from None
    if len(raw) > 2 * MAX_DEPTH and raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and depth(raw) > MAX_DEPTH:
        raise InvalidField(f"is nested deeper than {MAX_DEPTH}", "body")


def depth(raw: bytes) -> int:
    """How deep valid JSON is nested. Each round removes the innermost brackets with bytes.replace, which is fast."""
    brackets = _STRINGS.sub(b"", raw).translate(_ONE_BRACKET, _NOT_BRACKETS)
    levels = 0
    while brackets and levels <= MAX_DEPTH:
        brackets = brackets.replace(b"[]", b"")
        levels += 1
    return levels
