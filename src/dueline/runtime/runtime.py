"""A store and the engine on it, from start to stop."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Protocol

from ..engine.engine import Engine

LAST_CALLS_S = 2.0


def process_name() -> str:
    """How this process is named in the audit log."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Startable(Protocol):
    """A store that an engine can use after `start`. `stop` may be called twice, and before `start`."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class Runtime:
    """An engine and its store (usually a StoreAccess). It lives once: after `stop`, make another."""

    def __init__(self, store: Startable, engine: Engine) -> None:
        self.store = store
        self.engine = engine

    async def start(self) -> None:
        """Start the store, then the engine. If that fails or is cancelled, nothing is left running."""
        try:
            await self.store.start()
            await self.engine.start()
        except BaseException:
            await asyncio.shield(asyncio.create_task(self.stop()))  # its own task, because this one may be cancelled
            raise

    async def stop(self) -> None:
        """Stop the engine, then the store. It may be called twice, and before `start`."""
        # If the store is down, the engine's last calls would wait for it. Give them a moment, then cut the connection.
        ending = asyncio.create_task(self.engine.stop())
        try:
            await asyncio.wait([ending], timeout=LAST_CALLS_S)
        finally:
            await self.store.stop()
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
