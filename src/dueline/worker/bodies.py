"""A job's body as the type that a handler asks for. No I/O.

    annotation of the first parameter      what the handler gets
    none, Any                              the JSON value; bytes when the body is bytes
    bytes                                  the body's bytes: a text as UTF-8, any other JSON as its text
    str                                    a text as it is; any other JSON as its text; bytes as UTF-8
    msgspec struct, dataclass, TypedDict,
    list[...], int, datetime, UUID ...     decoded and checked by msgspec
    pydantic model, list[Model],
    Model | None ...                       validated by pydantic

A handler with several parameters takes the fields of a body object by name, each as the type of its parameter.

The items of a merge group come as one list, so its handler asks for `list[...]`. If a body does not fit, its job is
dead at once, with the reason as its last error (see `outcomes.UnfitBody`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from ..api.payload import Payload
from ..api.typed_values import decoder_of

Reader = Callable[[Payload], Any]


def reader_of(annotation: Any, where: str) -> Reader:
    """A function that decodes a body as `annotation`. Raises TypeError, naming `where`, for an impossible type."""
    if annotation is Any:
        return _value
    if annotation is bytes:
        return _bytes
    if annotation is str:
        return _text
    try:
        decode = decoder_of(annotation)
    except TypeError as wrong:
        raise TypeError(f"{where}: a body cannot be read as {annotation!r}: {wrong}") from None
    return lambda job: decode(job.data or b"null")


def fields_reader(types: Mapping[str, Any], optional: Collection[str], where: str) -> Reader:
    """A function that decodes the fields of a body object into a dict of those present. Fields without a parameter are
    ignored. Raises TypeError, naming `where`, for an impossible type."""
    fields = [(name, kind, msgspec.UNSET) if name in optional else (name, kind) for name, kind in types.items()]
    read = reader_of(msgspec.defstruct("Fields", fields, kw_only=True), where)

    def found(job: Payload) -> dict[str, Any]:
        values = msgspec.structs.asdict(read(job))
        return {name: value for name, value in values.items() if value is not msgspec.UNSET}

    return found


def takes_texts(reader: Reader) -> bool:
    """Whether the handler gets a text unchanged, rather than decoded as JSON."""
    return reader in (_value, _bytes, _text)


def _value(job: Payload) -> Any:
    return (job.data or b"") if isinstance(job.body_base64, str) else job.json()


def _bytes(job: Payload) -> bytes:
    data = job.data or b""
    if isinstance(job.body_base64, str) or not data.startswith(b'"'):
        return data
    return msgspec.json.decode(data, type=str).encode()


def _text(job: Payload) -> str:
    return _bytes(job).decode()
