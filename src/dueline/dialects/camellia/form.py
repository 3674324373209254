"""Parameters as the original's framework (Spring on Tomcat) passes them to its handlers. No I/O.

They come from the query and, with a form's content type (URL-encoded or multipart), from the body; those of the query
come first. The encoding is always UTF-8, even if another charset is declared, because Spring Boot forces it. Bytes that
are not UTF-8 become U+FFFD. A parameter with an invalid escape is dropped. Repeated texts are joined with a comma; of
repeated numbers or booleans the first one counts.

The framework, not the application, refuses a parameter that is missing or cannot be converted: HTTP 400.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from ...engine.errors import BadRequest
from ..http import Request
from . import multipart

FORM = "application/x-www-form-urlencoded"
MAX_PARAMETERS = 10_000
MAX_DIGITS = 1_000
INT, LONG = 31, 63

_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_DECIMAL = re.compile(r"[+-]?\d+")  # \d matches all Unicode digits, as in Java
_HEX = re.compile(r"-?(?:0[xX]|#)([0-9A-Fa-f]+)", re.ASCII)
_TRUTH = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


class FrameworkRefusal(BadRequest):
    """A parameter is missing or has a value of another type."""


class Form:
    """The parameters of one request. Each method returns one parameter in its type, or raises FrameworkRefusal."""

    __slots__ = ("_first", "_repeated")

    def __init__(self, request: Request) -> None:
        self._first: dict[str, str] = {}
        self._repeated: dict[str, list[str]] = {}  # all values of a parameter with more than one
        room = (
            self._read(request.query.encode("latin-1", "replace"), MAX_PARAMETERS) if request.query else MAX_PARAMETERS
        )
        if request.method != "POST":
            return
        content_type = request.headers.get("content-type", "")
        kind = FORM if content_type == FORM else content_type.partition(";")[0].strip().lower()
        if kind == FORM:
            self._read(request.body, room)
        elif kind == multipart.KIND:
            self._read_parts(content_type, request.body, room)

    def _read_parts(self, content_type: str, body: bytes, room: int) -> None:
        try:
            for name, value in multipart.fields(content_type, body, room):
                self._add(name, value)
        except multipart.BrokenForm as error:
            raise FrameworkRefusal(str(error)) from None

    def _read(self, text: bytes, room: int) -> int:
        if not text:
            return room
        if b"%" not in text and b"+" not in text and text.isascii():
            pairs = [pair.partition("=") for pair in text.decode().split("&", room)[:room]]
            found = {name: value for name, _, value in pairs}
            if len(found) == len(pairs) and not self._first and "" not in found:
                self._first = found
            else:
                for name, _, value in pairs:
                    if name:
                        self._add(name, value)
            return room - len(pairs)
        for pair in text.split(b"&", room):
            if room == 0:
                break
            room -= 1
            name, _, value = pair.partition(b"=")
            if name and not (_BROKEN.search(name) or _BROKEN.search(value)):
                self._add(_text(name), _text(value))
        return room

    def _add(self, name: str, value: str) -> None:
        if name in self._first:
            self._repeated.setdefault(name, [self._first[name]]).append(value)
        else:
            self._first[name] = value

    def text(self, name: str) -> str:
        """A required text; it may be empty."""
        found = self.optional_text(name)
        if found is None:
            raise FrameworkRefusal("is missing", name)
        return found

    def optional_text(self, name: str) -> str | None:
        return ",".join(self._repeated[name]) if name in self._repeated else self._first.get(name)

    def number(self, name: str, bits: int) -> int:
        """A required number."""
        found = self.optional_number(name, bits)
        if found is None:
            raise FrameworkRefusal("is missing", name)
        return found

    def optional_number(self, name: str, bits: int) -> int | None:
        """None if it is missing or empty."""
        text = self._first.get(name)
        if not text:
            return None
        number = int(text) if len(text) < 10 and text.isascii() and text.isdigit() else _number("".join(text.split()))
        if number is None or not -(1 << bits) <= number < 1 << bits:
            raise FrameworkRefusal(f"is not a {bits + 1}-bit integer", name)
        return number

    def truth(self, name: str, default: bool) -> bool:
        word = self._first.get(name, "").strip().lower()
        if word == "":
            return default
        if word not in _TRUTH:
            raise FrameworkRefusal("is neither true nor false", name)
        return _TRUTH[word]


def _text(raw: bytes) -> str:
    return unquote_to_bytes(raw.replace(b"+", b" ")).decode(errors="replace")


def _number(word: str) -> int | None:
    if len(word) > MAX_DIGITS:  # int() is slow for a very long text, and no valid number is this long
        return None
    if _DECIMAL.fullmatch(word):
        return int(word)
    found = _HEX.fullmatch(word)
    if found is None:
        return None
    return -int(found[1], 16) if word.startswith("-") else int(found[1], 16)
