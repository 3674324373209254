"""The reader of an answer, counted: so many bytes may come for one answer, whatever they are.

aiohttp bounds heads and what is read of a body is bounded by its reader; what comes before the head (1xx answers) and
between the chunks of a body (extensions) is bounded by nothing, and a target that never stops saying it would keep the
event loop busy until the call's time is over.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

WIRE_BYTES = 1 << 20  # well above the read cap and everything that may be in flight behind it


class CountingHandler(ResponseHandler):
    """One connection. More than WIRE_BYTES for one answer end it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._came = 0

    def set_response_params(self, *args: Any, **words: Any) -> None:
        """The next answer begins."""
        self._came = 0
        super().set_response_params(*args, **words)

    def data_received(self, data: bytes) -> None:
        self._came += len(data)
        if self._came <= WIRE_BYTES:
            super().data_received(data)
        elif self.transport is not None:
            self.transport.abort()


def count(connector: aiohttp.TCPConnector, loop: asyncio.AbstractEventLoop) -> None:
    """From now on the connector's connections are counted. There is no public way to say so."""
    connector._factory = functools.partial(CountingHandler, loop=loop)  # pyright: ignore[reportAttributeAccessIssue]
