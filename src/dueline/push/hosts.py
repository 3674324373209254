"""Limits per host, for topics whose jobs go to many hosts (courier "carried"). They hold in this process only. No I/O.

The jobs of such a topic share one queue and one number of slots. A host that hangs must not take all of them, so each
host has its own share, and a host that keeps failing is not called for a while (breaker).

A job whose host is busy waits here in order, if that host is healthy and few jobs wait: at most half of the topic's
slots may be waiting, so that other hosts are still served. Any other job is released without costing an attempt, with
a delay that grows every time. The number of free returns per job is bounded (engine.limits.MAX_REFUNDS), which also
bounds the cost of waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from urllib.parse import urlsplit

from ..engine.limits import MAX_REFUNDS
from ..engine.push_target import Breaker

FIRST_WAIT_MS = 100
GROWTH = 1.5
LONGEST_WAIT_MS = 30_000
MAX_HOSTS = 10_000


class Host:
    """The state of one host. `failures` counts consecutive ones. `queue` holds the waiting jobs: True grants one the
    slot, False sends it away."""

    __slots__ = ("failures", "in_flight", "open_until_ms", "queue")

    def __init__(self) -> None:
        self.queue: deque[asyncio.Future[bool]] = deque()
        self.in_flight = 0
        self.failures = 0
        self.open_until_ms = 0


def host_of(url: str) -> str:
    """The name and port that a call connects to."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2].lower()


def wait_ms(returns: int) -> int:
    """The delay of a job that has been returned this many times."""
    return int(min(FIRST_WAIT_MS * GROWTH ** min(returns, 50), LONGEST_WAIT_MS))


def may_return(returns: int) -> bool:
    """Whether the job can be released once more without costing an attempt."""
    return returns < MAX_REFUNDS - 1


class Hosts:
    """All hosts that this process calls. `per_host` limits the concurrent calls to one host."""

    def __init__(self, per_host: int) -> None:
        self._per_host = per_host
        self._hosts: dict[str, Host] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._hosts)

    async def enter(self, host: str, share: int, breaker: Breaker | None, now_ms: int) -> int | None:
        """Take a slot, perhaps after waiting for it, and return None. If the host is busy or its breaker is open,
        return the least time in ms to stay away; after that time one call is let through, and its result decides.
        `share` is how many of the topic's slots one host may take, and how many may wait for busy hosts."""
        busy_ms = self._enter(host, share, breaker, now_ms)
        state = self._hosts[host]
        if busy_ms != 0 or state.failures or state.in_flight + len(state.queue) >= share or self._waiting >= share:
            return busy_ms
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        state.queue.append(turn)
        self._waiting += 1
        try:
            return None if await turn else 0
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self.leave(host, None, breaker, now_ms)  # its turn came too late: pass the slot on
            raise
        finally:
            self._waiting -= 1

    def enter_anyway(self, host: str) -> None:
        """Take a slot even if none is free."""
        self._state(host).in_flight += 1

    def _state(self, host: str) -> Host:
        state = self._hosts.get(host)
        if state is None:
            self._forget_idle()
            state = self._hosts[host] = Host()
        return state

    def _enter(self, host: str, share: int, breaker: Breaker | None, now_ms: int) -> int | None:
        state = self._state(host)
        broken = breaker is not None and state.failures >= breaker.failures
        if broken and state.open_until_ms > now_ms:
            return state.open_until_ms - now_ms
        if state.in_flight >= (1 if broken else max(1, min(self._per_host, share))):
            return 0
        state.in_flight += 1
        return None

    def leave(self, host: str, ok: bool | None, breaker: Breaker | None, now_ms: int) -> int | None:
        """The call has ended. `ok` is None when it says nothing about the host. Returns the failures in a row if they
        have opened the breaker, 0 if it has closed, None otherwise."""
        state = self._hosts[host]
        state.in_flight -= 1
        changed: int | None = None
        if ok is not None:
            was_open = breaker is not None and state.failures >= breaker.failures
            state.failures = 0 if ok else state.failures + 1
            is_open = breaker is not None and state.failures >= breaker.failures
            changed = state.failures if is_open != was_open else None
            if breaker is not None and is_open:
                state.open_until_ms = now_ms + breaker.open_ms
        while state.queue:
            turn = state.queue.popleft()
            if turn.done():
                continue  # it no longer waits
            turn.set_result(not state.failures)
            if not state.failures:
                state.in_flight += 1
                break
        return changed

    def _forget_idle(self) -> None:
        keeps: tuple[Callable[[Host], int], ...] = (
            lambda state: state.in_flight or state.failures,
            lambda state: state.in_flight,  # a waiting job always waits for a call in flight
        )
        for keep in keeps:
            if len(self._hosts) >= MAX_HOSTS:
                self._hosts = {name: state for name, state in self._hosts.items() if keep(state)}
