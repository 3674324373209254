"""Packs a job's headers into the bytes that the store keeps: one compact JSON object, or empty bytes. No I/O.

A dialect that answers in JSON may embed the packed form unchanged.
"""

from __future__ import annotations

import msgspec

_decode = msgspec.json.Decoder(dict[str, str]).decode


def pack_headers(headers: tuple[tuple[str, str], ...]) -> bytes:
    return msgspec.json.encode(dict(headers)) if headers else b""


def unpack_headers(packed: bytes) -> tuple[tuple[str, str], ...]:
    """The headers. Returns none if the bytes are damaged, because no checksum covers them."""
    try:
        return tuple(_decode(packed).items()) if packed else ()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
