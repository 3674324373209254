"""Requests that were sent ahead of their answers: only a few of them are under way at once, on all connections.

Whoever sends one request after the other is answered at once. A request that was sent ahead waits for a place, in the
order of arrival, and at least for the next turn of the loop. So a hundred pipelining clients cannot keep the loop, or
the next call to the store, from the others for longer than a few requests take.
"""

from __future__ import annotations

import asyncio
from collections import deque

PLACES = 16


class Places:
    """One for all connections of a front."""

    def __init__(self) -> None:
        self._free = PLACES
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_armed = False

    async def take(self) -> None:
        """Wait for a place. It must be given back."""
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
