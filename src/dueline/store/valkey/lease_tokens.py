"""Lease tokens: 12 bytes in the store, 16 characters for the holder of the lease. No I/O."""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence

_is_token = re.compile(r"[A-Za-z0-9_~]{16}", re.ASCII).fullmatch
_NO_TOKEN = b"\xff" * 12
_NEVER_GIVEN = bytes(12)  # the store's sign for "no token"
_FROM_BASE64, _TO_BASE64 = bytes.maketrans(b"+/", b"_~"), bytes.maketrans(b"_~", b"+/")


def token_texts(tokens: Sequence[bytes]) -> list[str]:
    """Each as 16 characters that need no escaping in a URL and never look like a command-line option."""
    text = binascii.b2a_base64(b"".join(tokens), newline=False).translate(_FROM_BASE64).decode()
    return [text[at : at + 16] for at in range(0, len(text), 16)]  # 12 bytes need no padding


def token_bytes(text: str | None) -> bytes:
    """The 12 bytes of a token. An invalid text becomes a token that no lease has; None becomes empty bytes."""
    if text is None:
        return b""
    if _is_token(text) is None:
        return _NO_TOKEN
    token = binascii.a2b_base64(text.encode().translate(_TO_BASE64))
    return _NO_TOKEN if token == _NEVER_GIVEN else token
