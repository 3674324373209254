"""Our own HTTP/1.1 front: asyncio protocols on httptools, uvloop underneath where it is installed.

A Front owns its listening sockets, its connections and one timer for all their deadlines. It knows a Router and
nothing behind it.

    front = Front(router, limits)
    await front.start(sock)          # once per socket
    front.close_after_answers()      # the server will stop soon: let clients go elsewhere
    await front.drain(timeout_s=8)   # accept no new connections, answer current requests, close

`answered` is called once for every answer with (route name, method, status, seconds). `tls` returns the TLS context for
a new connection, so that a renewed certificate needs no new front. `networks`: who may connect. `auth` decides what a
caller may do, `quotas` how much. `hook`: of the store, if somebody may record who makes its calls.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from http import HTTPStatus

import msgspec

from ..dialects.http import Response, plain_error
from ..engine.outcomes import OutcomeHook
from .authentication import Authenticator, OpenAccess
from .browser import BrowserRules
from .client_addresses import ClientAddresses, Refusal
from .connection import Connection
from .deadlines import Deadlines
from .exchange import Exchange
from .gate import Gate, Networks
from .known_heads import KnownHeads
from .lines import Lines
from .pipelining import PipelineLimit
from .quotas import Quotas
from .router import Router, internal_error
from .tls_transport import TlsTransport

log = logging.getLogger("dueline.server")

Answered = Callable[[str, str, int, float], None]

BACKLOG = 2048
BODILESS = frozenset({204, 304})
_KNOWN = frozenset(status.value for status in HTTPStatus)


class FrontLimits(msgspec.Struct, frozen=True):
    """Transport limits. `max_buffered_bytes` and `max_connections` hold for all clients together, those per address for
    each client address, the rest for each connection."""

    max_body_bytes: int = 4 << 20
    max_buffered_bytes: int = 256 << 20  # of all incomplete and pipelined requests
    max_header_bytes: int = 32 * 1024
    max_headers: int = 100
    max_url_bytes: int = 8 * 1024
    max_connections: int = 10_000
    max_connections_per_address: int = 2_000
    max_unfinished_per_address: int = 256
    header_timeout_s: float = 10.0  # also for the TLS handshake
    body_timeout_s: float = 15.0
    idle_timeout_s: float = 75.0
    write_timeout_s: float = 30.0  # until the kernel has accepted a whole answer
    ahead_timeout_s: float = 1.0  # for a poll to be answered after reading stopped because of bytes sent behind it
    linger_timeout_s: float = 2.0  # for the client to read a refusal
    health_timeout_s: float = 2.0  # for a health check when all connections are taken


class Front:
    """`start` listens, `drain` stops. Draining twice, or before the start, is safe."""

    def __init__(
        self,
        router: Router,
        limits: FrontLimits = FrontLimits(),
        *,
        answered: Answered | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
        browser_rules: BrowserRules | None = None,
        networks: Networks | None = None,
        auth: Authenticator = OpenAccess(),
        quotas: Quotas = Quotas(),
        hook: OutcomeHook = OutcomeHook(),
    ) -> None:
        self.router = router
        self.limits = limits
        self.browser_rules = browser_rules
        self.auth = auth
        self.lines = Lines(router, auth, hook)
        self.quotas = quotas
        self.addresses = ClientAddresses(
            limits.max_connections, limits.max_connections_per_address, limits.max_unfinished_per_address
        )
        shortest_s = min(
            limits.header_timeout_s,
            limits.body_timeout_s,
            limits.idle_timeout_s,
            limits.write_timeout_s,
            limits.ahead_timeout_s,
            limits.linger_timeout_s,
            limits.health_timeout_s,
        )
        self.deadlines = Deadlines(grain_s=min(1.0, max(0.01, shortest_s / 4)))
        self.places = PipelineLimit()
        self.answered = answered
        self._tls = tls
        self._networks = networks
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._handshakes: set[TlsTransport] = set()
        self.buffered_bytes = 0  # counted by the connections
        self.heads = KnownHeads(auth, limits.max_body_bytes)
        self._emptied: asyncio.Event | None = None
        self._draining = False
        self._closes_after_answers = False
        self._heads: dict[tuple[int, str], bytes] = {}
        self._refusals: dict[Refusal, bytes] = {}
        self._heads_until_s = 0.0

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    async def start(self, sock: socket.socket) -> None:
        """Listen on a bound socket (TCP or unix)."""
        accepted = self._protocol if self._networks is None else partial(Gate, self._networks, self._protocol)
        server = await asyncio.get_running_loop().create_server(accepted, sock=sock, backlog=BACKLOG)
        self._servers.append(server)

    def _protocol(self) -> asyncio.Protocol:
        return Connection(self) if self._tls is None else TlsTransport(self, self._tls())

    def close_after_answers(self) -> None:
        """Close each connection after its next answer. New connections are still accepted."""
        self._closes_after_answers = True
        for connection in list(self._connections):
            connection.retire(at_once=False)

    async def drain(self, timeout_s: float) -> None:
        """Stop listening, answer every request already received, close. After the timeout connections are aborted."""
        self._draining = True
        for server in self._servers:
            server.close()
        self._servers.clear()
        for handshake in list(self._handshakes):
            handshake.abort()
        self._emptied = asyncio.Event()
        for connection in list(self._connections):
            connection.retire()
        if self._connections:
            try:
                await asyncio.wait_for(self._emptied.wait(), timeout_s)
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
                if self._connections:
                    await self._emptied.wait()
        self.deadlines.stop()

    def recheck(self) -> None:
        """End every parked poll whose grant no longer holds."""
        for connection in list(self._connections):
            connection.recheck()

    # -- for connections ------------------------------------------------------------------------------------------

    def admit(self, connection: Connection) -> None:
        """Register a new connection."""
        self._connections.add(connection)
        if self._draining or self._closes_after_answers:
            connection.retire(at_once=self._draining)

    def dismiss(self, connection: Connection) -> None:
        """Unregister a closed connection."""
        self._connections.discard(connection)
        self.deadlines.forget(connection)
        if self._emptied is not None and not self._connections:
            self._emptied.set()

    def admit_handshake(self, transport: TlsTransport) -> bool:
        """Register a client that has connected and is not known to speak TLS. False if the front drains."""
        self._handshakes.add(transport)
        return not self._draining

    def ended(self, exchange: Exchange) -> Response | None:
        """The refusal of a request whose grant has ended since its head was read."""
        error = self.auth.refusal(exchange.request.grant)
        return None if error is None else self.router.failed(exchange.found, exchange.request, error)

    def refusal(self, limit: Refusal) -> Response:
        """The answer to a connection that is over a limit."""
        retry = (("retry-after", "1"),)
        if limit is Refusal.ALL:
            message = "The server has reached its limit of connections."
            return plain_error(503, "too_many_connections", message, headers=retry)
        number = getattr(self.limits, limit)
        what = "connections" if limit is Refusal.ADDRESS else "unfinished requests"
        message = f"Your address may have {number} {what} (server.{limit})."
        return plain_error(429, "rate_limited", message, headers=retry)

    def dismiss_handshake(self, transport: TlsTransport) -> None:
        """Unregister a connection whose handshake has ended, or that was closed before that."""
        self._handshakes.discard(transport)
        self.deadlines.forget(transport)

    def encode_refusal(self, limit: Refusal, now_s: float) -> bytes:
        """The whole answer to a connection that is over a limit. Built at most once a second, because there may be many
        such connections."""
        data = self._refusals.get(limit)
        if data is None or now_s >= self._heads_until_s:
            answer = self.refusal(limit)
            data = self.encode_head(answer, keep_alive=False, old=False, now_s=now_s) + answer.body
            self._refusals[limit] = data
        return data

    def unwritable(self, keep_alive: bool, old: bool, now_s: float) -> tuple[Response, bytes]:
        """The answer instead of one that cannot be written, and everything before its body. Called in its handler."""
        log.exception("an answer cannot be written")
        answer = internal_error()
        return answer, self.encode_head(answer, keep_alive, old, now_s)

    def encode_head(self, answer: Response, keep_alive: bool, old: bool, now_s: float) -> bytes:
        """Everything before the body. Raises ValueError if a header is not valid in HTTP."""
        if now_s >= self._heads_until_s:
            self._heads.clear()
            self._refusals.clear()
            self._heads_until_s = now_s + 1.0
        head = self._heads.get((answer.status, answer.content_type))
        if head is None:
            head = _first_lines(answer.status, answer.content_type)
            self._heads[(answer.status, answer.content_type)] = head
        if keep_alive and not old and not answer.headers and answer.status not in BODILESS:
            return b"%bcontent-length: %d\r\n\r\n" % (head, len(answer.body))
        lines = [head, *(_header_line(name, value) for name, value in answer.headers)]
        if not keep_alive:
            lines.append(b"connection: close\r\n")
        elif old:
            lines.append(b"connection: keep-alive\r\n")
        if answer.status not in BODILESS and answer.stream is None:
            lines.append(b"content-length: %d\r\n" % len(answer.body))
        lines.append(b"\r\n")
        return b"".join(lines)


def _first_lines(status: int, content_type: str) -> bytes:
    """Status line, date and content type. Built at most once a second per pair of status and content type."""
    phrase = HTTPStatus(status).phrase if status in _KNOWN else "Unknown"
    lines = b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode()) + _header_line("date", formatdate(usegmt=True))
    return lines + _header_line("content-type", content_type) if content_type else lines


def _header_line(name: str, value: str) -> bytes:
    if any(ord(c) < 32 or ord(c) == 127 for c in name + value):
        raise ValueError(f"header {name!r} has a control character")
    return f"{name}: {value}\r\n".encode("latin-1", "replace")
