"""The supervisor's connection to its store: one command at a time, reopened by the next call. Not used for jobs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redis.asyncio.connection import UnixDomainSocketConnection
from redis.exceptions import BusyLoadingError, RedisError

_TIMEOUT_S = 5.0


class NotThere(Exception):
    """The store does not answer."""


class Loading(Exception):
    """The store is loading its data; the text is its progress."""


class SupervisorConnection:
    """A connection that is opened on demand. A failed call closes it, so the next call never reads a stale reply."""

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
        """The fields of `INFO`. Raises Loading (with the percentage) while the store loads."""
        text = (await self.call("INFO", "server", "clients", "memory", "persistence", "replication")).decode(
            errors="replace"
        )
        values = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
        if values.get("loading", "0") != "0":
            raise Loading(f"{float(values.get('loading_loaded_perc', '0') or 0):.0f} %")
        return values

    async def ask_to_end(self) -> None:
        """Ask the store on this socket to write everything and exit. No answer is not an error."""
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
    """redis-py sends with asyncio.wait_for, which in Python 3.11 may lose a cancel that arrives as the work ends."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
