"""The head of a request: its headers as a handler sees them, and the checks that it must pass. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

T = TypeVar("T")


class Headers(Mapping[str, str]):
    """Request headers, decoded on access. Repeated ones are joined with a comma."""

    __slots__ = ("_raw",)

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        return self._raw[name.encode("latin-1", "replace")].decode("latin-1")

    @overload
    def get(self, key: str, /) -> str | None: ...
    @overload
    def get(self, key: str, /, default: str | T) -> str | T: ...
    def get(self, key: str, /, default: Any = None) -> Any:
        # Mapping.get raises and catches KeyError for a missing header, which is the common case.
        value = self._raw.get(key.encode("latin-1", "replace"))
        return default if value is None else value.decode("latin-1")

    def replaced(self, name: bytes, value: bytes) -> Headers:
        """The same headers, but one."""
        return Headers({**self._raw, name: value})

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._raw)

    def __len__(self) -> int:
        return len(self._raw)


def join_headers(pairs: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Headers by lower-case name; repeated ones joined with a comma."""
    raw = {name.lower(): value for name, value in pairs}
    if len(raw) != len(pairs):
        raw = {}
        for name, value in pairs:
            name = name.lower()
            raw[name] = raw[name] + b", " + value if name in raw else value
    return raw


def head_fault(version: str, raw: dict[bytes, bytes]) -> str | None:
    """What is wrong with a head that the parser accepted, or None. Together they reject every head that two HTTP
    implementations could read differently (request smuggling)."""
    if version != "1.1" and version != "1.0":
        return f"HTTP/{version} is not supported"
    host = raw.get(b"host")  # may be missing: nothing here depends on it, and a browser always sends one
    if host is not None and b"," in host:
        return "There is more than one Host header"
    coding = raw.get(b"transfer-encoding")
    length = raw.get(b"content-length")
    if coding is not None:
        if length is not None:
            return "Content-Length and Transfer-Encoding must not be used together"
        if coding.lower() != b"chunked" or version == "1.0":
            return "The only transfer coding is chunked, in HTTP/1.1"
    if length is not None and not (length.isdigit() and len(length) <= 19):
        return "Content-Length is not a number"
    return None
