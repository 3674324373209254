"""Two processes whose calls come through in a chosen order.

Scripts are atomic, so all that can happen is an order of calls. Each run replays one order; a gate in front of every
call decides who is next, and the next run takes another way at the last fork until all are done (orders.next_order).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dueline.store.valkey.store import ValkeyStore

from .tapped_store import TappedStore

NOW_MS = 1_700_000_000_000
Call = Callable[[ValkeyStore], Awaitable[Any]]


class Gate:
    """One caller: its own store (process), whose every call waits to be let through."""

    def __init__(self, url: str, prefix: str) -> None:
        self.store = TappedStore(url, prefix=prefix, clock=lambda: NOW_MS)
        self.waiting: asyncio.Future[None] | None = None
        self.changed = asyncio.Event()
        self.task: asyncio.Task[Any] | None = None

    async def start(self, before: Call, call: Call) -> None:
        """Run `before` freely, then `call` behind the gate."""
        await self.store.start()
        await before(self.store)
        through = self.store.link.call

        async def gated(*args: Any) -> Any:
            self.waiting = asyncio.get_running_loop().create_future()
            self.changed.set()
            await self.waiting
            self.waiting = None
            return await through(*args)

        self.store.link.call = gated  # type: ignore[method-assign]
        self.task = asyncio.ensure_future(call(self.store))
        self.task.add_done_callback(lambda _: self.changed.set())

    async def settled(self) -> bool:
        """True: it waits for its turn. False: it is done."""
        assert self.task is not None
        while not self.task.done():
            if self.waiting is not None and not self.waiting.done():
                return True
            self.changed.clear()
            await self.changed.wait()
        return False

    def step(self) -> None:
        assert self.waiting is not None
        self.waiting.set_result(None)


async def run_in_order(gates: list[Gate], ways: list[int]) -> list[int]:
    """One order. `ways` are the choices at the forks so far; returns them with the defaults that were taken after."""
    taken: list[int] = []
    while True:
        ready = [gate for gate in gates if await gate.settled()]
        if not ready:
            break
        choice = 0
        if len(ready) == 2:
            choice = ways[len(taken)] if len(taken) < len(ways) else 0
            taken.append(choice)
        ready[choice].step()
    for gate in gates:
        assert gate.task is not None
        await gate.task
        await gate.store.stop()
    return taken
