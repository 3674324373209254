"""A server that checks tokens, with all dialects, and its table of routes."""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from dueline.config.load import load
from dueline.dialects.http import Route
from dueline.dialects.table import DIALECTS
from dueline.rights import ALL, Right
from dueline.runtime.locations import ExternalStore
from dueline.server.app import App
from tools.route_samples import SAMPLES, Names, Sample

from ..kit.async_tests import async_fixture
from ..kit.raw_http import Answer, RawClient, connect
from ..kit.valkey import PrivateValkey

TOPIC = "mine"


class Case(NamedTuple):
    """One call. `namespace` and `topics` are those of its token; namespace None: all."""

    name: str
    right: Right
    namespace: str | None
    topics: tuple[str, ...]


class Declared(NamedTuple):
    """What the table says about a call."""

    sample: Sample
    right: Right
    namespace: str  # of the call

    def allows(self, case: Case) -> bool:
        if self.right is Right.NONE:
            return True
        topics = {Names.NOTHING: True, Names.TOPIC: case.topics != ("others",), Names.ALL: case.topics == (ALL,)}
        return (
            case.right in (self.right, Right.ADMIN)
            and case.namespace in (self.namespace, None)
            and topics[self.sample.names]
        )


class Server(NamedTuple):
    app: App
    port: int
    declared: dict[str, Declared]


@async_fixture
async def server(private_valkey: PrivateValkey) -> AsyncIterator[Server]:
    valkey, prefix = private_valkey, f"m{secrets.token_hex(4)}"
    flags = {"server.auth": "tokens", "store.url": valkey.url, "store.prefix": prefix, "dialects.ouqiang.hold_ms": 1}
    foreign = [spec.name for spec in DIALECTS if hasattr(spec.settings, "auth")]
    settings = load(flags | {f"dialects.{name}.auth": "path" for name in foreign}, {}, None)
    app = App(settings, ExternalStore(valkey.url))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await app.listen([listener])
        await app.open()
        try:
            yield Server(app, listener.getsockname()[1], dict(_declared(app)))
        finally:
            await app.stop(asyncio.Event())


def _declared(app: App) -> Iterator[tuple[str, Declared]]:
    [front] = app.fronts
    table = [(*one, owner) for route, owner in front.router.table() for one in rights_of(route)]
    missing = [name for name, _, _ in table if name not in SAMPLES]
    assert missing == [], "routes without a sample in tools/route_samples.py"
    for name, right, owner in table:
        yield name, Declared(SAMPLES[name], right, owner.namespace or "default")


def rights_of(route: Route) -> list[tuple[str, Right]]:
    if isinstance(route.right, Right):
        return [(route.name, route.right)]
    return [(f"{route.name} {command}", right) for command, right in route.right.items()]


class Caller:
    """Sends one request at a time, on a new connection when the last one was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._client: RawClient | None = None

    async def ask(self, declared: Declared, token: str | None, body_bytes: int | None = None) -> Answer:
        """`body_bytes`: announce a body of this size and send none of it."""
        path, media, body = declared.sample.written(TOPIC)
        lines = [f"{declared.sample.method} {path} HTTP/1.1", "Host: localhost", f"Content-Type: {media}"]
        if declared.namespace == "default":
            lines.append("Dueline-Namespace: default")
        if token is not None:
            lines.append(f"Authorization: Bearer {token}")
        lines.append(f"Content-Length: {len(body) if body_bytes is None else body_bytes}")
        if self._client is None:
            self._client = await connect(self._port)
        head = "\r\n".join((*lines, "", "")).encode()
        answer = await self._client.ask(head + (body if body_bytes is None else b""))
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


async def ask(port: int, method: str, path: str, body: object, token: str) -> Answer:
    sent = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {token}\r\nContent-Length: {len(sent)}\r\n\r\n"
    client = await connect(port)
    try:
        return await client.ask(head.encode() + sent)
    finally:
        client.close()
