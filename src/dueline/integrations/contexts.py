"""A worker whose handlers run inside something: an application's context, a fresh database connection.

What surrounds a handler is entered where the handler runs, in its own thread, because that is where such contexts live;
a worker's middleware runs in the event loop and cannot do it. Handlers in child processes are not surrounded: a child
is a fresh Python, in which the application has yet to be set up.
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
    """A Worker; `surround` makes the context of one run of a handler, be it a function, a coroutine or a TaskWorker."""

    def __init__(self, surround: Surround, url: str | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._surround = surround

    def _add(self, handler: Handler) -> None:
        if handler.mode != "process":
            handler = msgspec.structs.replace(handler, call=surrounded(handler.call, self._surround))
        super()._add(handler)


def surrounded(call: Callable[..., Any], surround: Surround) -> Callable[..., Any]:
    """A function, or coroutine function, called inside a context that `surround` makes for each call."""
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
