"""The address of a store: which kind it is, and where its nodes are. No I/O.

    redis://[user:password@]host[:port][/database]                             one node
    unix:///path/of/the/socket                                                 one node
    redis+sentinel://[user:password@]host[:port],host[:port]/service[/database]   the primary that these sentinels name
    redis+cluster://[user:password@]host[:port],host[:port]                    a Cluster, found through these nodes

`rediss` uses TLS; `valkey` and `valkeys` are other spellings of `redis` and `rediss`. User and password are those of
the nodes. The sentinels have their own: the options `sentinel_username` and `sentinel_password` in the query.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import msgspec

STORE_PORT, SENTINEL_PORT = 6379, 26379
SCHEMES = (
    "unix",
    *(kind + way for kind in ("redis", "rediss", "valkey", "valkeys") for way in ("", "+sentinel", "+cluster")),
)
SENTINEL_LOGIN = ("sentinel_username", "sentinel_password")
_UNREADABLE = (
    "write each node as host or host:port, with commas between them; a password in the address must be quoted (%2F for "
    "/, %40 for @)"
)
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([^\s:/\[\]@]+))(?::(\d{1,5}))?")


class Kind(Enum):
    """How the primary of a key is found."""

    STANDALONE = ""
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Endpoint(NamedTuple):
    """Where a node listens. A unix socket has its path as the host, and port 0."""

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class StoreAddress(msgspec.Struct, frozen=True):
    """A store. `endpoints` are the nodes of a Cluster, the sentinels, or the only node. `node_url` has the login and
    the options of its nodes in redis-py's spelling, with the first endpoint as its host. `shown` is the address without
    logins and options; `shown_cluster`: the same for the Cluster that its node belongs to."""

    kind: Kind
    endpoints: tuple[Endpoint, ...]
    node_url: str
    shown: str
    shown_cluster: str = ""
    service: str = ""
    database: int = 0
    sentinel_login: tuple[str | None, str | None] = (None, None)


def is_store_url(url: str) -> bool:
    """Whether a URL has a scheme of a store."""
    scheme, separator, _ = url.partition("://")
    return bool(separator) and scheme in SCHEMES


def parse_store_url(url: str) -> StoreAddress:
    """Read a store's URL. Raises ValueError whose text never contains a password."""
    scheme, _, rest = url.partition("://")
    if not is_store_url(url):
        raise ValueError(f"must begin with one of {', '.join(f'{one}://' for one in SCHEMES)}")
    if scheme == "unix":
        path = unquote(urlsplit(url).path)
        if not path:
            raise ValueError("name the socket, such as unix:///run/valkey.sock")
        return StoreAddress(Kind.STANDALONE, (Endpoint(path, 0),), url, f"unix://{path}")
    name, _, way = scheme.partition("+")
    kind = Kind(way)
    place, _, query = rest.partition("?")
    login, at, place = place.rpartition("@")
    if "/" in login or "#" in login:
        raise ValueError(_UNREADABLE)
    hosts, _, path = place.partition("/")
    default_port = SENTINEL_PORT if kind is Kind.SENTINEL else STORE_PORT
    endpoints = [_endpoint(host, default_port) for host in (hosts or "localhost").split(",")]
    if kind is Kind.STANDALONE and len(endpoints) > 1:
        raise ValueError(
            f"{name}:// takes one address: use {name}+sentinel:// for sentinels, {name}+cluster:// for Cluster nodes"
        )
    sentinel_login: tuple[str | None, str | None] = (None, None)
    service = ""
    if kind is Kind.SENTINEL:
        service, _, path = path.partition("/")
        service = unquote(service)
        if not service:
            raise ValueError(
                f"name the service that the sentinels watch: {name}+sentinel://host:port,host:port/SERVICE"
            )
        options = dict(parse_qsl(query, keep_blank_values=True))
        sentinel_login = (options.pop(SENTINEL_LOGIN[0], None), options.pop(SENTINEL_LOGIN[1], None))
        query = urlencode(options)
    database = _database(path, kind)
    plain = "rediss" if name in ("rediss", "valkeys") else "redis"
    node_url = f"{plain}://{login}{at}{endpoints[0]}/{database or ''}{f'?{query}' if query else ''}"
    return StoreAddress(
        kind,
        tuple(endpoints),
        node_url,
        f"{scheme}://{place}",
        f"{name}+cluster://{hosts or endpoints[0]}",
        service,
        database,
        sentinel_login,
    )


def with_sentinel_login(url: str, username: str | None, password: str | None) -> str:
    """The URL with the login of its sentinels as options."""
    added = {name: value for name, value in zip(SENTINEL_LOGIN, (username, password), strict=True) if value}
    return url if not added else f"{url}{'&' if '?' in url else '?'}{urlencode(added)}"


def _endpoint(text: str, default_port: int) -> Endpoint:
    found = _HOST.fullmatch(text)
    if found is None or int(found[3] or 0) > 65_535:
        raise ValueError(_UNREADABLE)
    return Endpoint(found[1] or unquote(found[2]), int(found[3] or default_port))


def _database(path: str, kind: Kind) -> int:
    text = path.strip("/")
    if not text:
        return 0
    if not text.isdecimal():
        raise ValueError("the database must be a number, as in redis://127.0.0.1:6379/1")
    if kind is Kind.CLUSTER and int(text):
        raise ValueError("a Cluster has only the database 0")
    return int(text)
