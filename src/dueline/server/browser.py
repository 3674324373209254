"""Which requests of a browser are answered: no page of another site may drive a server that asks for no token.

A browser says where a request comes from, and a page cannot change what it says. Programs send none of it but the Host.

    Host             a loopback name, an IP address or a name of server.hosts. DNS rebinding (an attacker's name that
                     points to this machine) needs another name. A request without a Host comes from no browser
    Sec-Fetch-Site   same-origin, or none (the user typed the address). Not same-site: every port of localhost is that
    Origin           the address that was called (Host), or one of server.origins. Never "null"

A link from anywhere may lead to a `page` route. A `programs_only` route changes something on a GET, which an <img> can
make without an Origin, so it is refused with any sign of a browser. Browsers send Sec-Fetch-Site only over HTTPS and to
loopback addresses; elsewhere the signs are a Referer, or the headers that every browser sends.

A listener that asks for tokens needs no rules: give its Front None.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from ..config.settings import Server
from ..dialects.http import Response, Route, plain_error

MAX_KNOWN_HOSTS = 256
SHOWN = 100  # characters of a header in a refusal
_HOST = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::\d*)?")


class BrowserRules:
    """`hosts`: names that are accepted beside loopback names and IP addresses ("queue.corp", "*.corp"); None: all."""

    def __init__(self, hosts: tuple[str, ...] | None = (), origins: tuple[str, ...] = ()) -> None:
        self._any_host = hosts is None
        self._names = frozenset(("localhost", *(name.lower() for name in hosts or () if not name.startswith("*."))))
        self._suffixes = (".localhost", *(name[1:].lower() for name in hosts or () if name.startswith("*.")))
        self._origins = frozenset(origin.lower().encode() for origin in origins)
        self._known_hosts: set[bytes] = set()  # those that were found good; bounded, because clients choose them

    @classmethod
    def of(cls, server: Server, *, loopback: bool) -> BrowserRules:
        """The rules of a listener. Beyond loopback any name may be ours (a container's service) unless some are set."""
        return cls(server.hosts if loopback or server.hosts else None, server.origins)

    @classmethod
    def mounted(cls, server: Server) -> BrowserRules:
        """The rules inside another application, which checks the Host itself if it wants to."""
        return cls(None, server.origins)

    def refusal(self, route: Route, headers: Mapping[bytes, bytes]) -> Response | None:
        """The answer for a request that must not be served. Header names are lower case."""
        host = headers.get(b"host", b"")
        if not self._any_host and host and host not in self._known_hosts and not self._is_own_host(host):
            return _refused(f"Host {_shown(host)} is not a name of this server. Add the name to server.hosts.")
        if route.programs_only and _is_browser(headers):
            return _refused("This path changes the server's state and is not for browsers. Call it from a program.")
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if (origin is None and site is None) or site == b"same-origin" or origin in self._origins:
            return None
        if (site is None or site == b"none") and (origin is None or _is_at(origin, host)):
            return None
        if route.page and origin is None and headers.get(b"sec-fetch-dest") == b"document":
            return None
        told = f"Origin {_shown(origin)}" if origin is not None else f"Sec-Fetch-Site {_shown(site or b'')}"
        return _refused(f"A web page from elsewhere made this request ({told}). Add its origin to server.origins.")

    def _is_own_host(self, host: bytes) -> bool:
        found = _HOST.fullmatch(host.decode("latin-1"))
        if found is None:
            return False
        name = (found[1] or found[2] or "").lower().removesuffix(".")
        if name not in self._names and not name.endswith(self._suffixes) and not _is_address(name):
            return False
        if len(self._known_hosts) >= MAX_KNOWN_HOSTS:
            self._known_hosts.clear()
        self._known_hosts.add(host)
        return True


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_at(origin: bytes, host: bytes) -> bool:
    """Whether a page has this origin when its address has this Host."""
    scheme, _, place = origin.partition(b"://")
    return scheme in (b"http", b"https") and bool(host) and place.lower() == host.lower()


def _is_browser(headers: Mapping[bytes, bytes]) -> bool:
    """Not Sec-Fetch-Mode: Node's fetch sends it. Not the user agent alone: PowerShell calls itself Mozilla."""
    if any(sign in headers for sign in (b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-dest")):
        return True
    return headers.get(b"user-agent", b"").startswith(b"Mozilla/") and b"accept-language" in headers


def _shown(header: bytes) -> str:
    return f'"{header[:SHOWN].decode("latin-1")}"'


def _refused(why: str) -> Response:
    return plain_error(403, "forbidden", why)
