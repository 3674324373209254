"""The addresses of servers and the caller's identity, checked once and kept in the form that every request needs.
No I/O.

A URL may name several servers of one store: "http://a:9277,http://b:9277". `servers` chooses between them.

DUELINE_URL, DUELINE_NAMESPACE and DUELINE_TOKEN supply what the program does not pass. HTTP_PROXY and similar variables
are ignored: jobs must not go through a proxy that was set up for web browsers.
"""

from __future__ import annotations

import logging
import os
import re
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from .._version import __version__
from ..http1.messages import request_bytes
from .calls import Call
from .encoding import headers_of, http_request

DEFAULT_URL = "http://127.0.0.1:9277"

log = logging.getLogger("dueline.client")


class Address(msgspec.Struct, frozen=True):
    """One server, with the namespace and token of one caller."""

    url: str
    host: str
    port: int
    secure: bool
    authority: str  # of the Host header
    base_path: str
    namespace: str | None
    token: str | None

    def request(self, call: Call[Any]) -> bytes:
        """The bytes of a call."""
        headers = {"Host": self.authority, "User-Agent": f"dueline/{__version__}"}
        method, target, body = http_request(call)
        headers |= headers_of(body, self.namespace, self.token)
        return request_bytes(method, self.base_path + target, headers, body)


def addresses_of(url: str | None = None, namespace: str | None = None, token: str | None = None) -> tuple[Address, ...]:
    """The addresses from the arguments, else the environment, else the default. Raises ValueError with the reason."""
    namespace = header_value(namespace or os.environ.get("DUELINE_NAMESPACE") or None, "namespace")
    token = header_value(token or os.environ.get("DUELINE_TOKEN") or None, "token")
    return tuple(_address(one, namespace, token) for one in urls_of(named_url(url)))


def _address(url: str, namespace: str | None, token: str | None) -> Address:
    parts = _split(url)
    secure = parts.scheme == "https"
    return Address(
        url=url,
        host=parts.hostname or "",
        port=parts.port or (443 if secure else 80),
        secure=secure,
        authority=parts.netloc,
        base_path=parts.path.rstrip("/"),
        namespace=namespace,
        token=token,
    )


def is_server(url: str) -> bool:
    """Whether a URL names servers, rather than a store."""
    return url.startswith(("http://", "https://"))


def urls_of(url: str) -> list[str]:
    """The URL of each server, in order and without repeats."""
    return list(dict.fromkeys(one.strip(" ") for one in url.split(",")))


def named_url(url: str | None) -> str:
    """The URL to use where it is optional. Clients, workers and the command line share this rule."""
    return url or os.environ.get("DUELINE_URL") or DEFAULT_URL


def using(url: str) -> str:
    """Which server or store is used, as a log message."""
    kind = "store" if not is_server(url) else "servers" if len(urls_of(url)) > 1 else "server"
    hint = " (the default; DUELINE_URL names another)" if url == DEFAULT_URL else ""
    return f"using the {kind} {shown(url)}{hint}"


def _split(url: str) -> SplitResult:
    """The parts of a server's address."""
    parts = split(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f'"{shown(url)}" is not the address of a server: write it like {DEFAULT_URL}, '
            "and put a comma between several of them"
        )
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL must not contain a user or password: tokens come from DUELINE_TOKEN or a file")
    if parts.query or parts.fragment:
        raise ValueError(f'"{shown(url)}" has a query or a fragment: write it like {DEFAULT_URL}')
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError(f'"{shown(url)}" has a character that is not allowed in an address')
    return parts


def split(url: str) -> SplitResult:
    """The parts of any URL, with its port checked. Raises ValueError whose text never contains a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError(
            f'"{shown(url)}" cannot be read: is the port a number up to 65535, and any / in a password written as %2F?'
        ) from None
    return parts


def shown(url: str) -> str:
    """A URL that is safe to print: without user and password, even a badly quoted one, and without its query, which may
    hold a store's options."""
    hidden, at, rest = url.rpartition("@")
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    if not at:
        return place
    scheme, separator, _ = hidden.partition("://")
    return f"{scheme}{separator}***@{place}" if separator else f"***@{place}"


def header_value(text: str | None, name: str) -> str | None:
    """The text, if it is valid in a header. Raises ValueError otherwise, to prevent header injection."""
    if text is not None and not (text.isascii() and text.isprintable()):
        raise ValueError(f"the {name} has a character that is not allowed in a header")
    return text
