"""The client's HTTP/1.1: it encodes requests and parses responses incrementally. No I/O.

Both clients only move bytes; all parsing is here. The reader accepts the framings that a server or a proxy may use
(Content-Length, chunked, end of connection) and rejects ambiguous ones: a response whose end is in doubt is never
returned to a caller, and its connection is never reused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum

import msgspec

IDLE_S = 50.0  # idle connections older than this are dropped: a NAT or proxy in between may have forgotten them
MAX_HEAD_BYTES = 65_536
MAX_HEADERS = 500
MAX_BODY_BYTES = 256 << 20
MAX_CHUNK_LINE_BYTES = 1_024
MAX_ASIDE_BYTES = 65_536  # of what is neither head nor body: interim responses, extensions of chunks, the trailer

_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n]*)?", re.DOTALL)
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_DIGITS = re.compile(r"[0-9]{1,15}")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,12}")


class BadResponse(Exception):
    """The bytes are not an HTTP/1.1 response, or its end is in doubt."""


class Response(msgspec.Struct, frozen=True):
    """A complete response. Header names are lower case. `reusable`: the connection may carry another request; never
    after a response that was cut."""

    status: int
    headers: dict[str, str]
    body: bytes
    reusable: bool


def request_bytes(
    method: str, target: str, headers: Mapping[str, str] | Iterable[tuple[str, str]], body: bytes | None
) -> bytes:
    """A complete request. The caller has checked that no header contains a line break."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs)]
    if body is None:
        return ("\r\n".join(lines) + "\r\n\r\n").encode()
    return ("\r\n".join(lines) + f"\r\nContent-Length: {len(body)}\r\n\r\n").encode() + body


class _Part(Enum):
    HEAD = "head"
    LENGTH = "length"  # a body of known length
    CLOSE = "close"  # a body that ends with the connection
    CHUNK_SIZE = "chunk size"
    CHUNK_DATA = "chunk data"
    TRAILER = "trailer"


class ResponseReader:
    """Reads one response. Call `feed` with incoming bytes until it returns the Response; `end` if the connection ends.
    `has_body` False: the response to a HEAD request. `cut_at_bytes`: a longer body is cut; without it, an error."""

    def __init__(self, *, has_body: bool = True, cut_at_bytes: int | None = None) -> None:
        self._has_body = has_body
        self._cut_at_bytes = cut_at_bytes
        self._aside_bytes = 0
        self._at = _Part.HEAD
        self._buffer = bytearray()
        self._body = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._reusable = False
        self._left = 0

    def feed(self, data: bytes) -> Response | None:
        """The response as soon as it is complete, else None. Raises BadResponse."""
        self._buffer += data
        while self._step():
            if self._at is _Part.HEAD:  # a body has been read to its end
                return self._whole()
        return self._whole() if self._is_cut else None

    def end(self) -> Response | None:
        """The connection ended. The response, if it ends with the connection; None if it was cut off."""
        return self._whole() if self._at is _Part.CLOSE else None

    @property
    def _is_cut(self) -> bool:
        return self._cut_at_bytes is not None and len(self._body) > self._cut_at_bytes

    def _whole(self) -> Response:
        reusable = self._reusable and not self._buffer  # unrequested bytes: the connection is out of step
        if self._is_cut:
            del self._body[self._cut_at_bytes :]
            reusable = False
        return Response(self._status, self._headers, bytes(self._body), reusable)

    def _step(self) -> bool:
        """Parse one more element. Returns False if more bytes are needed. At HEAD again, the response is complete."""
        if self._at is _Part.HEAD:
            return self._read_head()
        if self._at is _Part.CLOSE:
            self._take(len(self._buffer))
            return False
        if self._at is _Part.LENGTH:
            self._left -= self._take(min(self._left, len(self._buffer)))
            self._at = _Part.HEAD if self._left == 0 else _Part.LENGTH
            return self._left == 0
        if self._at is _Part.CHUNK_DATA:
            return self._read_chunk()
        return self._read_line()

    def _take(self, size: int) -> int:
        if len(self._body) + size > MAX_BODY_BYTES and self._cut_at_bytes is None:
            raise BadResponse(f"the response has more than {MAX_BODY_BYTES} bytes")
        self._body += self._buffer[:size]
        del self._buffer[:size]
        return size

    def _read_head(self) -> bool:
        while (end := self._head_end()) is not None:
            first, *lines = bytes(self._buffer[:end]).split(b"\r\n")
            del self._buffer[: end + 4]
            status = _STATUS.fullmatch(first)
            if status is None:
                raise BadResponse("the response does not begin like HTTP/1.1")
            self._status = int(status[2])
            self._headers = _headers(lines)
            if self._status >= 200:
                self._frame(status[1] == b"1")
                return True
            if self._status == 101:
                raise BadResponse("the response changes the protocol")
            self._put_aside(end)  # an interim response; the final one follows
        return False

    def _head_end(self) -> int | None:
        """Where the head ends, once it has arrived."""
        end = self._buffer.find(b"\r\n\r\n")
        if 0 <= end <= MAX_HEAD_BYTES:
            return end
        if len(self._buffer) > MAX_HEAD_BYTES:
            raise BadResponse(f"the head of the response has more than {MAX_HEAD_BYTES} bytes")
        if not b"HTTP/1.".startswith(self._buffer[:7]):
            raise BadResponse("the response does not begin like HTTP/1.1")
        return None

    def _put_aside(self, size: int) -> None:
        self._aside_bytes += size
        if self._aside_bytes > MAX_ASIDE_BYTES:
            raise BadResponse(f"more than {MAX_ASIDE_BYTES} bytes in interim responses, chunk extensions and trailers")

    def _frame(self, modern: bool) -> None:
        """Determine where the body ends, and whether the connection can be reused."""
        coding, length = self._headers.get("transfer-encoding"), self._headers.get("content-length")
        self._reusable = modern and "close" not in _words(self._headers.get("connection", ""))
        if coding is not None and length is not None:
            raise BadResponse("the response has two lengths")
        if self._status in (204, 304) or not self._has_body:
            self._at, self._left = _Part.LENGTH, 0
        elif coding is not None:
            if coding.lower() != "chunked" or not modern:
                raise BadResponse("the response has an unknown transfer coding")
            self._at = _Part.CHUNK_SIZE
        elif length is not None:
            if not _DIGITS.fullmatch(length):
                raise BadResponse("the response's length is not a number")
            self._at, self._left = _Part.LENGTH, int(length)
        else:
            self._at, self._reusable = _Part.CLOSE, False

    def _read_chunk(self) -> bool:
        """Read the data of a chunk and the line break after it."""
        if self._left > 0:
            self._left -= self._take(min(self._left, len(self._buffer)))
        if self._left > 0 or len(self._buffer) < 2:
            return False
        if not self._buffer.startswith(b"\r\n"):
            raise BadResponse("a chunk of the response is longer than its declared size")
        del self._buffer[:2]
        self._at = _Part.CHUNK_SIZE
        return True

    def _read_line(self) -> bool:
        """Read the size of a chunk, or a line of the trailer; an empty line ends the response."""
        end = self._buffer.find(b"\r\n")
        if end < 0 or end > MAX_CHUNK_LINE_BYTES:
            if len(self._buffer) > MAX_CHUNK_LINE_BYTES:
                raise BadResponse("a line between the chunks of the response is too long")
            return False
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        if self._at is _Part.TRAILER:
            self._put_aside(end)
            self._at = _Part.TRAILER if line else _Part.HEAD
            return True
        size = line.partition(b";")[0].rstrip(b" \t")
        if not _HEX.fullmatch(size):
            raise BadResponse("the size of a chunk is not a number")
        self._put_aside(end - len(size))
        self._left = int(size, 16)
        self._at = _Part.CHUNK_DATA if self._left else _Part.TRAILER
        return True


def _headers(lines: list[bytes]) -> dict[str, str]:
    """Lower-case names and their values. Repeated headers are joined, except where that would be ambiguous."""
    if len(lines) > MAX_HEADERS:
        raise BadResponse(f"the response has more than {MAX_HEADERS} headers")
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        value = value.strip(" \t")
        if not colon or not _NAME.fullmatch(name) or "\r" in value or "\n" in value or "\0" in value:
            raise BadResponse("the response has a malformed header")
        name = name.lower()
        if name not in found:
            found[name] = value
        elif name in ("content-length", "transfer-encoding"):
            if found[name] != value or name == "transfer-encoding":
                raise BadResponse("the response has two lengths")
        else:
            found[name] = f"{found[name]}, {value}"
    return found


def _words(value: str) -> set[str]:
    return {word.strip(" \t").lower() for word in value.split(",")}
