"""JSON as it was written, for protocols with loose types: numbers digit for digit, objects as pairs. No I/O."""

from __future__ import annotations

import json
from typing import Any, NoReturn


class Number(str):
    """A JSON number as it was written."""


class Object(list[tuple[str, Any]]):
    """A JSON object as pairs, in order; a key may occur more than once."""


class NoObject(ValueError):
    """The text is JSON, but not an object."""


def written_object(text: str) -> Object:
    """The JSON object in this text. Raises NoObject, or ValueError if it is not JSON or is nested too deeply."""
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
