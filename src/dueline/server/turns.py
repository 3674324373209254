"""Requests that were sent ahead of their answers are begun a few per turn of the loop, connection by connection.

So a pipelining client, or a hundred of them, cannot keep the loop from the others for longer than one turn takes.
"""

from __future__ import annotations

import asyncio
from collections import deque

PER_TURN = 8


class Turns:
    """One for all connections of a front."""

    def __init__(self) -> None:
        self._left = PER_TURN
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_running = False

    def take(self) -> asyncio.Future[None] | None:
        """None: begin now. Otherwise wait for this first."""
        loop = asyncio.get_running_loop()
        if not self._is_running:
            self._is_running = True
            loop.call_soon(self._next)
        if self._left > 0 and not self._waiting:
            self._left -= 1
            return None
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        return turn

    def _next(self) -> None:
        self._left = PER_TURN
        waiting = self._waiting
        while waiting and self._left:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        self._is_running = self._left < PER_TURN
        if self._is_running:
            asyncio.get_running_loop().call_soon(self._next)
