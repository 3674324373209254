"""Names to addresses, in threads of their own.

The system's look-up cannot be cancelled and may hang for half a minute. Each runs in a thread that does nothing else,
so that a dead name server of one target holds up neither the event loop's own threads nor, up to MAX_THREADS look-ups,
the other targets; and in a daemon thread, so that the process can end while one hangs. (Python waits at its end for the
threads of its own pools.) What an answer is worth is decided at the connect (egress), not here.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Protocol

from aiohttp.abc import AbstractResolver, ResolveResult

MAX_THREADS = 32


class Names(Protocol):
    """Where a name is looked up."""

    async def addresses(self, host: str) -> Sequence[str]:
        """The numeric addresses of a name, in the order to try them. OSError when there are none."""
        ...

    async def stop(self) -> None: ...


class SystemNames:
    """Asks the system (files, name servers), as every program on the machine does."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MAX_THREADS)

    async def addresses(self, host: str) -> Sequence[str]:
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[str]] = loop.create_future()

        def work() -> None:
            found: list[str] | OSError
            try:
                found = _look_up(host)
            except OSError as error:
                found = error
            except UnicodeError:
                found = OSError("the name cannot be looked up")
            try:
                loop.call_soon_threadsafe(done, found)
            except RuntimeError:
                pass  # the loop is closed: nobody waits any more

        def done(found: list[str] | OSError) -> None:
            self._free.release()  # when the thread is free, not when its caller has gone
            if answer.done():
                return
            if isinstance(found, OSError):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        threading.Thread(target=work, name="dueline-names", daemon=True).start()
        return await answer

    async def stop(self) -> None:
        """Wait for nobody: a look-up under way ends by itself, and nobody hears its answer."""


class ForAiohttp(AbstractResolver):
    """Names in the form in which aiohttp's connector asks. The connector caches the answers."""

    def __init__(self, names: Names) -> None:
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._names.addresses(host)
        if not addresses:
            raise OSError("the name has no address")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        await self._names.stop()


def _look_up(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
