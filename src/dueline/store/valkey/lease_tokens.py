"""Lease tokens: 12 bytes in the store, 16 characters for the holder of the lease. No I/O."""

from __future__ import annotations

import binascii
import re

_TOKEN = re.compile(r"[A-Za-z0-9_~]{16}", re.ASCII)
_NO_TOKEN = b"\xff" * 12
_FROM_BASE64, _TO_BASE64 = bytes.maketrans(b"+/", b"_~"), str.maketrans("_~", "+/")


def token_text(token: bytes) -> str:
    """16 characters that need no escaping in a URL and never look like a command-line option."""
    return binascii.b2a_base64(token, newline=False).translate(_FROM_BASE64).decode()


def token_bytes(text: str | None) -> bytes:
    """The 12 bytes of a token. An invalid text becomes a token that no lease has; None becomes empty bytes."""
    if text is None:
        return b""
    if _TOKEN.fullmatch(text) is None:
        return _NO_TOKEN
    token = binascii.a2b_base64(text.translate(_TO_BASE64))
    return token if any(token) else _NO_TOKEN
