"""JSON as a value of a type: by msgspec, and by pydantic where a type of pydantic's stands in it. No I/O.

    Order, dict[str, int], list[Struct]        msgspec
    Model, list[Model], Model | None           pydantic: the whole of it, by its rules
    a struct with a field of type Model        msgspec, and pydantic for that field

pydantic is never imported for this: whoever names one of its types has done so.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import inspect

Decode = Callable[[bytes], Any]

_SAMPLES: tuple[Any, ...] = ({}, [], "", 0, 0.5, True, None)


def decoder_of(annotation: Any) -> Decode:
    """What reads JSON text as `annotation`; it raises ValueError for a text that is not one. Raises TypeError for a
    type that no JSON can be."""
    validate = getattr(annotation, "model_validate_json", None)
    if validate is not None:
        return validate
    foreign = set(_foreign(annotation))
    if any(_is_of_pydantic(kind) for kind in foreign):
        try:
            return sys.modules["pydantic"].TypeAdapter(annotation).validate_json
        except Exception:  # it holds what pydantic does not know, such as a struct, or what is defined further down
            pass
    for kind in foreign:
        if not _is_model(kind) and not _can_be_json(kind):
            raise TypeError(f"JSON cannot be read as {getattr(kind, '__qualname__', kind)} in it")
    try:
        return msgspec.json.Decoder(annotation, dec_hook=_validated).decode
    except NotImplementedError as unknown:
        raise TypeError(str(unknown)) from None


def decode_as(annotation: Any, text: bytes) -> Any:
    """Read JSON text as `annotation`; raises ValueError, TypeError as `decoder_of` does. The decoder is kept for the
    next time, where the type can be a key."""
    try:
        decode = _kept(annotation)
    except TypeError:
        decode = decoder_of(annotation)
    try:
        return decode(text)
    except RecursionError:  # bytes that somebody sent: JSON bodies are never so deep
        raise msgspec.DecodeError("it is nested too deeply") from None


_kept = lru_cache(256)(decoder_of)


def _foreign(annotation: Any) -> Iterator[Any]:
    """The classes in a type that msgspec does not know, or that are dataclasses of pydantic's."""
    try:
        info = inspect.type_info(annotation)
    except Exception:  # such as a union of two models, which pydantic can read
        for part in typing.get_args(annotation):
            yield from _foreign(part)
        return
    seen: set[int] = set()
    found: list[Any] = [info]
    while found:
        node = found.pop()
        if isinstance(node, tuple):
            found += node
        elif isinstance(node, inspect.Type | inspect.Field) and id(node) not in seen:
            seen.add(id(node))
            found += [getattr(node, name) for name in node.__struct_fields__]
            if isinstance(node, inspect.CustomType) or (
                isinstance(node, inspect.DataclassType) and _is_of_pydantic(node.cls)
            ):
                yield node.cls


def _is_of_pydantic(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_core_schema__") or hasattr(kind, "__get_pydantic_core_schema__")


def _is_model(kind: Any) -> bool:
    return hasattr(kind, "model_validate_json")


def _can_be_json(kind: Any) -> bool:
    """Whether some JSON value is an instance of it already, as of `object` or of an abstract class."""
    try:
        return any(isinstance(sample, kind) for sample in _SAMPLES)
    except TypeError:
        return False


def _validated(kind: Any, value: Any) -> Any:
    """A model inside a type of msgspec's. It is given JSON: pydantic reads that otherwise than Python's values."""
    return kind.model_validate_json(msgspec.json.encode(value)) if _is_model(kind) else value
