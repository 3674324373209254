"""HTTP calls to addresses that users chose. No other part of the server makes such calls.

    Call --egress.check_url--> canonical URL --names--> addresses --egress.check_address--> socket --> Response

`_socket` makes every socket, after the egress rule has allowed the exact address that the socket connects to. Nothing
bypasses it: there is no second client, and no proxy.

A target may send an endless, huge or malformed response. So one time limit spans the whole call, at most READ_BYTES are
read, nothing is decompressed, and a response that is not HTTP fails with a named kind. A call without a time limit has
one until it is connected. From then on it lasts as long as its connection, which TCP keepalive probes.

Error messages are the same for a closed port and for a filtered one, so that calls cannot be used to scan a network.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

from .._version import __version__
from ..engine.errors import EgressRefused, InvalidField
from ..engine.push_target import is_credential
from ..http1.connection import AsyncConnection
from ..http1.messages import BadResponse, ResponseReader, request_bytes
from ..http1.messages import Response as Answer
from .call import STOPPING, Call, CallFailed, Kind, Response
from .connections import KEEP_ALIVE_S, Connections
from .egress import Destination, Egress, shown
from .header_rules import FRAMING, Headers, is_header
from .resolver import NameCache, Names, SystemNames, TooManyLookUps

CONNECT_TIMEOUT_S = 5.0
REACH_S = 30.0  # time to connect, for a call without a time limit
STAGGER_S = 0.25  # until the next address of a name is tried beside the one that does not answer
PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 30, 10, 3  # a host that vanished is detected within a minute
READ_BYTES = 64 * 1024
EXCERPT_BYTES = 4 * 1024
MAX_PER_HOST = 256
IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
WITH_LENGTH = frozenset({"POST", "PUT", "PATCH"})  # say so even if there is no body

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


class _Failed(Exception):
    """A call without a response: its kind and message, without the URL."""

    def __init__(self, kind: Kind, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.wait_s = wait_s


class _Progress:
    """How far one call is."""

    __slots__ = ("connected", "egress", "host", "namespace", "reaching", "refused", "tried")

    def __init__(self, namespace: str, egress: Egress) -> None:
        self.namespace = namespace
        self.egress = egress  # of this namespace
        self.reaching: asyncio.Timeout | None = None  # limits the connecting of a call that has no time limit
        self.host = ""
        self.tried = 0  # addresses
        self.refused: str | None = None  # why an address was not tried
        self.connected = False


def plain_socket(info: AddressInfo) -> socket.socket:
    return socket.socket(family=info[0], type=info[1], proto=info[2])


class OutgoingCalls:
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
        self._names = NameCache(names or SystemNames())
        self._follow_redirects = follow_redirects
        self._user_agent = user_agent
        self._max_per_host = max_per_host
        self._look_up = look_up
        self._connect_timeout_s = connect_timeout_s
        self._reach_s = reach_s
        self._tls = tls
        self._make_socket = make_socket
        self._connections: dict[Egress, Connections] | None = None  # None: not started, or stopped

    async def start(self) -> None:
        if self._connections is None:
            self._connections = {}

    async def stop(self) -> None:
        """Fail the calls in progress."""
        all, self._connections = self._connections, None
        for one in () if all is None else all.values():
            one.close()
        await self._names.stop()

    async def call(self, call: Call) -> Response:
        """Make a call. Any status is a Response, even a redirect that is not followed. Raises CallFailed when there is
        no response."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        progress = _Progress(call.namespace, self._egress.of(call.namespace))
        wait_ms = 0
        try:
            async with asyncio.timeout(None if call.timeout_ms is None else call.timeout_ms / 1000) as limit:
                progress.reaching = limit if call.timeout_ms is None else None
                answer = await self._hops(call, progress)
            return _response(answer, int((loop.time() - begun) * 1000))
        except CallFailed as failed:
            kind, message = failed.kind, failed.message
        except _Failed as failed:
            kind, message, wait_ms = failed.kind, f"{shown(call.url)}: {failed}", int(failed.wait_s * 1000)
        except (EgressRefused, InvalidField) as error:
            where = "" if isinstance(error, EgressRefused) else "the URL "
            kind, message = "refused", f"{shown(call.url)}: {where}{error.message}"
        except TimeoutError:
            kind, message = ("timeout", "no complete answer in time") if progress.connected else _unreachable(progress)
            message = f"{shown(call.url)}: {message}"
        raise CallFailed(kind, message, int((loop.time() - begun) * 1000), wait_ms)

    async def _hops(self, call: Call, progress: _Progress) -> Answer:
        """Make the call and follow the allowed redirects. Only redirects that keep method and body are followed: a POST
        that becomes a GET might be answered 200 without delivering anything."""
        destination = progress.egress.check_url(call.url)
        headers = self._headers(call)
        for hops_left in range(self._follow_redirects, -1, -1):
            answer = await self._one(call, destination, headers, progress)
            location = answer.headers.get("location")
            status = answer.status
            keeps = status in (307, 308) or (status in (301, 302, 303) and call.method.upper() in ("GET", "HEAD"))
            if not hops_left or location is None or not keeps:
                return answer
            following = progress.egress.check_url(urljoin(destination.url, _text(location)), "location")
            if destination.scheme == "https" and following.scheme == "http":
                return answer  # never repeat over plain HTTP what was sent over TLS
            if following.origin != destination.origin:
                headers = _for_strangers(headers)
            destination = following
        raise AssertionError("the last hop returns")

    async def _one(self, call: Call, destination: Destination, headers: Headers, progress: _Progress) -> Answer:
        connections = self._connections_of(progress.egress)
        progress.host, progress.tried, progress.refused, progress.connected = destination.host, 0, None, False
        if progress.reaching is not None:
            progress.reaching.reschedule(asyncio.get_running_loop().time() + self._reach_s)
        request = _request(call, destination, headers)
        while True:
            connection, used_before = await connections.take(
                destination.origin, partial(self._connect, destination, progress)
            )
            progress.connected = True
            if progress.reaching is not None:
                progress.reaching.reschedule(None)
            reusable = False
            try:
                reader = ResponseReader(has_body=call.method != "HEAD", cut_at_bytes=READ_BYTES)
                answer = await connection.exchange(request, reader)
                reusable = answer.reusable
                return answer
            except BadResponse as wrong:
                raise _Failed("protocol", str(wrong)) from None
            except (OSError, RuntimeError):  # RuntimeError: uvloop's
                if not used_before or call.method not in IDEMPOTENT:  # the server may have closed it while it was idle
                    raise _Failed("protocol", "the connection ended before the answer did") from None
            finally:
                connections.give_back(destination.origin, connection, reusable)

    def _connections_of(self, egress: Egress) -> Connections:
        """The connections of the calls under one rule. A call of another namespace must not use one that its own rule
        would have refused."""
        if self._connections is None:
            raise CallFailed("connect", STOPPING)
        found = self._connections.get(egress)
        if found is None:
            found = self._connections[egress] = Connections(self._max_per_host)
        return found

    async def _connect(self, destination: Destination, progress: _Progress) -> AsyncConnection:
        try:
            return await self._first_of(await self._addresses(destination, progress), destination, progress)
        except ssl.SSLCertVerificationError:
            raise _Failed("connect", f"the certificate of {progress.host} is not trusted") from None
        except (OSError, RuntimeError):
            raise _Failed(*_unreachable(progress)) from None

    async def _addresses(self, destination: Destination, progress: _Progress) -> Sequence[str]:
        if destination.address is not None:
            return (str(destination.address),)

        def admit() -> None:
            wait_s = self._look_up(progress.namespace)
            if wait_s > 0:
                raise TooManyLookUps(wait_s)

        try:
            return await self._names.addresses(destination.host, admit)
        except TooManyLookUps as many:
            message = f"{progress.host} cannot be looked up yet: its namespace has used its look-ups"
            raise _Failed("limited", message, many.wait_s) from None
        except OSError:
            raise _Failed("resolve", f"{progress.host} has no address") from None

    async def _first_of(
        self, addresses: Sequence[str], destination: Destination, progress: _Progress
    ) -> AsyncConnection:
        """A connection to the first address that answers. The next one is tried when one has failed, or is slow. If all
        fail, the last error is raised."""
        left, trying = list(reversed(addresses)), set[asyncio.Task[AsyncConnection]]()
        error: BaseException = OSError("no address")
        try:
            while left or trying:
                if left:
                    connecting = self._connect_to(left.pop(), destination, progress)
                    if not left and not trying:
                        return await connecting
                    trying.add(asyncio.ensure_future(connecting))
                wait_s = STAGGER_S if left else None
                done, trying = await asyncio.wait(trying, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    if one.exception() is None:
                        done.remove(one)
                        trying |= done
                        return one.result()
                    error = one.exception() or error
            raise error
        finally:
            for one in trying:
                one.add_done_callback(_close_unused)
                one.cancel()

    async def _connect_to(self, address: str, destination: Destination, progress: _Progress) -> AsyncConnection:
        loop = asyncio.get_running_loop()
        is_v6 = ":" in address
        where = (address, destination.port, 0, 0) if is_v6 else (address, destination.port)
        family = socket.AF_INET6 if is_v6 else socket.AF_INET
        made = self._socket((family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", where), progress)
        try:
            made.setblocking(False)
            async with asyncio.timeout(self._connect_timeout_s):
                await loop.sock_connect(made, where)
            tls = self._tls_context() if destination.scheme == "https" else None
            name = destination.host if tls is not None else None
            _, connection = await loop.create_connection(
                partial(AsyncConnection, KEEP_ALIVE_S), sock=made, ssl=tls, server_hostname=name
            )
        except BaseException:
            made.close()
            raise
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    def _headers(self, call: Call) -> Headers:
        """The headers to send. Raises _Failed before anything is connected if the call cannot be written as HTTP."""
        is_method = _METHOD.fullmatch(call.method) and call.method.upper() != "CONNECT"
        if not is_method or not all(is_header(name, value) for name, value in call.headers):
            raise _Failed("protocol", "the call cannot be written as HTTP")
        headers = [pair for pair in call.headers if pair[0].lower() not in FRAMING]
        given = {name.lower() for name, _ in headers}
        if "user-agent" not in given:
            headers.append(("User-Agent", self._user_agent))
        if "accept" not in given:
            headers.append(("Accept", "*/*"))
        if "accept-encoding" in given:
            headers = [pair for pair in headers if pair[0].lower() != "accept-encoding"]
        headers.append(("Accept-Encoding", "identity"))
        return tuple(headers)

    def _socket(self, info: AddressInfo, progress: _Progress) -> socket.socket:
        """The choke point: called for every socket, with the address that it will connect to."""
        address, port = info[4][:2]
        objection = progress.egress.objection(address, port, progress.host)
        if objection is not None:
            progress.refused = objection
            raise PermissionError("not connected: the egress rule refused it")
        progress.tried += 1
        made = self._make_socket(info)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _PROBING:
            made.setsockopt(socket.IPPROTO_TCP, name, value)
        return made


def _unreachable(progress: _Progress) -> tuple[Kind, str]:
    """The message is the same for every reason why a connection failed."""
    if progress.refused is not None and not progress.tried:
        return "refused", f"{progress.host} may not be called there: it is {progress.refused}"
    return "connect", f"cannot connect to {progress.host}"


def _close_unused(connecting: asyncio.Task[AsyncConnection]) -> None:
    """Another address was faster."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()


def _request(call: Call, destination: Destination, headers: Headers) -> bytes:
    url = urlsplit(destination.url)
    target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    body = call.body if call.body or call.method.upper() in WITH_LENGTH else None
    return request_bytes(call.method, target, (("Host", url.netloc), *headers), body)


def _for_strangers(headers: Headers) -> Headers:
    """The headers without credentials, for a redirect to another origin."""
    return tuple((name, value) for name, value in headers if not is_credential(name))


def _text(value: str) -> str:
    """A header's value. Bytes that are not UTF-8 are replaced."""
    return value if value.isascii() else value.encode("latin-1").decode("utf-8", "replace")


def _response(answer: Answer, duration_ms: int) -> Response:
    headers = {name: _text(value) for name, value in answer.headers.items()}
    return Response(answer.status, headers, _excerpt(answer), duration_ms)


def _excerpt(answer: Answer) -> str:
    """The beginning of the body as text. Nothing is decompressed."""
    if answer.body and answer.headers.get("content-encoding", "identity").lower() != "identity":
        return f"({len(answer.body)} bytes, packed)"
    begin = answer.body[:EXCERPT_BYTES]
    return codecs.getincrementaldecoder("utf-8")("replace").decode(begin)  # a character cut in half is dropped
