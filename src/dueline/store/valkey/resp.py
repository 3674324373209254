"""The store's wire protocol: encodes commands and parses replies. redis-py makes the connection.

A reply is delivered in the same turn of the loop that read it. redis-py's general-purpose reader (a stream, a task that
reads it, a coroutine per reply) and encoder took a quarter of the CPU time of a single script call.
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
    """One encoded command: bytes unchanged, texts as UTF-8, numbers as decimal text."""
    return hiredis.pack_command(args)


def pieces(args: tuple[Any, ...]) -> bytes:
    """Encoded arguments of a command, without their count."""
    return command(args).partition(b"\r\n")[2]


class Replies(asyncio.Protocol):
    """Reads a connection. `answered` gets every reply; an error reply is one of redis-py's exceptions. `lost` is called
    once with the reason when no more replies will come. Either may raise IndexError for a reply that no call waits for,
    which also counts as a lost connection."""

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
                    raise reply  # it concerns the connection, not a call
                self._answered(reply)
        except (RedisError, IndexError) as error:
            self._end(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else "the store closed it")

    def _end(self, why: str) -> None:
        if not self._ended:
            self._ended = True
            self._lost(why)
