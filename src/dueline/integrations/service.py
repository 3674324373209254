"""Runs workers, clients and servers in an asyncio program without a framework.

    worker = Worker("http://127.0.0.1:9277")
    run(worker, client)                          # until SIGTERM or Ctrl-C

Parts are async context managers. They start in order and end in reverse order, even if a later one fails to start.
A signal during the start stops it: no further parts are started. A second signal ends the grace period of workers.
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
    """Run these parts until a signal comes or `main` ends."""
    asyncio.run(serve(*parts, main=main))


async def serve(*parts: Part, main: Coroutine[Any, Any, object] | None = None) -> None:
    """`run` for an event loop in the main thread. Raises what `main` raises."""
    loop = asyncio.get_running_loop()
    stopping, up = asyncio.Event(), asyncio.Event()
    starting = asyncio.timeout(None)  # a signal ends it, because a part may be waiting for an unavailable queue

    def end() -> None:
        if not stopping.is_set():
            stopping.set()
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
            await _until(stopping, main)
    finally:
        if main is not None:
            main.close()  # it never began if a part failed to start
        for number in SIGNALS:
            loop.remove_signal_handler(number)


async def _until(stopping: asyncio.Event, main: Coroutine[Any, Any, object] | None) -> None:
    if main is None:
        await stopping.wait()
        return
    work = asyncio.ensure_future(main)
    waiting = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for task in (work, waiting):
            task.cancel()
        await asyncio.gather(work, waiting, return_exceptions=True)
