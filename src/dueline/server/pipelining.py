"""A limit on pipelined requests: only a few of them run at once, over all connections.

A client that waits for each answer is served at once. A pipelined request, sent before the previous answer, waits for a
place in order of arrival, and at least until the next iteration of the event loop. So even a hundred pipelining clients
delay other clients, and the next call to the store, only by the time of a few requests.
"""

from __future__ import annotations

import asyncio
from collections import deque

PLACES = 16


class PipelineLimit:
    """Shared by all connections of a front."""

    def __init__(self) -> None:
        self._free = PLACES
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_armed = False

    async def take(self) -> None:
        """Wait for a place. The caller must give it back."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._arm()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.give_back()
            raise

    def give_back(self) -> None:
        self._free += 1
        self._arm()

    def _arm(self) -> None:
        if self._waiting and self._free and not self._is_armed:
            self._is_armed = True
            asyncio.get_running_loop().call_soon(self._grant)

    def _grant(self) -> None:
        self._is_armed = False
        while self._waiting and self._free:
            place = self._waiting.popleft()
            if not place.done():
                self._free -= 1
                place.set_result(None)
