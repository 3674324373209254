"""A byte limit on the whole response, whatever the bytes are.

aiohttp limits the size of heads, and our reader limits how much of a body is read. Nothing limits what comes before the
head (1xx responses) and between the chunks of a body (extensions). A target that never stops sending these would keep
the event loop busy until the call times out.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

WIRE_BYTES = 1 << 20  # well above the read limit plus everything that may be in flight


class CountingHandler(ResponseHandler):
    """One connection. It is closed when one response exceeds WIRE_BYTES."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._came = 0

    def set_response_params(self, *args: Any, **words: Any) -> None:
        """Reset the count, because the next response begins."""
        self._came = 0
        super().set_response_params(*args, **words)

    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        if self._came <= WIRE_BYTES:
            super().data_received(data)
        elif self.transport is not None:
            self.transport.abort()


def count(connector: aiohttp.TCPConnector, loop: asyncio.AbstractEventLoop) -> None:
    """Count the bytes of the connector's connections from now on. aiohttp has no public interface for this."""
    connector._factory = functools.partial(CountingHandler, loop=loop)  # pyright: ignore[reportAttributeAccessIssue]
