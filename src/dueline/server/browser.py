"""Which browser requests are accepted. Pages of other sites must not control a server that does not check tokens.

Browsers state the source of a request in headers that a page cannot change. Programs send only the Host. Accepted are:

    Host             a loopback name, an IP address or a name in server.hosts. This stops DNS rebinding, which needs
                     an attacker's own name that resolves to this machine. Browsers always send a Host
    Sec-Fetch-Site   same-origin, or none (the user typed the address). Not same-site, because all ports of localhost
                     are the same site
    Origin           the address that was called (Host), or one of server.origins. Never "null"

Links from any site may lead to an ANY_LINK route. A REFUSED route changes state on a GET, and an <img> tag can send a
GET without an Origin. So such a route refuses every request that looks like a browser's. Browsers send
Sec-Fetch-Site only over HTTPS and to loopback addresses; elsewhere a Referer or the headers that every browser sends
give them away.

A server that checks tokens has the same rules: a dialect may be served without them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping

from ..config.settings import Server
from ..dialects.http import Browser, Response, Route, plain_error

MAX_KNOWN_HOSTS = 256
SHOWN = 100  # characters of a header in a refusal
_HOST = re.compile(r"(?:\[([^\]]*)\]|([^:\[\]]*))(?::\d*)?")


class BrowserRules:
    """`hosts`: names accepted in addition to loopback names and IP addresses ("queue.corp", "*.corp"); None: all."""

    def __init__(self, hosts: tuple[str, ...] | None = (), origins: tuple[str, ...] = ()) -> None:
        self._any_host = hosts is None
        self._names = frozenset(("localhost", *(name.lower() for name in hosts or () if not name.startswith("*."))))
        self._suffixes = (".localhost", *(name[1:].lower() for name in hosts or () if name.startswith("*.")))
        self._origins = frozenset(origin.lower().encode() for origin in origins)
        self._known_hosts: set[bytes] = set()  # cache of accepted hosts; bounded, because clients choose them

    @classmethod
    def of(cls, server: Server, *, loopback: bool) -> BrowserRules:
        """The rules of a listener. On an address beyond loopback every name is accepted (a container's service name,
        for example) unless server.hosts is set."""
        return cls(server.hosts if loopback or server.hosts else None, server.origins)

    @classmethod
    def mounted(cls, server: Server) -> BrowserRules:
        """The rules for a server mounted in another application, which is responsible for checking the Host."""
        return cls(None, server.origins)

    def refusal(self, route: Route, headers: Mapping[bytes, bytes]) -> Response | None:
        """The error answer for a request that must not be served, else None. Header names are lower case."""
        host = headers.get(b"host", b"")
        if not self._any_host and host and host not in self._known_hosts and not self._is_own_host(host):
            return _refused(f"Host {_shown(host)} is not a name of this server. Add the name to server.hosts.")
        if route.browser is Browser.REFUSED and _is_browser(headers):
            return _refused("This path changes the server's state and is not for browsers. Call it from a program.")
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if (origin is None and site is None) or site == b"same-origin" or origin in self._origins:
            return None
        if (site is None or site == b"none") and (origin is None or _is_at(origin, host)):
            return None
        if route.browser is Browser.ANY_LINK and origin is None and headers.get(b"sec-fetch-dest") == b"document":
            return None
        header = f"Origin {_shown(origin)}" if origin is not None else f"Sec-Fetch-Site {_shown(site or b'')}"
        return _refused(f"A page of another site made this request ({header}). Add its origin to server.origins.")

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
    """Whether a page served from this Host has this origin."""
    scheme, _, place = origin.partition(b"://")
    return scheme in (b"http", b"https") and bool(host) and place.lower() == host.lower()


def _is_browser(headers: Mapping[bytes, bytes]) -> bool:
    """Sec-Fetch-Mode does not count, because Node's fetch sends it. The user agent alone does not count either, because
    PowerShell calls itself Mozilla."""
    if any(sign in headers for sign in (b"origin", b"referer", b"sec-fetch-site", b"sec-fetch-dest")):
        return True
    return headers.get(b"user-agent", b"").startswith(b"Mozilla/") and b"accept-language" in headers


def _shown(header: bytes) -> str:
    return f'"{header[:SHOWN].decode("latin-1")}"'


def _refused(why: str) -> Response:
    return plain_error(403, "forbidden", why)
