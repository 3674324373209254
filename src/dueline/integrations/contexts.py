"""A worker whose handlers run inside a context, such as an application context or a fresh database connection.

The context is entered in the handler's own thread, because such contexts are bound to a thread. A worker's middleware
runs in the event loop and cannot do that. Handlers in child processes get no context, because the application is not
set up in a child.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from ..worker import Worker
from ..worker.handlers import Handler

Surround = Callable[[], AbstractContextManager[Any]]


class ContextWorker(Worker):
    """A Worker. `surround` creates the context for each run of a handler: a function, a coroutine or a TaskWorker."""

    def __init__(self, surround: Surround, url: str | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._surround = surround

    def _add(self, handler: Handler) -> None:
        if handler.mode != "process":
            handler = msgspec.structs.replace(handler, call=in_context(handler.call, self._surround))
        super()._add(handler)


def in_context(call: Callable[..., Any], surround: Surround) -> Callable[..., Any]:
    """The function or coroutine function, wrapped so that each call runs in a new context from `surround`."""
    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def inside_later(*args: Any, **kwargs: Any) -> Any:
            with surround():
                return await call(*args, **kwargs)

        return inside_later

    @functools.wraps(call)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with surround():
            return call(*args, **kwargs)

    return inside
