"""The reading half of a connection: bytes in, whole requests out. Limits are checked before anything is buffered.

    feed(data) -> httptools -> on_* -> Exchange appended to the queue

Pipelined requests are parsed until the queue is full. The bytes behind them stay unparsed; `read_on` continues when the
queue is empty. A refusal goes into the same queue, so that answers keep their order. After a refusal the reader is
deaf: it discards all further bytes. It does not know the transport; the connection checks `due_s` and `full` after each
feed.

A head that a front already knows is not parsed again (server/known_heads).

A caller is refused at the head (server/authentication, server/quotas), so that nobody can make the server store the
body of a call that is not allowed. A small body is then skipped and the connection goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import httptools

from ..dialects.http import NotGranted, Request, Response, plain_error
from ..engine.errors import BodyTooLarge, DuelineError, QuotaExceeded, RateLimited
from .authentication import namespace_of, take_token, without_token
from .deadlines import NEVER
from .exchange import MALFORMED, NO_REQUEST, Exchange
from .head import Headers, head_fault, join_headers
from .known_heads import KnownHead, KnownHeads
from .quotas import ConnectionQuota, Quota
from .router import Found, internal_error

if TYPE_CHECKING:
    from .front import Front

log = logging.getLogger("dueline.server")

IDLE, HEAD, BODY = 0, 1, 2
QUEUED_REQUESTS = 31  # parsed ahead; the piece that completes the last request may complete one more
QUEUED_BYTES = 64 * 1024  # of their bodies; a single body may be larger
SKIPPED_BYTES = 64 * 1024  # of the body of a refused request


class _Refused(Exception):
    """Aborts the parser after a refusal was queued."""


class Reader:
    """`queue` receives the exchanges. `expected` is called when the client waits for "100 Continue"."""

    def __init__(self, front: Front, queue: deque[Exchange], expected: Callable[[], None]) -> None:
        self.deaf = False
        self.address = ""  # the client's host; set by the connection
        self.connection_quota = ConnectionQuota()
        self.due_s = NEVER  # deadline of the request that is being read (for its head, then for its body)
        self.was_fed = False  # since the last `read_on`: there may be something to read on, or to reset
        self._queued_bytes = 0  # of bodies in the queue; reset by `read_on`
        self._front = front
        self._heads = front.heads
        self._only_health: Response | None = None  # the answer to everything but health
        self._quota_now: Quota | None = None  # of the request that is being read
        self._limits = front.limits
        self._loop = asyncio.get_running_loop()
        self._queue = queue
        self._expected = expected
        self._parser = httptools.HttpRequestParser(self)
        self._state = IDLE
        self._timed_state = IDLE
        self._url = b""
        self._pairs: list[tuple[bytes, bytes]] = []
        self._piece_bytes = 0
        self._count_head = False
        self._replay = b""
        self._progress = False
        self._stuck_bytes = 0
        self._found: Found | None = None
        self._request: Request | None = None
        self._chunks: list[bytes] = []
        self._body_bytes = 0
        self._declared_bytes = 0  # Content-Length; 0: no body, or chunked
        self._buffered_bytes = 0  # this reader's share of the front's buffered_bytes
        self._max_body_bytes = 0
        self._old = False
        self._head: bytes | None = None  # of the request that is being read, if it arrived in one piece
        self._headers = Headers({})
        self._has_token = False
        self._refusal: Response | None = None  # of the request that is being read; its body is skipped
        self._ahead = b""  # not parsed yet, because the queue is full

    @property
    def between(self) -> bool:
        """Whether no request has been read only in part."""
        return self._state == IDLE

    @property
    def has_head(self) -> bool:  # a body is being read
        return self._state == BODY

    @property
    def full(self) -> bool:
        """Whether parsing has stopped until the queue is empty. The connection should stop reading, too."""
        return len(self._queue) >= QUEUED_REQUESTS or self._queued_bytes > QUEUED_BYTES

    @property
    def ahead_bytes(self) -> int:
        """How many bytes are buffered unparsed."""
        return len(self._ahead)

    def whole(self, data: bytes) -> Exchange | None:
        """The exchange, if `data` is exactly one request for the line, whose head is known. It is not queued."""
        if self._state != IDLE or self._ahead:
            return None
        end = data.find(b"\r\n\r\n") + 4
        known = self._heads.find(data[:end])
        if known is None or known.line is None or len(data) != end + known.body_bytes:
            return None
        return self._exchange(known, data[end:])

    def feed(self, data: bytes) -> None:
        """Parse these bytes. Never raises."""
        self.was_fed = True
        if self._ahead:
            data = self._ahead + data
            self._ahead = b""
        queue = self._queue
        at, size = 0, len(data)
        self._progress = False
        while at < size and not self.deaf:
            if len(queue) >= QUEUED_REQUESTS or self._queued_bytes > QUEUED_BYTES:
                self._ahead = data[at:]
                break
            if self._state == IDLE:
                end = data.find(b"\r\n\r\n", at) + 4
                self._head = head = data[at:end] if end > 4 else None
                known = None if head is None else self._heads.find(head)
                if known is not None and size - end >= known.body_bytes:
                    at = end + known.body_bytes
                    queue.append(self._exchange(known, data[end:at]))
                    self._queued_bytes += known.body_bytes
                    continue
            at = self._read(data, at)
        if self._state != IDLE and not self.deaf:
            self._partly_read(size)
        else:
            self.due_s = NEVER

    def answer_only_health(self, refusal: Response) -> None:
        """Refuse every request but one for health, and close after the answer."""
        self._only_health = refusal
        self._heads = KnownHeads(self._front.auth, self._limits.max_body_bytes)

    def read_on(self) -> None:
        """Parse the buffered bytes. Called when the queue is empty."""
        self.was_fed = False
        self._queued_bytes = 0
        if self._ahead:
            self.feed(b"")
        if self._buffered_bytes:
            self.hold()

    def hold(self) -> None:
        """Count the buffered bytes of requests that have not started, because many clients together must not exhaust
        the memory. Above the limit this client loses the requests it has queued."""
        unfinished = self._body_bytes if self._state == BODY else 0
        buffered = self._queued_bytes + unfinished + len(self._ahead)
        front = self._front
        front.buffered_bytes += buffered - self._buffered_bytes
        self._buffered_bytes = buffered
        if front.buffered_bytes <= self._limits.max_buffered_bytes:
            return
        found, request = self._found or MALFORMED, self._request or NO_REQUEST
        if self._queue:
            found, request = self._queue[0].found, self._queue[0].request
            self._queue.clear()
        error = RateLimited("The server holds too many bytes of unfinished requests; retry a little later.")
        self.refuse(front.router.failed(found, request, error), found, request)

    def refuse(self, answer: Response, found: Found = MALFORMED, request: Request = NO_REQUEST) -> None:
        """Queue this answer and stop reading."""
        self.stop()
        self._queue.append(Exchange(found, request, False, False, answer, self._loop.time()))

    def stop(self) -> None:
        """Discard the buffered bytes and everything that still arrives."""
        self.deaf = True
        self._state = IDLE
        self.due_s = NEVER
        self.let_go()

    def restart_clock(self) -> None:
        """Give the client its full timeout again, after the connection had paused reading."""
        if self.due_s != NEVER:
            self.due_s = self._loop.time() + self._timeout_s()

    def let_go(self) -> None:
        """Discard everything that is buffered."""
        self._front.buffered_bytes -= self._buffered_bytes
        self._buffered_bytes = self._queued_bytes = 0
        self._ahead = b""
        self._chunks = []

    # -- the parser's calls

    def on_message_begin(self) -> None:
        self._state = HEAD
        self._progress = True
        self.due_s = NEVER
        self._url = b""
        self._pairs = []
        self._refusal = None
        # A head in one small piece cannot exceed the limit, so it need not be counted.
        self._count_head = self._piece_bytes > self._limits.max_header_bytes

    def on_url(self, url: bytes) -> None:
        self._progress = True
        self._url = self._url + url if self._url else url
        if len(self._url) > self._limits.max_url_bytes:
            self.refuse(plain_error(414, "url_too_long", f"The URL has more than {self._limits.max_url_bytes} bytes."))
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
            self.refuse(plain_error(400, "bad_request", wrong))
            raise _Refused
        if b"upgrade" in raw and self._declined():
            return
        url, path_token = without_token(self._url)
        self._has_token = path_token is not None or b"authorization" in raw or b"cookie" in raw
        method, path, query, found = self._front.router.locate(parser.get_method(), url, redirects=path_token is None)
        self._found = found = found.of(raw)
        self._headers = headers = Headers(raw)
        self._request = request = Request(method, path, query, headers, b"", found.params, address=self.address)
        if self._only_health is not None and not found.route.is_health:
            self.refuse(self._only_health, found, request)
            raise _Refused
        rules = self._front.browser_rules
        refusal = None if rules is None else rules.refusal(found.route, raw)
        if refusal is not None:
            self.refuse(refusal, found, request)
            raise _Refused
        self._quota_now = None
        try:
            token = take_token(found, raw, path_token)
            namespace = namespace_of(found, raw)
            not_granted = None
            try:
                request.grant = self._front.auth.admit(found, token, namespace)
            except NotGranted as error:  # it counts for the caller's limits, and the audit log says whose call it was
                request.grant, not_granted = error.grant, error
            quota = self._quota_now = self._front.quotas.of(found, request.grant, namespace)
            if quota is not None:
                self.connection_quota.count(quota, self._loop.time())
            if not_granted is not None:
                raise not_granted
        except DuelineError as error:
            self._refuse_caller(raw, error)
        own = found.route.max_body_bytes
        self._max_body_bytes = self._limits.max_body_bytes if own is None else own
        declared = raw.get(b"content-length")
        self._declared_bytes = 0 if declared is None else int(declared)
        if self._declared_bytes > self._max_body_bytes:
            self._refuse_body()
        if b"expect" in raw and raw[b"expect"].lower() == b"100-continue" and not self._old:
            self._expected()

    def on_body(self, chunk: bytes) -> None:
        self._progress = True
        self._body_bytes += len(chunk)
        if self._body_bytes > self._max_body_bytes:
            self._refuse_body()
        if self._refusal is None:
            self._chunks.append(chunk)

    def on_message_complete(self) -> None:
        self._state = IDLE
        request, found = self._request, self._found
        if request is None or found is None:
            return
        chunks = self._chunks
        if chunks:
            request.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self._chunks = []
        auth = self._front.auth
        if self._refusal is None and not auth.holds(request.grant) and (error := auth.refusal(request.grant)):
            self._refusal = self._front.router.failed(found, request, error)
        keep_alive = self._parser.should_keep_alive() and request.method != "CONNECT" and self._only_health is None
        begun_s = self._loop.time()
        exchange = Exchange(found, request, keep_alive, self._old, self._refusal, begun_s, self._quota_now)
        self._queue.append(exchange)
        self._queued_bytes += self._body_bytes
        self._request = None
        head, self._head = self._head, None  # the piece may contain the next request, too
        if head is not None and self._refusal is None:
            self._heads.keep(head, exchange, self._headers, self._has_token)
        if not keep_alive:
            self.deaf = True

    # -- parts

    def _exchange(self, known: KnownHead, body: bytes) -> Exchange:
        """A request with a known head, with a refusal if it is over a limit."""
        found, grant, quota = known.found, known.grant, known.quota
        request = Request(known.method, known.path, known.query, known.headers, body, found.params, grant, self.address)
        now_s = self._loop.time()
        exchange = Exchange(found, request, True, False, None, now_s, quota, False, known.line)
        if quota is not None and (quota is not self.connection_quota.quota or not quota.take(now_s)):
            self._count(quota, exchange)
        return exchange

    def _count(self, quota: Quota, exchange: Exchange) -> None:
        try:
            self.connection_quota.count(quota, exchange.begun_s)
        except QuotaExceeded as error:
            exchange.answer = self._front.router.failed(exchange.found, exchange.request, error)
            if not self.connection_quota.has(quota):
                exchange.keep_alive = False
                self.deaf = True

    def _read(self, data: bytes, at: int) -> int:
        """Parse one piece of `data`: a head, or as much of a body as has arrived. Returns where the piece ends. A piece
        completes at most one request, or two if the end of a head or of a chunked body was split."""
        left = self._declared_bytes - self._body_bytes if self._state == BODY else 0
        if left > 0:
            end = min(at + left, len(data))
        else:
            found = data.find(b"\r\n\r\n", at)
            end = len(data) if found < 0 else found + 4
        piece = data[at:end]
        self._piece_bytes = len(piece)
        if self._state == HEAD:
            self._count_head = True
        self._parse(piece)
        return end

    def _parse(self, piece: bytes) -> None:
        try:
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade as upgrade:
                self._stay(piece[cast(int, upgrade.args[0]) :])
        except httptools.HttpParserCallbackError as error:
            if not self.deaf:  # otherwise the error is our own _Refused
                log.error("unexpected error while reading a request", exc_info=error.__context__)
                self.refuse(internal_error())
        except httptools.HttpParserError as error:
            if not self.deaf:
                self.refuse(plain_error(400, "bad_request", f"The request is not valid HTTP/1.1: {error}."))

    def _declined(self) -> bool:
        """Ignore an offer to upgrade to another protocol (h2c). The parser would treat the body as that protocol, so
        the head is saved without the offer and a fresh parser reads it again."""
        if not self._parser.should_upgrade() or self._parser.get_method() == b"CONNECT":
            return False
        lines = [b"%b %b HTTP/%b" % (self._parser.get_method(), self._url, self._parser.get_http_version().encode())]
        offer = (b"upgrade", b"connection", b"http2-settings")
        lines += [name + b": " + value for name, value in self._pairs if name.lower() not in offer]
        if not self._parser.should_keep_alive():
            lines.append(b"Connection: close")
        self._replay = b"\r\n".join(lines) + b"\r\n\r\n"
        self._head = None
        return True

    def _stay(self, rest: bytes) -> None:
        """Continue as HTTP/1.1 after an offer to upgrade."""
        while not self.deaf:
            rest, self._replay = self._replay + rest, b""
            self._parser = httptools.HttpRequestParser(self)
            try:
                self._parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[cast(int, upgrade.args[0]) :]

    def _head_bytes(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._pairs)

    def _partly_read(self, size: int) -> None:
        """A request is incomplete: limit the size of its head and the time it may take."""
        self._stuck_bytes = 0 if self._progress else self._stuck_bytes + size
        if self._stuck_bytes > self._limits.max_header_bytes or self._head_bytes() > self._limits.max_header_bytes:
            self._refuse_head()
            return
        if self._state == BODY:
            self.hold()
            if self.deaf:
                return
        if self.due_s == NEVER or self._state != self._timed_state:
            self._timed_state = self._state
            self.due_s = self._loop.time() + self._timeout_s()

    def _timeout_s(self) -> float:
        return self._limits.header_timeout_s if self._state == HEAD else self._limits.body_timeout_s

    def _refuse_caller(self, raw: dict[bytes, bytes], error: DuelineError) -> None:
        """Refuse a caller at the head. A small body is skipped; otherwise the connection is closed without reading
        it."""
        found, request = self._found, self._request
        if found is None or request is None:
            raise _Refused
        answer = self._front.router.failed(found, request, error)
        is_long = b"transfer-encoding" in raw or int(raw.get(b"content-length", b"0")) > SKIPPED_BYTES
        if is_long or b"expect" in raw or not self.connection_quota.has(self._quota_now):
            self.refuse(answer, found, request)
            raise _Refused
        self._refusal = answer

    def _refuse_head(self) -> None:
        limits = self._limits
        message = f"The headers have more than {limits.max_header_bytes} bytes or {limits.max_headers} lines."
        self.refuse(plain_error(431, "headers_too_large", message))

    def _refuse_body(self) -> None:
        """Refuse a body that is too large before it is buffered, with the error of the route's dialect."""
        found, request = self._found, self._request
        if found is None or request is None:
            raise _Refused
        error = BodyTooLarge(f"The body has more than {self._max_body_bytes} bytes.")
        self.refuse(self._front.router.failed(found, request, error), found, request)
        raise _Refused
