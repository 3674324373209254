"""Answers whose body comes in pieces, as long as the client stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from ..dialects.http import Response, Stream


async def write_pieces(
    stream: Stream,
    transport: asyncio.WriteTransport,
    full: Callable[[], asyncio.Future[None] | None],
    ended: Callable[[], Response | None],
) -> None:
    """Write each piece when the client has taken the one before. `full` returns what to wait for, if the kernel's
    buffer is full. Nothing is written once the caller's grant has `ended`: a token can expire, and a process that was
    suspended may have missed that it was revoked."""
    async with aclosing(stream.pieces()) as pieces:
        async for piece in pieces:
            if transport.is_closing() or ended() is not None:
                return
            transport.write(piece)
            if (writable := full()) is not None:
                await writable
