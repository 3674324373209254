"""The fields of a multipart/form-data body (RFC 7578). No I/O, and linear in the size of the body.

A part with a file name is a file, which the framework does not treat as a parameter. Everything is UTF-8, whatever a
part declares, as in URL-encoded forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

KIND = "multipart/form-data"
MAX_HEAD_BYTES = 10_240  # per part, as in the original's servlet container

_PARAMETER = re.compile(r';\s*([\w*-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]*))', re.ASCII | re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class BrokenForm(ValueError):
    """The body does not match its content type."""


def fields(content_type: str, body: bytes, most: int) -> Iterator[tuple[str, str]]:
    """Up to `most` names and values, in order. Raises BrokenForm."""
    boundary = _parameters(content_type).get("boundary", "")
    if not boundary:
        raise BrokenForm("the content type names no boundary")
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"), most + 1)
    if not parts:
        raise BrokenForm("the body does not contain the boundary")
    for part in parts[:most]:
        if part.startswith(b"--"):
            return
        head, blank, value = part.partition(b"\r\n\r\n")
        if not blank or len(head) > MAX_HEAD_BYTES:
            raise BrokenForm("a part has no head, or one that is too long")
        disposition = _disposition(head)
        if "name" in disposition and "filename" not in disposition:
            yield disposition["name"], value.decode(errors="replace")
    if len(parts) <= most:
        raise BrokenForm("the end is missing")


def _disposition(head: bytes) -> dict[str, str]:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-disposition":
            return _parameters(value.decode(errors="replace"))
    return {}


def _parameters(value: str) -> dict[str, str]:
    """The parameters of a header value, by lower-case name. Of repeated ones the first counts."""
    found: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(value):
        found.setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) or plain)
    return found
