"""Decode EXFE's requests. The checks and their order are the original's. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from urllib.parse import parse_qs

import msgspec

from ...engine.errors import BadRequest, DuelineError, EgressRefused, InvalidField, NoRoute
from ...engine.store import MergeUpdate
from . import base64url

CheckUrl = Callable[[str], object]
"""Raises InvalidField for an invalid URL, EgressRefused for one that this server must not call."""

MAX_KEY_BYTES = 400  # a longer merge key is stored as its digest
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_METHOD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}", re.ASCII)


class Refused(BadRequest):
    """A refusal with the original's exact text and HTTP status."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class Group(msgspec.Struct, frozen=True):
    """The items that belong together: (merge key, method, service). `merges` False: one callback per item."""

    key: str
    method: str
    url: str
    merges: bool

    @property
    def merge_key(self) -> str:
        """A unique name of the group, readable if it is short."""
        text = f"{self.method} {self.url} {self.key}"
        is_plain = text.isprintable() and " " not in self.url
        return text if is_plain and len(text.encode()) <= MAX_KEY_BYTES else self.tag

    @property
    def tag(self) -> str:
        """A short name of the group."""
        parts = [self.method.encode(), self.url.encode(), self.key.encode()]
        whole = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return "exfe:" + blake2b(whole, digest_size=16).hexdigest()


class ParsedRequest(msgspec.Struct, frozen=True):
    """A push. `at_s` None: now."""

    group: Group
    at_s: int | None
    update: MergeUpdate


def push(place: str, query: str, check_url: CheckUrl) -> ParsedRequest:
    key, method, service = _parts(place)
    fields = parse_qs(query, keep_blank_values=True)
    at_s = _ontime(fields.get("ontime", [""])[0])
    url = _service(method, service)
    update = fields.get("update", [""])[0]
    if update not in ("", "once", "always"):
        raise Refused(f"invalid update type: {update}", 500)
    _check(url, service, check_url)
    group = Group(key, method, url, merges(key))
    return ParsedRequest(
        group, at_s if at_s > 0 else None, MergeUpdate.ALWAYS if update == "always" else MergeUpdate.ONCE
    )


def drop(place: str) -> Group:
    key, method, service = _parts(place)
    return Group(key, method, _service(method, service), merges(key))


def merges(key: str) -> bool:
    """Whether pushes under this key share a callback. They do not if the key begins with a dash, either as given or
    decoded. Callers encode keys with special characters; a key that decodes to unprintable text was not encoded."""
    if key.startswith("-"):
        return False
    try:
        decoded = base64url.decode(key).decode()
    except ValueError:
        return True
    return not (decoded.startswith("-") and decoded.isprintable())


def _parts(place: str) -> tuple[str, str, str]:
    key, _, rest = place.partition("/")
    method, _, service = rest.partition("/")
    if not (key and method and service):
        raise NoRoute
    return key, method, service


def _ontime(text: str) -> int:
    if not _INTEGER.fullmatch(text) or not -(1 << 63) <= int(text) < 1 << 63:
        raise Refused(f"id(ontime)'s value({text}) is invalid int64")
    return int(text)


def _service(method: str, service: str) -> str:
    if not _METHOD.fullmatch(method) or method.upper() == "CONNECT":  # CONNECT cannot be called
        raise Refused(f"invalid method: {method}")
    try:
        return base64url.decode(service).decode()
    except base64url.Illegal as error:
        raise Refused(f"service({service}) invalid: {error}") from None
    except UnicodeDecodeError:
        raise Refused(f"service({service}) invalid: it is not a string") from None


def _check(url: str, service: str, check_url: CheckUrl) -> None:
    try:
        check_url(url)
    except EgressRefused as error:
        raise Refused(f"service({_shown(url)}) refused: {error.message}", 403) from None
    except InvalidField as error:
        raise Refused(f"service({service}) invalid: {error.message}") from None


def _shown(url: str) -> str:
    """A URL without the parts that may be secret: user, password and query."""
    head, sign, rest = re.split(r"[?#]", url, maxsplit=1)[0].partition("://")
    host, slash, path = rest.partition("/")
    return f"{head}{sign}{host.rpartition('@')[2]}{slash}{path}"


def text_of(error: DuelineError) -> str:
    """The text of a refusal, on one line."""
    text = f"{error.field}: {error.message}" if error.field else error.message
    return " ".join(text.split())
