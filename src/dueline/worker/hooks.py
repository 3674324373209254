"""What a worker does before its first job and after its last one.

    start     the startup hooks, in order; one that raises keeps the worker from starting
    stop      the shutdown hooks, in reverse order, if all startup hooks had run; one that raises is logged

Coroutine functions run on the worker's event loop, plain functions in a thread, because they may block.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

Hook = Callable[[], Any]
Call = Callable[[Hook], Awaitable[Any]]

log = logging.getLogger("dueline.worker")


class Hooks:
    """The hooks of one worker. `call`: how a plain function is run."""

    def __init__(self) -> None:
        self.startup: list[Hook] = []
        self.shutdown: list[Hook] = []
        self._started = False

    async def start(self, call: Call) -> None:
        """Raises what a hook raises."""
        for hook in self.startup:
            await _run(hook, call)
        self._started = True

    async def stop(self, call: Call) -> None:
        """It may be called twice, and before `start`."""
        started, self._started = self._started, False
        for hook in reversed(self.shutdown) if started else ():
            try:
                await _run(hook, call)
            except Exception:
                log.exception("a shutdown hook failed: %s", getattr(hook, "__qualname__", hook))


async def _run(hook: Hook, call: Call) -> None:
    if inspect.iscoroutinefunction(hook):
        await hook()
    else:
        await call(hook)
