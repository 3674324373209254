"""A real Front on a loopback port with a few plain routes, and a client that speaks in bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import trustme

from dueline.dialects.http import PUBLIC, Handler, Line, LineMaker, Request, Response, Route, TokenPlace, plain_error
from dueline.engine.completion import leave
from dueline.engine.errors import DuelineError, InvalidField
from dueline.rights import Right
from dueline.server.authentication import Authenticator, OpenAccess
from dueline.server.browser import BrowserRules
from dueline.server.front import Front, FrontLimits
from dueline.server.gate import Networks
from dueline.server.quotas import Quotas
from dueline.server.router import Router

from ..kit.raw_http import Answer, RawClient, connect

OK = b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"


class Pieces:
    """A body of so many pieces of 100 kB, each after `Probe.release` is set."""

    def __init__(self, probe: Probe, count: int) -> None:
        self._probe = probe
        self._count = count
        self.taken = 0
        probe.streams.append(self)

    async def pieces(self) -> AsyncGenerator[bytes]:
        try:
            for number in range(self._count):
                self._probe.parked.set()
                await self._probe.release.wait()
                self.taken += 1
                yield b"%d" % (number % 10) * 100_000
        except asyncio.CancelledError:
            self._probe.cancelled.set()
            raise

    def close(self) -> None:
        self._probe.undelivered.set()


@dataclass(eq=False)
class Probe:
    """A dialect that shows what arrives. Events say what happened, so that tests wait on signals."""

    name: str = "probe"
    namespace: str | None = None
    taskless: bool = False  # how its routes that do not park are run; `run` tries both ways
    on_line: bool = False  # all routes but streams have a line
    seen: list[Request] = field(default_factory=list)
    parked: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    undelivered: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    streams: list[Pieces] = field(default_factory=list)

    def routes(self) -> list[Route]:
        routes = self._routes()
        return [self._with_line(route) for route in routes] if self.on_line else routes

    def _with_line(self, route: Route) -> Route:
        if route.name == "pieces":
            return route

        def make(_: Request) -> Line:
            return lambda request, answer: leave(_answered(route.handler, request), answer)

        line: LineMaker = make
        return msgspec.structs.replace(route, line=line)

    def _routes(self) -> list[Route]:
        return [
            Route("*", "/echo", self.echo, "echo", *PUBLIC, taskless=self.taskless),
            Route("POST", "/small", self.echo, "small", *PUBLIC, max_body_bytes=10, taskless=self.taskless),
            Route("*", "/things/{name}", self.echo, "thing", *PUBLIC, taskless=self.taskless),
            Route("GET", "/park", self.park, "park", *PUBLIC, parks=True),
            Route("*", "/own", self.echo, "own", Right.SEND, TokenPlace.ANYWHERE, taskless=self.taskless),
            Route("GET", "/own/park", self.park, "own_park", Right.PULL, TokenPlace.HEADER, parks=True),
            Route("GET", "/pieces", self.stream, "pieces", Right.READ, TokenPlace.HEADER, parks=True),
            Route("GET", "/hold", self.hold, "hold", *PUBLIC, taskless=self.taskless),
            Route("GET", "/big", self.big, "big", *PUBLIC, taskless=self.taskless),
            Route("GET", "/page", self.page, "page", *PUBLIC, taskless=self.taskless),
            Route("GET", "/broken", self.broken, "broken", *PUBLIC, taskless=self.taskless),
            Route("GET", "/refused", self.refused, "refused", *PUBLIC, taskless=self.taskless),
            Route("GET", "/injected", self.injected, "injected", *PUBLIC, taskless=self.taskless),
            Route("GET", "/nothing", self.nothing, "nothing", *PUBLIC, taskless=self.taskless),
            Route("GET", "/alive", self.nothing, "alive", *PUBLIC, is_health=True),
        ]

    def failed(self, request: Request, error: DuelineError) -> Response:
        status = {"body_too_large": 413, "rate_limited": 429}.get(error.code, 400)
        return plain_error(status, error.code, error.message, error.field)

    async def echo(self, request: Request) -> Response:
        self.seen.append(request)
        shown = {
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "params": request.params,
            "headers": dict(request.headers),
            "body": request.body.decode("latin-1"),
        }
        return Response(200, json.dumps(shown).encode())

    async def stream(self, request: Request) -> Response:
        return Response(200, content_type="text/plain", stream=Pieces(self, int(request.query or 3)))

    async def park(self, request: Request) -> Response:
        self.seen.append(request)
        self.parked.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            for _ in range(20):  # cleaning up takes a while, and must not be cancelled again
                await asyncio.sleep(0.001)
            self.cancelled.set()
            raise
        return Response(200, b"{}", undelivered=self.undelivered.set)

    async def hold(self, request: Request) -> Response:
        self.parked.set()
        await self.release.wait()
        return Response(200, b'{"held":true}', undelivered=self.undelivered.set)

    async def big(self, request: Request) -> Response:
        return Response(200, b"x" * (32 << 20), undelivered=self.undelivered.set)

    async def page(self, request: Request) -> Response:
        return Response(200, b"x" * 60_000, undelivered=self.undelivered.set)

    async def broken(self, request: Request) -> Response:
        raise RuntimeError("secret detail")

    async def refused(self, request: Request) -> Response:
        raise InvalidField("no", "x")

    async def injected(self, request: Request) -> Response:
        return Response(200, b"{}", headers=(("x-a", "b\r\nx-evil: 1"),))

    async def nothing(self, request: Request) -> Response:
        return Response(204)


@dataclass
class FrontKit:
    """A running front and what can be seen of it."""

    front: Front
    probe: Probe
    port: int
    answered: list[tuple[str, str, int]]
    tls: ssl.SSLContext | None = None
    clients: list[RawClient] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def client(
        self, buffer_bytes: int | None = None, source: str | None = None, reader_bytes: int = 1 << 16
    ) -> RawClient:
        """A connected client, with the options of `connect`."""
        self.clients.append(
            await connect(self.port, tls=self.tls, buffer_bytes=buffer_bytes, source=source, reader_bytes=reader_bytes)
        )
        return self.clients[-1]

    async def empty(self, but: int = 0) -> None:
        """Until the front has no connection left, but so many."""
        while self.front.connections > but:
            self.left.clear()
            await self.left.wait()


def private_tls() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS for a server, with a certificate of a private authority, and for clients that trust this authority."""
    server, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority = trustme.CA()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(trusting)
    return server, trusting


async def _answered(handler: Handler, request: Request) -> Response:
    return await handler(request)


OpenKit = Callable[..., contextlib.AbstractAsyncContextManager[FrontKit]]


@contextlib.asynccontextmanager
async def front_kit(
    limits: FrontLimits = FrontLimits(),
    tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    taskless: bool = False,
    on_line: bool = False,
    browser_rules: BrowserRules | None = None,
    send_buffer_bytes: int | None = None,
    networks: Networks | None = None,
    auth: Authenticator = OpenAccess(),
    quotas: Quotas = Quotas(),
) -> AsyncIterator[FrontKit]:
    probe = Probe(taskless=taskless, on_line=on_line)
    answered: list[tuple[str, str, int]] = []
    front = Front(
        Router([probe]),
        limits,
        answered=lambda route, method, status, _seconds: answered.append((route, method, status)),
        tls=None if tls is None else lambda: tls[0],
        browser_rules=browser_rules,
        networks=networks,
        auth=auth,
        quotas=quotas,
    )
    sock = socket.create_server(("127.0.0.1", 0))
    if send_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    await front.start(sock)
    running = FrontKit(front, probe, sock.getsockname()[1], answered, tls and tls[1])
    dismiss = front.dismiss

    def dismiss_and_tell(connection: Any) -> None:
        dismiss(connection)
        running.left.set()

    front.dismiss = dismiss_and_tell
    try:
        yield running
    finally:
        probe.release.set()
        for client in running.clients:
            client.close()
        await front.drain(1)


def assert_error(answer: Answer, status: int, code: str) -> None:
    """The one error shape."""
    body = answer.json()
    assert answer.status == status, body
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "field"}
    assert body["error"]["code"] == code
    assert body["error"]["message"]
    assert answer.headers["content-type"] == "application/json"
