"""The body of a job in an answer: as bytes, as a Python value, and the beginning of it in a repr. No I/O."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, UnsetType

from ..durations import datetime_of
from .typed_values import decode_as

T = TypeVar("T")

SHOWN_BYTES = 200  # of a body in a repr
FORMS = ("body", "body_base64", "items")


class Payload:
    """A job that carries a body in one of three forms, or none of them. `Job` and `LeasedJob` declare the fields."""

    __slots__ = ()

    body: Raw | UnsetType
    body_base64: str | UnsetType | None
    items: tuple[Raw, ...] | UnsetType | None
    due_at_ms: int

    @property
    def data(self) -> bytes | None:
        """The body as bytes: JSON text, or the decoded base64. None when the answer has no body."""
        if isinstance(self.body, Raw):
            return bytes(self.body)
        if isinstance(self.body_base64, str):
            try:
                return base64.b64decode(self.body_base64, validate=True)
            except binascii.Error:
                return None
        if isinstance(self.items, tuple):
            return b"[" + b",".join(bytes(item) for item in self.items) + b"]"
        return None

    def json(self) -> Any:
        """The body as a Python value; raises msgspec.DecodeError when it is not JSON."""
        return decode_as(Any, self.data or b"null")

    def body_as(self, type: type[T]) -> T:
        """The body as a value of `type`: a msgspec struct, dataclass, TypedDict, pydantic model, a list of them, or any
        type that msgspec decodes. Raises msgspec.ValidationError, or pydantic's, when the body does not fit."""
        return decode_as(type, self.data or b"null")

    @property
    def due_at(self) -> datetime:
        """The due time in UTC."""
        return datetime_of(self.due_at_ms)

    def __repr__(self) -> str:
        """The id, the topic, the start of the body, and every other field that differs from its default."""
        shown: list[str] = []
        for field in msgspec.structs.fields(self):  # pyright: ignore[reportArgumentType]
            value = getattr(self, field.name)
            if field.name not in FORMS and value not in (field.default, {}):
                shown.append(f"{field.name}={value!r}")
        if (data := self.data) is not None:
            name = "items" if isinstance(self.items, tuple) else "body"
            shown.insert(2, f"{name}={_beginning(data, isinstance(self.body_base64, str))}")
        return f"{type(self).__name__}({', '.join(shown)})"


def _beginning(data: bytes, is_bytes: bool) -> str:
    """The start of a body: JSON text as written, with unprintable characters escaped."""
    begin = data[:SHOWN_BYTES]
    text = repr(begin) if is_bytes else "".join(map(_printable, begin.decode(errors="backslashreplace")))
    return text if len(begin) == len(data) else f"{text}... ({len(data)} bytes)"


def _printable(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()
