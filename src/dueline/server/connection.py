"""One client connection: bytes in, requests out in order, answers back in order.

    data_received -> httptools -> Exchange queue -> one task per connection -> router -> write

Reading and answering are two halves that meet in the queue. The reading half parses (also ahead: pipelining), checks
the limits before it keeps bytes, and puts a refusal into the same queue, so that answers keep their order; after a
refusal it is deaf. The answering half is one task for the life of the connection: a task per request would
cost more than the parsing. It runs one handler at a time.

The client is gone at EOF or when the connection is lost: a handler that parks is cancelled then, any other one runs to
its end (a send is never half done). An answer that did not reach the kernel calls `Response.undelivered`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import httptools
import msgspec

from ..dialects.http import Request, Response, plain_error
from ..engine.errors import BodyTooLarge, RateLimited
from .deadlines import NEVER
from .head import Headers, head_fault, join_headers
from .router import Found, fixed_route, internal_error

if TYPE_CHECKING:
    from .front import Front

log = logging.getLogger("dueline.server")

IDLE, HEAD, BODY = 0, 1, 2
QUEUED_REQUESTS = 32  # parsed ahead; more pauses reading
BIG_ANSWER_BYTES = 64 * 1024
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
MALFORMED = Found(fixed_route("malformed", internal_error()), None)
NO_REQUEST = Request("-", "", "", {}, b"")


class Exchange(msgspec.Struct):
    """One request and how to answer it. `answer` is there already when the reading half refused the request."""

    found: Found
    request: Request
    keep_alive: bool
    old: bool = False  # HTTP/1.0
    answer: Response | None = None
    begun_s: float = 0.0


class _Refused(Exception):
    """Leaves the parser: the reading half has queued a refusal."""


class Connection(asyncio.Protocol):
    """The protocol object that a Front makes for each client."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._limits = front.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._queue: deque[Exchange] = deque()
        self._queued_bytes = 0
        self._current: Exchange | None = None
        self._deaf = False  # what still comes in is thrown away
        self._ended = False  # EOF from the client
        self._retiring = False  # the front drains: close after the current answer
        self._reading_paused = False
        self._writable: asyncio.Future[None] | None = None  # there while the kernel takes no more
        self._unsent: list[Callable[[], None]] = []
        # the wheel's
        self.deadline_s = NEVER
        self.slot = 0
        self._read_due_s = NEVER
        self._write_due_s = NEVER
        self._idle_due_s = NEVER
        # the request that is being read
        self._state = IDLE
        self._timed_state = IDLE
        self._url = b""
        self._pairs: list[tuple[bytes, bytes]] = []
        self._chunk_bytes = 0
        self._count_head = False
        self._replay = b""
        self._progress = False
        self._stuck_bytes = 0
        self._found: Found | None = None
        self._request: Request | None = None
        self._chunks: list[bytes] = []
        self._body_bytes = 0
        self._held_bytes = 0  # of them, those that are counted in the front
        self._max_body_bytes = 0
        self._old = False
        self._continue_due = False

    # -- the transport's calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if transport.get_extra_info("ssl_object") is None:
            # Told at once when the kernel's buffer is full: so "not paused" means "all of it is in the kernel".
            # Not with TLS, where uvloop would pause for every answer and not resume.
            self._transport.set_write_buffer_limits(high=0)
        if not self._front.admit(self):
            self._deaf = True
            refusal = plain_error(
                503,
                "too_many_connections",
                "The server has all the connections it takes.",
                headers=(("retry-after", "1"),),
            )
            self._write(Exchange(MALFORMED, NO_REQUEST, False), refusal, self._loop.time())
            self._close()
            return
        self._idle_due_s = self._loop.time() + self._limits.idle_timeout_s
        self._front.deadlines.watch(self, self._idle_due_s)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        self._progress = False
        self._chunk_bytes = len(data)
        if self._state == HEAD:
            self._count_head = True
        try:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._stay(data[cast(int, upgrade.args[0]) :])
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Refused):
                log.error("unexpected error while reading a request", exc_info=error.__context__)
                self._refuse(internal_error())
        except httptools.HttpParserError as error:
            if not self._deaf:
                self._refuse(plain_error(400, "bad_request", f"The request is not valid HTTP/1.1: {error}."))
        if self._state != IDLE and not self._deaf:
            self._partly_read(len(data))
        else:
            self._read_due_s = NEVER
        if self._queue:
            self._hand_over()

    def eof_received(self) -> bool:
        self._ended = True
        self._deaf = True
        current = self._current
        if current is None and not self._queue:
            return False
        if current is not None and self._parks(current):
            self._cancel()
            return False
        # The client may have closed only its writing side: what it asked for is still answered.
        return self._transport is not None and self._transport.get_extra_info("ssl_object") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._deaf = True
        self._let_go()
        self._front.dismiss(self)
        for undelivered in self._unsent:
            undelivered()
        self._unsent.clear()
        self._queue.clear()
        if self._current is not None and self._parks(self._current):
            self._cancel()
        for future in (self._wake, self._writable):
            if future is not None and not future.done():
                future.set_result(None)
        self._wake = self._writable = None

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()
            self._write_due_s = self._loop.time() + self._limits.write_timeout_s
            self._front.deadlines.watch(self, min(self.deadline_s, self._write_due_s))

    def resume_writing(self) -> None:
        self._unsent.clear()
        self._write_due_s = NEVER
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    def overdue(self) -> None:
        """The wheel says that some deadline may have passed: look which one."""
        if self._transport is None:
            return
        now_s = self._loop.time()
        busy = self._current is not None or bool(self._queue) or self._writable is not None
        idle_due_s = now_s + self._limits.idle_timeout_s if busy else self._idle_due_s
        if self._write_due_s <= now_s:
            self._transport.abort()
        elif self._read_due_s <= now_s:
            self._refuse(plain_error(408, "request_timeout", "The request did not arrive in time."))
            self._hand_over()
        elif idle_due_s <= now_s:
            # Nothing more comes after an orderly end; the client of a lingering connection had its time.
            self._transport.abort() if self._deaf else self._close()
        else:
            self._front.deadlines.watch(self, min(idle_due_s, self._read_due_s, self._write_due_s))

    def retire(self) -> None:
        """The front drains: no request is begun after the ones that were received."""
        self._retiring = True
        if self._current is None and not self._queue and self._state == IDLE:
            self._close()

    def abort(self) -> None:
        """End now."""
        if self._transport is not None:
            self._transport.abort()

    # -- the parser's calls ---------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._state = HEAD
        self._progress = True
        self._read_due_s = NEVER
        self._url = b""
        self._pairs = []
        # A head that came in one small piece cannot be too large: no need to count.
        self._count_head = self._chunk_bytes > self._limits.max_header_bytes

    def on_url(self, url: bytes) -> None:
        self._progress = True
        self._url = self._url + url if self._url else url
        if len(self._url) > self._limits.max_url_bytes:
            self._refuse(plain_error(414, "url_too_long", f"The URL has more than {self._limits.max_url_bytes} bytes."))
            raise _Refused

    def on_header(self, name: bytes, value: bytes) -> None:
        self._progress = True
        pairs = self._pairs
        pairs.append((name, value))
        if len(pairs) > self._limits.max_headers:
            self._refuse_head()
            raise _Refused

    def on_headers_complete(self) -> None:
        self._state = BODY
        self._progress = True
        self._chunks = []
        self._body_bytes = 0
        if self._count_head and self._head_bytes() > self._limits.max_header_bytes:
            self._refuse_head()
            raise _Refused
        raw = join_headers(self._pairs)
        parser = self._parser
        version = parser.get_http_version()
        self._old = version == "1.0"
        wrong = head_fault(version, raw)
        if wrong is not None:
            self._refuse(plain_error(400, "bad_request", wrong))
            raise _Refused
        if b"upgrade" in raw and self._declined():
            return
        method, path, query, found = self._front.router.locate(parser.get_method(), self._url)
        self._found = found
        self._request = Request(method, path, query, Headers(raw), b"", found.params)
        own = found.route.max_body_bytes
        self._max_body_bytes = self._limits.max_body_bytes if own is None else own
        declared = raw.get(b"content-length")
        if declared is not None and int(declared) > self._max_body_bytes:
            self._refuse_body()
        if b"expect" in raw and raw[b"expect"].lower() == b"100-continue" and not self._old:
            self._expected()

    def on_body(self, chunk: bytes) -> None:
        self._progress = True
        self._body_bytes += len(chunk)
        if self._body_bytes > self._max_body_bytes:
            self._refuse_body()
        self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        self._state = IDLE
        self._continue_due = False
        self._let_go()
        request, found = self._request, self._found
        if request is None or found is None:
            return
        chunks = self._chunks
        if chunks:
            request.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self._chunks = []
        keep_alive = self._parser.should_keep_alive() and request.method != "CONNECT"
        self._queue.append(Exchange(found, request, keep_alive, self._old, None, self._loop.time()))
        self._queued_bytes += self._body_bytes
        self._request = None
        if not keep_alive:
            self._deaf = True

    # -- the reading half -----------------------------------------------------------------------------------------

    def _declined(self) -> bool:
        """The client offers another protocol (h2c), which we do not take. The parser would take the body for that
        protocol, so the head is kept without the offer, to be read again by a fresh parser."""
        if not self._parser.should_upgrade() or self._parser.get_method() == b"CONNECT":
            return False
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())]
        offer = (b"upgrade", b"connection", b"http2-settings")
        lines += [name + b": " + value for name, value in self._pairs if name.lower() not in offer]
        if not self._parser.should_keep_alive():
            lines.append(b"Connection: close")
        self._replay = b"\r\n".join(lines) + b"\r\n\r\n"
        return True

    def _stay(self, rest: bytes) -> None:
        """Go on as HTTP/1.1 after an offer of another protocol."""
        while not self._deaf:
            rest, self._replay = self._replay + rest, b""
            self._parser = httptools.HttpRequestParser(self)
            try:
                self._parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[cast(int, upgrade.args[0]) :]

    def _expected(self) -> None:
        """The client waits for leave to send its body: give it, after the answers that are still due."""
        if self._current is None and not self._queue and self._transport is not None:
            self._transport.write(CONTINUE)
        else:
            self._continue_due = True

    def _head_bytes(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._pairs)

    def _partly_read(self, size: int) -> None:
        """A request is not whole yet: bound what may be kept of its head, and how long it may take."""
        self._stuck_bytes = 0 if self._progress else self._stuck_bytes + size
        if self._stuck_bytes > self._limits.max_header_bytes or self._head_bytes() > self._limits.max_header_bytes:
            self._refuse_head()
            return
        if self._state == BODY and not self._hold():
            return
        timeout_s = self._limits.header_timeout_s if self._state == HEAD else self._limits.body_timeout_s
        if self._read_due_s == NEVER or self._state != self._timed_state:
            self._timed_state = self._state
            self._read_due_s = self._loop.time() + timeout_s
            self._front.deadlines.watch(self, min(self.deadline_s, self._read_due_s))

    def _hold(self) -> bool:
        """Count what is kept of a body that is not whole yet: many slow bodies together must not fill the memory."""
        front = self._front
        front.held_bytes += self._body_bytes - self._held_bytes
        self._held_bytes = self._body_bytes
        if front.held_bytes <= self._limits.max_held_bytes or self._found is None or self._request is None:
            return True
        error = RateLimited("Too many unfinished bodies are on their way; retry a little later.")
        self._refuse(front.router.failed(self._found, self._request, error), self._found, self._request)
        return False

    def _let_go(self) -> None:
        if self._held_bytes:
            self._front.held_bytes -= self._held_bytes
            self._held_bytes = 0

    def _refuse_head(self) -> None:
        limits = self._limits
        message = f"The headers have more than {limits.max_header_bytes} bytes or {limits.max_headers} lines."
        self._refuse(plain_error(431, "headers_too_large", message))

    def _refuse_body(self) -> None:
        """Too large: refused before it is kept, in the words of the dialect that it was meant for."""
        found, request = self._found, self._request
        if found is None or request is None:
            raise _Refused
        error = BodyTooLarge(f"The body has more than {self._max_body_bytes} bytes.")
        self._refuse(self._front.router.failed(found, request, error), found, request)
        raise _Refused

    def _refuse(self, answer: Response, found: Found = MALFORMED, request: Request = NO_REQUEST) -> None:
        self._deaf = True
        self._state = IDLE
        self._let_go()
        self._chunks = []
        self._read_due_s = NEVER
        self._queue.append(Exchange(found, request, False, False, answer, self._loop.time()))

    def _hand_over(self) -> None:
        """There is something in the queue: start or wake the answering half; stop reading when it is behind."""
        if self._task is None:
            self._task = self._loop.create_task(self._serve())
        elif self._wake is not None:
            self._wake.set_result(None)
            self._wake = None
        behind = len(self._queue) >= QUEUED_REQUESTS or self._queued_bytes > self._limits.max_body_bytes
        if behind and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    # -- the answering half ---------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        front, queue, respond = self._front, self._queue, self._front.router.respond
        try:
            while self._transport is not None:
                if not queue:
                    if self._ended or (self._retiring and self._state == IDLE):
                        self._close()
                        return
                    await self._rest()
                    continue
                exchange = queue.popleft()
                answer = exchange.answer
                if answer is None:
                    self._current = exchange
                    answer = await respond(exchange.found, exchange.request)
                    self._current = None
                now_s = self._loop.time()
                if front.answered is not None:
                    route = exchange.found.route.name
                    front.answered(route, exchange.request.method, answer.status, now_s - exchange.begun_s)
                if self._retiring:
                    exchange.keep_alive = False
                self._write(exchange, answer, now_s)
                if not exchange.keep_alive:
                    self._close() if exchange.answer is None or self._ended else self._linger()
                    return
                if self._writable is not None:
                    await self._writable
        except asyncio.CancelledError:
            self._close()
        except Exception:
            log.exception("unexpected error on a connection")
            self.abort()
        finally:
            self._current = None

    async def _rest(self) -> None:
        """Nothing to answer: wait for the next request."""
        self._idle_due_s = self._loop.time() + self._limits.idle_timeout_s
        if self.deadline_s == NEVER:
            self._front.deadlines.watch(self, self._idle_due_s)
        self._queued_bytes = 0
        transport = self._transport
        if transport is not None:
            if self._reading_paused:
                self._reading_paused = False
                transport.resume_reading()
            if self._continue_due:
                self._continue_due = False
                transport.write(CONTINUE)
        self._wake = wake = self._loop.create_future()
        await wake

    def _write(self, exchange: Exchange, answer: Response, now_s: float) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            if answer.undelivered is not None:
                answer.undelivered()
            return
        try:
            head = self._front.encode_head(answer, exchange.keep_alive, exchange.old, now_s)
        except ValueError:
            log.exception("an answer cannot be written")
            answer = internal_error()
            head = self._front.encode_head(answer, exchange.keep_alive, exchange.old, now_s)
        body = b"" if exchange.request.method == "HEAD" else answer.body
        if len(body) > BIG_ANSWER_BYTES:
            transport.writelines((head, body))
        else:
            transport.write(head + body)
        if answer.undelivered is not None and self._writable is not None:
            self._unsent.append(answer.undelivered)

    def _linger(self) -> None:
        """End our side and read on for a moment: closing with unread bytes would destroy the answer on its way."""
        transport = self._transport
        if transport is None or not transport.can_write_eof():
            self._close()
            return
        self._idle_due_s = self._loop.time() + self._limits.linger_timeout_s
        self._front.deadlines.watch(self, min(self.deadline_s, self._idle_due_s))
        transport.write_eof()
        if self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()

    def _close(self) -> None:
        """An orderly end: what is written still goes out, within the write deadline."""
        self._deaf = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._writable is not None:
            self._write_due_s = self._loop.time() + self._limits.write_timeout_s
            self._front.deadlines.watch(self, min(self.deadline_s, self._write_due_s))
        transport.close()

    def _parks(self, exchange: Exchange) -> bool:
        return exchange.found.route.parks

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
