"""One client connection: requests in, answers back in order.

    data_received -> Reader -> queue -> at once, or one task per connection -> router -> write

Reading (server/request_reader) and answering are two halves connected by the queue. One handler runs at a time. A
single request to a `taskless` route is answered at once: `data_received` and the futures it awaits step its coroutine
directly. One task per connection does the rest: queued and parked requests, streams, slow readers, closing. A pipelined
request waits for a place first (server/pipelining).

While a client has sent too much ahead, reading stops until its queue is empty, and no EOF arrives. So the kernel is
asked before an answer is written, and a poll that stays parked is refused: no job is given to a client that is gone.

The client is gone at EOF or when the connection is lost. A parking handler is cancelled then; any other one completes,
so a send is never half done. `Response.undelivered` is called if the kernel did not get an answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import closing, nullcontext
from functools import partial
from typing import TYPE_CHECKING, cast

from ..dialects.http import Response, Stream, plain_error
from ..engine.completion import PendingCall
from ..engine.errors import DuelineError, QuotaExceeded, RateLimited, Unauthorized
from .client_addresses import Admission, Refusal
from .deadlines import NEVER
from .exchange import Exchange
from .gate import host_of
from .request_reader import Reader
from .stepping import step
from .streaming import write_pieces
from .writing_half import WritingHalf

if TYPE_CHECKING:
    from .front import Front

log = logging.getLogger("dueline.server")

MAX_AHEAD_BYTES = 64 * 1024  # unparsed bytes behind a parked poll
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(WritingHalf):
    """The protocol object that a Front creates for each client. `admission`: it was counted for its TLS handshake."""

    def __init__(self, front: Front, admission: Admission | None = None) -> None:
        self._queue: deque[Exchange] = deque()
        super().__init__(front, Reader(front, self._queue, self._expected))
        self._admission = admission
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Future[None] | None = None
        self._current: Exchange | None = None
        self._begun: PendingCall | None = None  # the current poll, if it is answered on the line
        self._lines = front.lines
        self._on_reply = self._line_answered
        self._ended = False  # EOF from the client
        self._retiring = False  # the server stops: close after the next answer
        self._idle_due_s = NEVER
        self._parked_due_s = NEVER  # set while a poll is parked and reading is paused
        self._continue_due = self._cancelled = False
        self._poll_error: DuelineError | None = None  # why a parked poll was cancelled, if not because its client left

    # -- the transport's calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        # With high=0, pause_writing is called as soon as the kernel's buffer is full, so "not paused" means that the
        # kernel has everything. The same holds under TLS (server/tls_transport).
        self._transport.set_write_buffer_limits(high=0)
        self._reader.address = host_of(transport)
        admission = self._admission
        if admission is None:
            admission = self._admission = self._front.addresses.arrive(self._reader.address, self)
        else:
            self._front.addresses.end_request(admission)
            admission.client = self
        self._front.admit(self)
        self._idle_due_s = self._loop.time() + self._limits.idle_timeout_s
        if admission.refusal is not None:
            self._reader.answer_only_health(self._front.refusal(admission.refusal))
            self._idle_due_s = self._loop.time() + self._limits.health_timeout_s
        self._front.deadlines.watch(self, self._idle_due_s)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader.deaf:
            return
        is_idle = (
            self._current is None
            and not self._queue
            and self._writable is None
            and (self._task is None or self._wake is not None)
            and not self._retiring
        )
        if is_idle and (exchange := reader.whole(data)) is not None:
            self._answer_at_once(exchange)
            return
        reader.feed(data)
        if reader.due_s != NEVER:
            self._wait_for_rest()
        elif self._admission is not None and self._admission.is_unfinished:
            self._front.addresses.end_request(self._admission)
        queue = self._queue
        if is_idle and len(queue) == 1 and queue[0].found.route.at_once:
            self._answer_at_once(queue.popleft())
        elif queue or reader.full:
            self._hand_over()

    def eof_received(self) -> bool:
        self._ended = True
        self._reader.deaf = True
        current = self._current
        if current is None and not self._queue:
            return False
        if current is not None and current.found.route.parks:
            self._cancel()
            return False
        # The client may have closed only its writing side, so its pending requests are still answered.
        return self._transport is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._reader.deaf = True
        self._reader.let_go()
        self._reader.connection_quota.leave()
        if self._admission is not None:
            self._front.addresses.leave(self._admission)
        self._front.dismiss(self)
        for undelivered in self._unsent:
            undelivered()
        self._unsent.clear()
        self._queue.clear()
        if self._current is not None and self._current.found.route.parks:
            self._cancel()
        for future in (self._wake, self._writable):
            if future is not None and not future.done():
                future.set_result(None)
        self._wake = self._writable = None

    def overdue(self) -> None:
        """Called by the timer wheel when a deadline may have passed: find out which one."""
        if self._transport is None:
            return
        now_s = self._loop.time()
        busy = self._current is not None or bool(self._queue) or self._writable is not None
        idle_due_s = now_s + self._limits.idle_timeout_s if busy else self._idle_due_s
        read_due_s = NEVER if self._reading_paused else self._reader.due_s
        if self._write_due_s <= now_s:
            self._transport.abort()
        elif self._parked_due_s <= now_s:
            self._end_poll(RateLimited(f"More than {MAX_AHEAD_BYTES} bytes were sent behind a waiting poll."))
        elif read_due_s <= now_s:
            self._reader.refuse(plain_error(408, "request_timeout", "The request did not arrive in time."))
            self._hand_over()
        elif idle_due_s <= now_s:
            # A deaf connection expects nothing more, and a lingering client has had time to read its answer.
            self._transport.abort() if self._reader.deaf else self.close()
        else:
            self._front.deadlines.watch(self, min(idle_due_s, read_due_s, self._write_due_s, self._parked_due_s))

    def retire(self, at_once: bool = True) -> None:
        """The server stops: close after the next answer. `at_once`: now, if no request was received."""
        self._retiring = True
        if at_once and self._current is None and not self._queue and self._reader.between:
            self.close()

    def recheck(self) -> None:
        """End a parked poll whose grant no longer holds."""
        current = self._current
        error = self._front.auth.refusal(current.request.grant) if current and current.found.route.parks else None
        if isinstance(error, Unauthorized):  # if tokens cannot be checked now, the poll may wait until they can
            self._end_poll(error)

    @property
    def idle_since_s(self) -> float | None:
        """Since when it waits for a request, or for the rest of a head. None: it does not. Used by ClientAddresses."""
        if self._current is not None or self._queue or self._writable is not None or self._reader.has_head:
            return None
        return self._idle_due_s

    def _wait_for_rest(self) -> None:
        """Limit how many incomplete requests an address has, and how long this one may take to arrive."""
        if self._admission is None or self._front.addresses.begin_request(self._admission):
            self._front.deadlines.watch(self, min(self.deadline_s, self._reader.due_s))
            return
        if self._current is not None or self._queue or self._transport is None:
            self._reader.refuse(self._front.refusal(Refusal.UNFINISHED))  # after the answers that come first
            return
        self._reader.stop()
        self._transport.write(self._front.encode_refusal(Refusal.UNFINISHED, self._loop.time()))
        self.close()

    # -- the answering half ---------------------------------------------------------------------------------------

    def _expected(self) -> None:
        """The client waits for "100 Continue" before it sends its body: send it, after the pending answers."""
        if self._current is None and not self._queue and self._transport is not None:
            self._transport.write(CONTINUE)
        else:
            self._continue_due = True

    def _answer_at_once(self, exchange: Exchange) -> None:
        """Begin to answer a request, because nothing is running or blocked."""
        if exchange.answer is not None:
            self._queue.append(exchange)  # refused while it was read: the task sends the answer and closes
            self._hand_over()
            return
        self._current = exchange
        if exchange.found.route.line is not None:
            begun = self._lines.begin(exchange, self._on_reply)
            if begun is not None and self._current is exchange:  # it is not answered yet
                self._begun = begun
            return
        handler = self._front.router.respond(exchange.found, exchange.request, exchange.queue)
        step(handler, partial(self._finish, exchange), self._fail)

    def _line_answered(self, result: Response | BaseException) -> None:
        """The answer of the line. A poll that was cancelled has none, but its jobs may have been on their way."""
        exchange, self._begun = self._current, None
        if exchange is not None:
            self._parked_due_s = NEVER
            self._finish(exchange, self._lines.ended(exchange, result))
        elif isinstance(result, Response) and result.undelivered is not None:
            result.undelivered()

    def _fail(self) -> None:
        log.exception("unexpected error on a connection")
        self._current = None
        self.abort()

    def _finish(self, exchange: Exchange, answer: Response) -> None:
        self._current = None
        self._answered(exchange, answer)
        if self._reader.was_fed and not self._queue:
            self._reader.read_on()
        if self._queue or self._ended or self._reading_paused or self._continue_due or self._writable is not None:
            self._hand_over()
        elif self.deadline_s == NEVER and self._transport is not None:
            self._front.deadlines.watch(self, self._idle_due_s)

    def _answered(self, exchange: Exchange, answer: Response) -> bool:
        """Count and write an answer. False if it was the last one of this connection."""
        now_s = self._loop.time()
        self._idle_due_s = now_s + self._limits.idle_timeout_s
        count = self._front.answered
        if count is not None:
            count(exchange.found.route.name, exchange.request.method, answer.status, now_s - exchange.begun_s)
        if self._retiring:
            exchange.keep_alive = False
        if not exchange.streams:
            self._write(exchange, answer, now_s)
        if exchange.keep_alive:
            return True
        self.close() if exchange.answer is None or self._ended else self._linger()
        return False

    def _hand_over(self) -> None:
        """Start or wake the task because there is work for it. While a request is being answered without the task,
        `_finish` does this later. Stop reading when the client has sent too much ahead."""
        if self._task is None:
            if self._current is None:
                self._task = self._loop.create_task(self._serve())
        elif self._wake is not None and self._current is None:
            self._wake.set_result(None)
            self._wake = None
        reader = self._reader
        if not reader.deaf and (self._current is not None or len(self._queue) > 1):
            reader.hold()
        if self._transport is not None and not self._reading_paused and reader.full:
            parked = self._current is not None and self._current.found.route.parks
            if not parked or reader.ahead_bytes > MAX_AHEAD_BYTES:
                self._reading_paused = True
                self._transport.pause_reading()
                if parked:
                    self._limit_parking()

    async def _serve(self) -> None:
        queue = self._queue
        ahead = False  # the next request arrived before the previous answer was sent
        try:
            while self._transport is not None:
                if self._writable is not None:
                    await self._writable
                    continue
                if not queue:
                    self._reader.read_on()
                if not queue:
                    if self._ended or (self._retiring and self._reader.between):
                        self.close()
                        return
                    await self._rest()
                    ahead = False
                    continue
                exchange = queue.popleft()
                answer = exchange.answer or await (self._respond_ahead if ahead else self._respond)(exchange)
                if not self._answered(exchange, answer):
                    return
                ahead = True
        except asyncio.CancelledError:
            self.close()
        except Exception:
            self._fail()
        finally:
            self._current = None

    async def _respond_ahead(self, exchange: Exchange) -> Response:
        """Answer a pipelined request. A request that may park gives its place back before it waits."""
        self._current = exchange
        places = self._front.places
        await places.take()
        if exchange.found.route.parks:
            places.give_back()
            return await self._respond(exchange)
        try:
            if self._transport is None:
                raise asyncio.CancelledError  # the client is gone and the handler has not started
            return await self._respond(exchange)
        finally:
            places.give_back()

    async def _respond(self, exchange: Exchange) -> Response:
        self._current = exchange
        parks = exchange.found.route.parks
        if parks:
            if self._ended:
                raise asyncio.CancelledError  # the client is gone
            if self._reading_paused and self._reader.ahead_bytes > MAX_AHEAD_BYTES:
                self._limit_parking()
            else:
                self._resume_reading()  # to notice when the client disconnects
        try:
            if (refused := self._front.ended(exchange)) is not None:  # it may have waited in the queue
                return refused
            with exchange.quota.poll if parks and exchange.quota is not None else nullcontext():
                answer = await self._front.router.respond(exchange.found, exchange.request, exchange.queue)
                if answer.stream is not None:
                    return await self._stream(exchange, answer, answer.stream)
            if not parks or (refused := self._front.ended(exchange)) is None:
                return answer
            if answer.undelivered is not None:
                answer.undelivered()
            return refused
        except QuotaExceeded as error:
            return self._front.router.failed(exchange.found, exchange.request, error)
        except asyncio.CancelledError:
            if self._poll_error is None or exchange.streams:
                raise
            return self._refused_poll(exchange, self._poll_error)
        finally:
            self._current = None
            self._parked_due_s = NEVER

    async def _stream(self, exchange: Exchange, answer: Response, stream: Stream) -> Response:
        """Write an answer that comes in pieces. The end of the connection is its end."""
        ended = partial(self._front.ended, exchange)
        with closing(stream):
            if (refused := ended()) is not None or self._transport is None:
                return refused or answer
            exchange.streams, exchange.keep_alive = True, False
            self._write(exchange, answer, self._loop.time())
            if exchange.request.method != "HEAD":
                await write_pieces(stream, self._transport, lambda: self._writable, ended)
        return answer

    def _limit_parking(self) -> None:
        """A poll is parked while reading is paused: refuse it if it is not answered soon."""
        self._parked_due_s = self._loop.time() + self._limits.ahead_timeout_s
        self._front.deadlines.watch(self, min(self.deadline_s, self._parked_due_s))

    def _resume_reading(self) -> None:
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._reader.restart_clock()
            self._front.deadlines.watch(self, min(self.deadline_s, self._reader.due_s))
            self._transport.resume_reading()

    async def _rest(self) -> None:
        """Wait for the next request."""
        self._idle_due_s = self._loop.time() + self._limits.idle_timeout_s
        if self.deadline_s == NEVER:
            self._front.deadlines.watch(self, self._idle_due_s)
        self._resume_reading()
        if self._continue_due and self._transport is not None:
            self._continue_due = False
            self._transport.write(CONTINUE)
        self._wake = wake = self._loop.create_future()
        await wake

    def _linger(self) -> None:
        """Close our side and keep reading for a moment. Closing with unread bytes would send a reset, which can destroy
        the answer on its way."""
        transport = self._transport
        if transport is None or not transport.can_write_eof():
            self.close()
            return
        self._idle_due_s = self._loop.time() + self._limits.linger_timeout_s
        self._front.deadlines.watch(self, min(self.deadline_s, self._idle_due_s))
        transport.write_eof()
        self._resume_reading()

    def _refused_poll(self, exchange: Exchange, error: DuelineError) -> Response:
        """The last answer of a connection whose poll is ended."""
        self._queue.clear()
        self._reader.stop()
        exchange.answer = self._front.router.failed(exchange.found, exchange.request, error)
        exchange.keep_alive = False
        return exchange.answer

    def _end_poll(self, error: DuelineError) -> None:
        """Answer a parked poll with an error, then close the connection."""
        self._poll_error = error
        self._cancel()

    def _cancel(self) -> None:
        """Cancel the current poll, once. A second cancel would interrupt the handler's cleanup."""
        if self._begun is not None and self._current is not None:
            begun, self._begun = self._begun, None
            exchange, self._current = self._current, None
            begun.cancel()
            self._lines.left(exchange)
            if self._poll_error is None:
                self.close()
            else:
                self._answered(exchange, self._refused_poll(exchange, self._poll_error))
        elif self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel()
