"""An asyncio program that has a worker, a client or a server inside, without a framework.

    worker = Worker("http://127.0.0.1:9277")
    run(worker, client)                          # until SIGTERM or Ctrl-C

Parts are async context managers: they are started in their order and ended in the opposite one, also when a later one
does not start. A signal that comes before all have started starts no more of them. A second signal ends the grace of
workers.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)

Part = AbstractAsyncContextManager[Any]


def run(*parts: Part, main: Coroutine[Any, Any, object] | None = None) -> None:
    """Run a program of these parts until a signal, or until `main` ends."""
    asyncio.run(serve(*parts, main=main))


async def serve(*parts: Part, main: Coroutine[Any, Any, object] | None = None) -> None:
    """The same inside an event loop in the main thread. Raises what `main` raises."""
    loop = asyncio.get_running_loop()
    told, up = asyncio.Event(), asyncio.Event()
    starting = asyncio.timeout(None)  # ended by a signal: a part may be waiting for a queue that is away

    def end() -> None:
        if not told.is_set():
            told.set()
            if not up.is_set():
                starting.reschedule(loop.time())
            return
        for part in parts:
            hurry = getattr(part, "end", None)
            if callable(hurry):
                hurry()

    for number in SIGNALS:
        loop.add_signal_handler(number, end)
    try:
        async with AsyncExitStack() as stack:
            try:
                async with starting:
                    for part in parts:
                        await stack.enter_async_context(part)
                    up.set()
            except TimeoutError:
                if not starting.expired():
                    raise
                return
            await _until(told, main)
    finally:
        if main is not None:
            main.close()  # it was never begun when a part did not start
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _until(told: asyncio.Event, main: Coroutine[Any, Any, object] | None) -> None:
    if main is None:
        await told.wait()
        return
    work = asyncio.ensure_future(main)
    waiting = asyncio.ensure_future(told.wait())
    try:
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for task in (work, waiting):
            task.cancel()
        await asyncio.gather(work, waiting, return_exceptions=True)
