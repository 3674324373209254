"""Who calls: what a front asks before it reads a body, and where a request carries its token. No I/O.

head --admit--> Grant, or a refusal          once for a head; the token itself goes no further
known head, whole body --holds--> bool       each time: the token may have been revoked meanwhile
parked poll, if not --refusal--> why         a token that was rotated is still valid
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, MutableMapping
from typing import Protocol

from ..dialects.http import TokenPlace
from ..engine.errors import DuelineError
from ..rights import ALL, EVERYTHING, Grant
from .router import Found

_PATH_TOKEN = re.compile(rb"((?:[A-Za-z]+://[^/]*)?)/+(dl_[A-Za-z0-9]+_[A-Za-z0-9_-]+)(?=[/?#]|\Z)")
_BEARER = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([^\s,]+) *")

COOKIE = "dueline-token"
_COOKIE = re.compile(rb"(?:\A|; *)(?:__Host-)?dueline-token=(dl_[A-Za-z0-9_-]+)(?=;|\Z)")

NO_VALID_TOKEN = ""  # for credentials of another kind: a token was given, but no server made it


class Authenticator(Protocol):
    """Decides what a caller may do. Called in the event loop; must not block."""

    def admit(self, found: Found, token: str | None, namespace: str | None) -> Grant:
        """The rights of the caller with this token. Called at the head, before a body is read. The topic is checked
        later. `namespace` is what the call is about; None: the token's own, or the default; ALL: the whole server.
        Raises Unauthorized, NotGranted, RateLimited, or Unavailable if tokens cannot be checked now."""
        ...

    def holds(self, grant: Grant) -> bool:
        """Whether a grant given earlier is still valid: the token is not revoked, changed or expired, as far as this
        process knows, and what it knows is current."""
        ...

    def refusal(self, grant: Grant) -> DuelineError | None:
        """Why a grant given earlier is not valid now: Unauthorized, or Unavailable if tokens cannot be checked. None:
        it is valid, even if `holds` is false because the token was changed."""
        ...

    def fingerprint(self, head: bytes) -> bytes:
        """The key under which a parsed head is cached. It must not reveal a token: return `head` itself only if a head
        with a token need not be cached."""
        ...


class OpenAccess:
    """No tokens are checked: everyone may do everything. `ignored` is called for a request that carries one."""

    def __init__(self, ignored: Callable[[], None] = lambda: None) -> None:
        self._ignored = ignored

    def admit(self, found: Found, token: str | None, namespace: str | None) -> Grant:
        if token is not None:
            self._ignored()
        return EVERYTHING

    def holds(self, grant: Grant) -> bool:
        return True

    def refusal(self, grant: Grant) -> DuelineError | None:
        return None

    def fingerprint(self, head: bytes) -> bytes:
        return head


def namespace_of(found: Found, headers: Mapping[bytes, bytes]) -> str | None:
    """The namespace that a request is about. None: it names none."""
    fixed = ALL if found.dialect is None else found.dialect.namespace
    if fixed is not None:
        return fixed
    named = headers.get(b"dueline-namespace")
    return None if named is None else named.decode("latin-1")


def without_token(url: bytes) -> tuple[bytes, bytes | None]:
    """A request target without the token in front of its path, and that token. Slashes before the token do not count:
    they come from a client that joins an address and a path."""
    found = _PATH_TOKEN.match(url) if b"/dl_" in url else None
    if found is None:
        return url, None
    rest = url[found.end() :]
    return found[1] + (rest if rest.startswith(b"/") else b"/" + rest), found[2]


def take_token(found: Found, headers: MutableMapping[bytes, bytes], path_token: bytes | None) -> str | None:
    """The token of a request, if it is where its route accepts one. It is removed from `headers`, and so are all
    cookies. The first of these counts: a bearer token, a token in the path, credentials of another kind (which are no
    valid token), a cookie."""
    header, cookies = headers.pop(b"authorization", None), headers.pop(b"cookie", None)
    if header is not None and TokenPlace.HEADER in found.route.token:
        bearer = _BEARER.fullmatch(header)
        if bearer is not None:
            return bearer[1].decode("latin-1")
    if path_token is not None and TokenPlace.PATH in found.route.token:
        return path_token.decode()
    if header is not None:
        return NO_VALID_TOKEN
    return None if cookies is None else _cookie_token(found, headers, cookies)


def _cookie_token(found: Found, headers: Mapping[bytes, bytes], cookies: bytes) -> str | None:
    """The token of a login. Browsers add cookies by themselves, so a call that changes something must also say which
    page made it (server.browser has checked that it is one of ours). Every browser does."""
    if TokenPlace.COOKIE not in found.route.token:
        return None
    if found.route.method != "GET" and b"origin" not in headers and b"sec-fetch-site" not in headers:
        return None
    cookie = _COOKIE.search(cookies)
    return None if cookie is None else cookie[1].decode()
