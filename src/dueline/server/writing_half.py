"""The writing half of a connection: answers out, and what happens if the client does not read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..dialects.http import Response
from .deadlines import NEVER
from .exchange import Exchange
from .peer import has_left

if TYPE_CHECKING:
    from .front import Front
    from .request_reader import Reader

BIG_ANSWER_BYTES = 64 * 1024


class WritingHalf(asyncio.Protocol):
    """What a connection writes. `server.connection` has the rest."""

    def __init__(self, front: Front, reader: Reader) -> None:
        self._front = front
        self._reader = reader
        self._limits = front.limits
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reading_paused = False
        self._writable: asyncio.Future[None] | None = None  # set while the kernel's send buffer is full
        self._unsent: list[Callable[[], None]] = []
        self.deadline_s, self.slot = NEVER, 0  # used by Deadlines
        self._write_due_s = NEVER

    def overdue(self) -> None:
        """Called by the timer wheel when a deadline may have passed."""
        raise NotImplementedError

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

    def abort(self) -> None:
        """Close at once, without flushing."""
        if self._transport is not None:
            self._transport.abort()

    def _write(self, exchange: Exchange, answer: Response, now_s: float) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or (self._reading_paused and has_left(transport)):
            if answer.undelivered is not None:
                answer.undelivered()
            return
        try:
            head = self._front.encode_head(answer, exchange.keep_alive, exchange.old, now_s)
        except ValueError:
            answer, head = self._front.unwritable(exchange.keep_alive, exchange.old, now_s)
        body = b"" if exchange.request.method == "HEAD" else answer.body
        if len(body) > BIG_ANSWER_BYTES:
            transport.writelines((head, body))
        else:
            transport.write(head + body)
        if answer.undelivered is not None and self._writable is not None:
            self._unsent.append(answer.undelivered)

    def close(self) -> None:
        """Close after flushing: everything written still goes out, within the write deadline."""
        self._reader.deaf = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._writable is not None:
            self._write_due_s = self._loop.time() + self._limits.write_timeout_s
            self._front.deadlines.watch(self, min(self.deadline_s, self._write_due_s))
        transport.close()
