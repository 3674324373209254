"""HTTP calls to addresses that users chose. No other part of the server makes such calls.

    Call --egress.check_url--> canonical URL --names--> addresses --egress.check_address--> socket --> Response

`_socket` makes every socket, after the egress rule has allowed the exact address that the socket connects to. Nothing
bypasses it: proxy variables are ignored, the HTTP library follows no redirects, and there is no second client.

A target may send an endless, huge or malformed response. So one time limit spans the whole call, at most READ_BYTES are
read, nothing is decompressed, and a response that is not HTTP fails with a named kind. A call without a time limit has
one until it is connected. From then on it lasts as long as its connection, which TCP keepalive probes.

Error messages are the same for a closed port and for a filtered one, so that calls cannot be used to scan a network.
"""

from __future__ import annotations

import asyncio
import codecs
import io
import re
import socket
import ssl
from collections.abc import Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any
from urllib.parse import urljoin

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from .._version import __version__
from ..engine.errors import EgressRefused, InvalidField
from ..engine.push_target import is_credential
from .call import STOPPING, Call, CallFailed, Kind, Response
from .egress import Destination, Egress, shown
from .header_rules import FRAMING, is_header
from .resolver import ForAiohttp, Names, SystemNames, TooManyLookUps
from .response_limit import count

CONNECT_TIMEOUT_S = 5.0
REACH_S = 30.0  # time to connect, for a call without a time limit
PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 30, 10, 3  # a host that vanished is detected within a minute
NAMES_CACHE_S = 30
KEEP_ALIVE_S = 4.0  # common servers close after 5 s; less makes it rare to reuse a connection that is being closed
READ_BYTES = 64 * 1024
EXCERPT_BYTES = 4 * 1024
MAX_PER_HOST = 256

_PROBING = [
    (getattr(socket, name), value)
    for name, value in (
        ("TCP_KEEPIDLE", PROBE_AFTER_S),
        ("TCP_KEEPALIVE", PROBE_AFTER_S),  # its name on macOS
        ("TCP_KEEPINTVL", PROBE_EVERY_S),
        ("TCP_KEEPCNT", PROBES),
    )
    if hasattr(socket, name)
]
_METHOD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,32}", re.ASCII)
AddressInfo = tuple[Any, ...]  # family, type, protocol, name, (address, port, ...), as in getaddrinfo


class _Trip:
    """What connecting one call found out. It is passed in a context variable, because the socket factory gets only an
    address, while the decision also depends on the host name."""

    __slots__ = ("connected", "egress", "host", "method", "namespace", "reaching", "refused", "tried")

    def __init__(self, call: Call, egress: Egress) -> None:
        self.method = call.method
        self.namespace = call.namespace
        self.egress = egress  # of this namespace
        self.reaching: asyncio.Timeout | None = None  # limits the connecting of a call that has no time limit
        self.host = ""
        self.tried = 0
        self.refused: str | None = None
        self.connected = False


_trip: ContextVar[_Trip | None] = ContextVar("dueline_outgoing_trip", default=None)


class _Verbatim(aiohttp.ClientRequest):
    """A request that keeps its method as given, because methods are case-sensitive."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        trip = _trip.get()
        if trip is not None:
            self.method = trip.method


def plain_socket(info: AddressInfo) -> socket.socket:
    return socket.socket(family=info[0], type=info[1], proto=info[2])


class Outgoing:
    """Makes calls. `follow_redirects` is the number of hops to follow; each is checked like a first call.
    `max_per_host` limits the concurrent connections to one host; 0 means no limit. `look_up` is asked before a name is
    resolved for a namespace: how long to wait first, 0 for now.

    Tests replace `names`, `tls` and `make_socket`: by a table of names, a private certificate authority, a recorder.
    """

    def __init__(
        self,
        egress: Egress,
        names: Names | None = None,
        *,
        follow_redirects: int = 0,
        user_agent: str = f"dueline/{__version__}",
        max_per_host: int = MAX_PER_HOST,
        look_up: Callable[[str], float] = lambda namespace: 0.0,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        reach_s: float = REACH_S,
        tls: ssl.SSLContext | None = None,
        make_socket: Callable[[AddressInfo], socket.socket] = plain_socket,
    ) -> None:
        self._egress = egress
        self._names = names
        self._follow_redirects = follow_redirects
        self._user_agent = user_agent
        self._max_per_host = max_per_host
        self._look_up = look_up
        self._connect_timeout_s = connect_timeout_s
        self._reach_s = reach_s
        self._tls = tls
        self._make_socket = make_socket
        self._sessions: dict[Egress, aiohttp.ClientSession] | None = None

    async def start(self) -> None:
        if self._sessions is None:
            self._sessions = {}

    def _session(self, egress: Egress) -> aiohttp.ClientSession:
        """The connections of the calls under one rule. A call of another namespace must not use one that its own rule
        would have refused."""
        if self._sessions is None:
            raise CallFailed("connect", STOPPING)
        session = self._sessions.get(egress)
        if session is None:
            session = self._sessions[egress] = self._new_session()
        return session

    def _new_session(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            resolver=ForAiohttp(self._names or SystemNames(), self._admit_look_up),
            ttl_dns_cache=NAMES_CACHE_S,
            socket_factory=self._socket,
            ssl=self._tls or ssl.create_default_context(),
            limit=0,  # no global limit: a host that hangs must not block calls to others
            limit_per_host=self._max_per_host,
            keepalive_timeout=KEEP_ALIVE_S,
        )
        count(connector, asyncio.get_running_loop())
        return aiohttp.ClientSession(
            connector=connector,
            request_class=_Verbatim,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            read_bufsize=16 * 1024,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout_s),
            skip_auto_headers=("User-Agent", "Content-Type", "Accept-Encoding", "Accept"),
            trace_configs=[_connection_traces()],
        )

    async def stop(self) -> None:
        """Fail the calls in progress."""
        sessions, self._sessions = self._sessions, None
        for session in () if sessions is None else sessions.values():
            await session.close()

    async def call(self, call: Call) -> Response:
        """Make a call. Any status is a Response, even a redirect that is not followed. Raises CallFailed when there is
        no response."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        trip = _Trip(call, self._egress.of(call.namespace))

        def duration_ms() -> int:
            return int((loop.time() - begun) * 1000)

        try:
            async with asyncio.timeout(None if call.timeout_ms is None else call.timeout_ms / 1000) as limit:
                trip.reaching = limit if call.timeout_ms is None else None
                status, headers, excerpt = await self._hops(call, trip)
            return Response(status, headers, excerpt, duration_ms())
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            # This task was not cancelled: when aiohttp is closed, it cancels the calls that wait for a connection.
            raise CallFailed("connect", STOPPING, duration_ms()) from None
        except CallFailed as failed:
            failed.duration_ms = duration_ms()
            raise
        except (EgressRefused, InvalidField) as error:
            where = "" if isinstance(error, EgressRefused) else "the URL "
            raise CallFailed("refused", f"{shown(call.url)}: {where}{error.message}", duration_ms()) from None
        except (aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:  # RuntimeError: uvloop's
            kind, message = _failure(error, trip)
            wait_ms = int(_look_up_wait_s(error) * 1000)
            raise CallFailed(kind, f"{shown(call.url)}: {message}", duration_ms(), wait_ms) from error

    async def _hops(self, call: Call, trip: _Trip) -> tuple[int, dict[str, str], str]:
        """Make the call and follow the allowed redirects. Only redirects that keep method and body are followed: a POST
        that becomes a GET might be answered 200 without delivering anything."""
        destination = trip.egress.check_url(call.url)
        headers = self._headers(call)
        for hops_left in range(self._follow_redirects, -1, -1):
            answer = await self._one(call, destination, headers, trip)
            status, answered, _ = answer
            location = answered.get("location")
            keeps = status in (307, 308) or (status in (301, 302, 303) and call.method.upper() in ("GET", "HEAD"))
            if not hops_left or location is None or not keeps:
                return answer
            following = trip.egress.check_url(urljoin(destination.url, location), "location")
            if destination.scheme == "https" and following.scheme == "http":
                return answer  # never repeat over plain HTTP what was sent over TLS
            if following.origin != destination.origin:
                headers = _for_strangers(headers)
            destination = following
        raise AssertionError("the last hop returns")

    async def _one(
        self, call: Call, destination: Destination, headers: CIMultiDict[str], trip: _Trip
    ) -> tuple[int, dict[str, str], str]:
        session = self._session(trip.egress)
        trip.host, trip.tried, trip.refused, trip.connected = destination.host, 0, None, False
        if trip.reaching is not None:
            trip.reaching.reschedule(asyncio.get_running_loop().time() + self._reach_s)
        body = io.BytesIO(call.body) if len(call.body) > 1 << 20 else (call.body or None)  # large bodies are streamed
        token = _trip.set(trip)
        try:
            async with session.request(
                call.method,
                URL(destination.url, encoded=True),
                headers=headers,
                data=body,
                allow_redirects=False,
            ) as response:
                if response.status < 200:  # 101: it switches to another protocol
                    response.close()
                    raise CallFailed("protocol", f"{shown(call.url)}: answered {response.status}")
                return response.status, _answered(response), await _excerpt(response)
        finally:
            _trip.reset(token)

    def _admit_look_up(self) -> None:
        trip = _trip.get()
        wait_s = 0.0 if trip is None else self._look_up(trip.namespace)
        if wait_s > 0:
            raise TooManyLookUps(wait_s)

    def _headers(self, call: Call) -> CIMultiDict[str]:
        """The headers to send. Raises ValueError before anything is connected if the call cannot be written as HTTP."""
        if not _METHOD.fullmatch(call.method) or call.method.upper() == "CONNECT":
            raise ValueError("not a method")
        if not all(is_header(name, value) for name, value in call.headers):
            raise ValueError("not a header")
        headers: CIMultiDict[str] = CIMultiDict(
            (name, value) for name, value in call.headers if name.lower() not in FRAMING
        )
        headers.setdefault("User-Agent", self._user_agent)
        headers.setdefault("Accept", "*/*")
        headers["Accept-Encoding"] = "identity"
        return headers

    def _socket(self, info: AddressInfo) -> socket.socket:
        """The choke point: called for every socket, with the address that it will connect to."""
        trip = _trip.get()
        address, port = info[4][:2]
        egress = trip.egress if trip else self._egress
        objection = egress.objection(address, port, trip.host if trip else None)
        if objection is not None:
            if trip is not None:
                trip.refused = objection
            raise PermissionError("not connected: the egress rule refused it")
        if trip is not None:
            trip.tried += 1
        made = self._make_socket(info)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _PROBING:
            made.setsockopt(socket.IPPROTO_TCP, name, value)
        return made


def _connection_traces() -> aiohttp.TraceConfig:
    """Tell the trip when its connection is established, because a call that times out earlier failed to connect."""

    async def on_connected(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:
        trip = _trip.get()
        if trip is not None:
            trip.connected = True
            if trip.reaching is not None:
                trip.reaching.reschedule(None)

    traces = aiohttp.TraceConfig()
    traces.on_connection_create_end.append(on_connected)
    traces.on_connection_reuseconn.append(on_connected)
    return traces


def _failure(error: Exception, trip: _Trip) -> tuple[Kind, str]:
    """The kind and message of a failure. The message is the same for every reason why a connection failed."""
    if trip.refused is not None and not trip.tried:
        return "refused", f"{trip.host} may not be called there: it is {trip.refused}"
    if _look_up_wait_s(error):
        return "limited", f"{trip.host} cannot be looked up yet: its namespace has used its look-ups"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "resolve", f"{trip.host} has no address"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "connect", f"the certificate of {trip.host} is not trusted"
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return "connect", f"cannot connect to {trip.host}"
    if isinstance(error, TimeoutError):
        if trip.connected:
            return "timeout", "no complete answer in time"
        return "connect", f"cannot connect to {trip.host}"
    if isinstance(error, aiohttp.ClientResponseError):
        return "protocol", "the answer is not HTTP"
    if isinstance(error, aiohttp.ClientConnectionError | aiohttp.ClientPayloadError | OSError | RuntimeError):
        return "protocol", "the connection ended before the answer did"
    return "protocol", "the call cannot be written as HTTP"


def _look_up_wait_s(error: Exception) -> float:
    """How long to wait, if the call failed because of the limit of look-ups. Calls that need the same name share a
    look-up, and so its limit."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorDNSError) else None
    return cause.wait_s if isinstance(cause, TooManyLookUps) else 0.0


def _for_strangers(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    """The headers without credentials, for a redirect to another origin."""
    return CIMultiDict((name, value) for name, value in headers.items() if not is_credential(name))


def _answered(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Headers by lower-case name; repeated ones are joined. Bytes that are not UTF-8 are replaced."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        text = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        name = name.lower()
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers


async def _excerpt(response: aiohttp.ClientResponse) -> str:
    """Read the body so that the connection can be reused; if the body is long, close the connection instead."""
    begin = bytearray()
    size = 0
    async for piece in response.content.iter_any():
        begin += piece[: EXCERPT_BYTES - len(begin)]
        size += len(piece)
        if size > READ_BYTES:
            response.close()
            break
    coding = response.headers.get("Content-Encoding", "identity").lower()
    if begin and coding != "identity":
        return f"({size} bytes, packed)"
    return codecs.getincrementaldecoder("utf-8")("replace").decode(bytes(begin))  # a character cut in half is dropped
