"""The supervisor's own connection to its store: one command at a time, healed by the next call. Not the way of jobs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redis.asyncio.connection import UnixDomainSocketConnection
from redis.exceptions import BusyLoadingError, RedisError

_TIMEOUT_S = 5.0


class NotThere(Exception):
    """The store does not answer."""


class Loading(Exception):
    """The store reads its data; the text is how far it is."""


class Link:
    """A connection made when it is needed. A call that fails closes it, so no answer is ever read by the next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: UnixDomainSocketConnection | None = None
        self._one_at_a_time = asyncio.Lock()

    async def call(self, *command: str) -> bytes:
        """One command. Raises NotThere or Loading."""
        async with self._one_at_a_time:
            try:
                connection = await self._connected()
                await connection.send_command(*command)
                answer: object = await connection.read_response()
                _raise_swallowed_cancel()
            except BusyLoadingError as error:
                await self.close()
                raise Loading(str(error)) from None
            except (RedisError, OSError, TimeoutError) as error:
                await self.close()
                raise NotThere(str(error) or type(error).__name__) from error
            except asyncio.CancelledError:
                await self.close()
                raise
        return answer if isinstance(answer, bytes) else str(answer).encode()

    async def info(self) -> dict[str, str]:
        """The figures of `INFO`. Raises Loading (with the percentage) while it loads."""
        text = (await self.call("INFO", "server", "clients", "memory", "persistence", "replication")).decode(
            errors="replace"
        )
        figures = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
        if figures.get("loading", "0") != "0":
            raise Loading(f"{float(figures.get('loading_loaded_perc', '0') or 0):.0f} %")
        return figures

    async def ask_to_end(self) -> None:
        """Ask whoever serves this socket to write everything and exit; silence is no error."""
        try:
            await self.call("SHUTDOWN")
        except (NotThere, Loading):
            pass

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def _connected(self) -> UnixDomainSocketConnection:
        if self._connection is None:
            self._connection = UnixDomainSocketConnection(
                path=str(self.path),
                protocol=2,
                socket_timeout=_TIMEOUT_S,
                socket_connect_timeout=_TIMEOUT_S,
                driver_info=None,
            )
            await self._connection.connect()
        return self._connection


def _raise_swallowed_cancel() -> None:
    """asyncio.wait_for of Python 3.11, which redis-py sends with, may lose a cancel that comes as its work ends."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
