"""URL-safe base64 with padding, decoded as strictly as the original's library, with its error texts. No I/O.

Line breaks are skipped; unused bits at the end may have any value.
"""

from __future__ import annotations

import binascii

_ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_PAD = ord("=")


class Illegal(ValueError):
    """The text is not base64. The message names the position of the first fault."""

    def __init__(self, place: int) -> None:
        super().__init__(f"illegal base64 data at input byte {place}")


def decode(text: str) -> bytes:
    """The decoded bytes. Raises Illegal."""
    data = text.encode()
    digits: list[tuple[int, int]] = [(place, byte) for place, byte in enumerate(data) if byte not in b"\r\n"]
    for count, (place, byte) in enumerate(digits):
        if byte == _PAD:
            _check_end(digits, count, len(data))
            break
        if byte not in _ALPHABET:
            raise Illegal(place)
    else:
        if len(digits) % 4:
            raise Illegal(len(data) - len(digits) % 4)
    return binascii.a2b_base64(bytes(byte for _, byte in digits).translate(_TO_STANDARD))


def _check_end(digits: list[tuple[int, int]], count: int, size: int) -> None:
    """Check the padding behind `count` digits: it must complete the last group of four, and nothing may follow."""
    place = digits[count][0]
    if count % 4 < 2:
        raise Illegal(place)
    ends = count + 1
    if count % 4 == 2:
        if ends == len(digits):
            raise Illegal(size)
        if digits[ends][1] != _PAD:
            raise Illegal(digits[ends][0])
        ends += 1
    if ends < len(digits):
        raise Illegal(digits[ends][0])
