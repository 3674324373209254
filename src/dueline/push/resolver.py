"""Name resolution in dedicated threads.

The system's lookup cannot be cancelled and may hang for half a minute. Each lookup has its own thread, so that one
target's dead name server blocks neither the event loop's thread pool nor other targets. It is a daemon thread, so that
the process can exit while a lookup hangs (at exit Python waits for the threads of its own pools).

The number of threads is bounded. Concurrent lookups of one name are merged. Some threads are reserved for names that
resolved before, so that these still work when many other names hang. Whether an address may be called is decided when
connecting (egress), not here.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

MAX_THREADS = 256
RESERVED = 32  # additional threads, for names whose last lookup succeeded
MAX_KNOWN = 10_000
NAMES_CACHE_S = 30


class Names(Protocol):
    """Resolves names."""

    async def addresses(self, host: str) -> Sequence[str]:
        """The numeric addresses of a name, in the order to try them. Raises OSError when there are none."""
        ...

    async def stop(self) -> None: ...


class _LookUp:
    """The lookup of one name. `askers` counts the callers that wait for it."""

    __slots__ = ("answer", "askers", "host")

    def __init__(self, host: str) -> None:
        self.host = host
        self.answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.askers = 0


class SystemNames:
    """Uses the system's resolver (files, name servers), like every program on the machine."""

    def __init__(self, max_threads: int = MAX_THREADS, reserved: int = RESERVED) -> None:
        self._free = max_threads
        self._reserved = reserved
        self._look_ups: dict[str, _LookUp] = {}  # waiting or running, by name
        self._queue: deque[_LookUp] = deque()
        self._known_queue: deque[_LookUp] = deque()
        self._known: dict[str, None] = {}  # names whose last lookup succeeded, oldest first

    async def addresses(self, host: str) -> Sequence[str]:
        look_up = self._look_ups.get(host)
        if look_up is None:
            look_up = self._look_ups[host] = _LookUp(host)
            (self._known_queue if host in self._known else self._queue).append(look_up)
        look_up.askers += 1
        self._begin()
        try:
            return await asyncio.shield(look_up.answer)  # a caller that is cancelled does not cancel it for the others
        finally:
            look_up.askers -= 1

    def _begin(self) -> None:
        """Start as many waiting lookups as there are free threads."""
        while self._known_queue and self._free + self._reserved > 0:
            reserved = self._free <= 0
            self._start(self._known_queue.popleft(), reserved)
        while self._queue and self._free > 0:
            self._start(self._queue.popleft(), reserved=False)

    def _start(self, look_up: _LookUp, reserved: bool) -> None:
        if not look_up.askers:  # all callers were cancelled while it waited
            del self._look_ups[look_up.host]
            return
        self._take(-1, reserved)
        loop = asyncio.get_running_loop()

        def work() -> None:
            found: list[str] | OSError
            try:
                found = _look_up(look_up.host)
            except OSError as error:
                found = error
            except UnicodeError:
                found = OSError("the name cannot be looked up")
            try:
                loop.call_soon_threadsafe(self._done, look_up, found, reserved)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

        try:
            threading.Thread(target=work, name="dueline-names", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            loop.call_soon(self._done, look_up, OSError("no thread is available for the lookup"), reserved)

    def _done(self, look_up: _LookUp, found: list[str] | OSError, reserved: bool) -> None:
        self._take(1, reserved)  # when the thread is free, not when its callers are cancelled
        del self._look_ups[look_up.host]
        self._known.pop(look_up.host, None)
        if isinstance(found, OSError):
            look_up.answer.set_exception(found)
            look_up.answer.exception()  # mark it as retrieved, even if nobody waits any more
        else:
            look_up.answer.set_result(found)
            if len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[look_up.host] = None
        self._begin()

    def _take(self, threads: int, reserved: bool) -> None:
        if reserved:
            self._reserved += threads
        else:
            self._free += threads

    async def stop(self) -> None:
        """Return at once: a running lookup ends by itself, and its answer is dropped."""


class TooManyLookUps(OSError):
    """The namespace has used up its look-ups of names. `wait_s`: how long until the next one."""

    def __init__(self, wait_s: float) -> None:
        super().__init__("too many look-ups")
        self.wait_s = wait_s


class NameCache:
    """The addresses of names, for NAMES_CACHE_S. Calls that need the same name at the same time share a look-up."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._known: dict[str, tuple[float, Sequence[str]]] = {}  # until when; oldest first
        self._asking: dict[str, asyncio.Task[Sequence[str]]] = {}

    async def addresses(self, host: str, admit: Callable[[], None]) -> Sequence[str]:
        """At least one address. `admit` is called before a look-up, and may raise TooManyLookUps. Raises OSError."""
        loop = asyncio.get_running_loop()
        until_s, found = self._known.get(host, (0.0, ()))
        if loop.time() < until_s:
            return found
        asking = self._asking.get(host)
        if asking is None:
            admit()
            asking = self._asking[host] = loop.create_task(self._ask(host))
            asking.add_done_callback(_retrieved)
        return await asyncio.shield(asking)

    async def stop(self) -> None:
        for asking in list(self._asking.values()):
            asking.cancel()
        await self._names.stop()

    async def _ask(self, host: str) -> Sequence[str]:
        try:
            found = await self._names.addresses(host)
        finally:
            del self._asking[host]
        if not found:
            raise OSError("the name has no address")
        self._known.pop(host, None)
        if len(self._known) >= MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[host] = asyncio.get_running_loop().time() + NAMES_CACHE_S, found
        return found


def _retrieved(asking: asyncio.Task[Sequence[str]]) -> None:
    """Mark an error as retrieved, even if nobody waits any more."""
    if not asking.cancelled():
        asking.exception()


def _look_up(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
