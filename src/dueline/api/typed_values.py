"""Decodes JSON into typed values: with msgspec, and with pydantic for types that contain pydantic types. No I/O.

    Order, dict[str, int], list[Struct]        msgspec
    Model, list[Model], Model | None           pydantic, for the whole value
    a struct with a field of type Model        msgspec, and pydantic for that field

This never imports pydantic: a program that uses a pydantic type has already imported it.
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
    """A function that decodes JSON text as `annotation` and raises ValueError for text that does not fit. Raises
    TypeError for a type that JSON cannot represent."""
    validate = getattr(annotation, "model_validate_json", None)
    if validate is not None:
        return validate
    foreign = set(_foreign(annotation))
    if any(_is_of_pydantic(kind) for kind in foreign):
        try:
            return sys.modules["pydantic"].TypeAdapter(annotation).validate_json
        except Exception:  # it contains a type that pydantic does not know, such as a struct, or a forward reference
            pass
    for kind in foreign:
        if not _is_model(kind) and not _can_be_json(kind):
            raise TypeError(f"it contains {getattr(kind, '__qualname__', kind)}, which cannot be decoded from JSON")
    try:
        return msgspec.json.Decoder(annotation, dec_hook=_validated).decode
    except NotImplementedError as unknown:
        raise TypeError(str(unknown)) from None


def decode_as(annotation: Any, text: bytes) -> Any:
    """Decode JSON text as `annotation`; raises ValueError and TypeError as `decoder_of` does. Decoders of hashable
    types are cached."""
    try:
        decode = _cached(annotation)
    except TypeError:
        decode = decoder_of(annotation)
    try:
        return decode(text)
    except RecursionError:  # only a base64 body can be this deep: the server limits the depth of JSON bodies
        raise msgspec.DecodeError("it is nested too deeply") from None


_cached = lru_cache(256)(decoder_of)


def _foreign(annotation: Any) -> Iterator[Any]:
    """The classes in a type that msgspec does not know, and pydantic's dataclasses."""
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
    """Whether some decoded JSON value is already an instance of it, as with `object` or an abstract class."""
    try:
        return any(isinstance(sample, kind) for sample in _SAMPLES)
    except TypeError:
        return False


def _validated(kind: Any, value: Any) -> Any:
    """Validate a model inside a msgspec type. It gets JSON, because pydantic has other rules for Python values."""
    return kind.model_validate_json(msgspec.json.encode(value)) if _is_model(kind) else value
