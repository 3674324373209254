"""JSON as it was written, for protocols that are lax about types: numbers digit for digit, objects as pairs. No I/O."""

from __future__ import annotations

import json
from typing import Any, NoReturn


class Number(str):
    """A JSON number as it was written."""


class Object(list[tuple[str, Any]]):
    """A JSON object as pairs, in their order; a key may stand there twice."""


class NoObject(ValueError):
    """JSON, but of another kind."""


def written_object(text: str) -> Object:
    """The object that this text is. Raises NoObject; ValueError: it is no JSON, or nested too deeply."""
    try:
        value = json.loads(
            text, object_pairs_hook=Object, parse_int=Number, parse_float=Number, parse_constant=_no_constant
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, Object):
        raise NoObject
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
