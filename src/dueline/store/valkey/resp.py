"""The store's protocol as bytes: commands out, replies in. The connection itself is made by redis-py.

A reply is handed on inside the loop's turn that read it. redis-py's own way (a stream, a task that reads it, a
coroutine per reply) and its way to pack are made for callers of every kind; they were a quarter of the CPU time of a
single script call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import hiredis
from redis._parsers.base import BaseParser
from redis.exceptions import BusyLoadingError, InvalidResponse, RedisError, ResponseError

_MORE: Any = object()


def command(args: tuple[Any, ...]) -> bytes:
    """One command: bytes as they are, texts as UTF-8, numbers as their text."""
    return b"*%d\r\n%b" % (len(args), pieces(args))


def pieces(args: tuple[Any, ...]) -> bytes:
    """Words of a command, without their count."""
    found: list[bytes] = []
    for one in args:
        if one.__class__ is not bytes:
            one = (one if one.__class__ is str else str(one)).encode()
        found.append(b"$%d\r\n%b\r\n" % (len(one), one))
    return b"".join(found)


class Replies(asyncio.Protocol):
    """Reads a connection. `answered` gets every reply, an error reply as redis-py's exception; `lost` is told once why
    there will be no more. Either may raise IndexError of a reply that nobody waits for: that is a loss too."""

    def __init__(self, answered: Callable[[Any], None], lost: Callable[[str], None]) -> None:
        self._answered = answered
        self._lost = lost
        self._reader: Any = hiredis.Reader(
            protocolError=InvalidResponse, replyError=BaseParser.parse_error, notEnoughData=_MORE
        )
        self._ended = False

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not _MORE:
                if isinstance(reply, Exception) and not isinstance(reply, ResponseError | BusyLoadingError):
                    raise reply  # it speaks of the connection, not of a call
                self._answered(reply)
        except (RedisError, IndexError) as error:
            self._end(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else "the store closed it")

    def _end(self, why: str) -> None:
        if not self._ended:
            self._ended = True
            self._lost(why)
