"""A worker whose handlers run inside something: an application's context, a fresh database connection.

What surrounds a handler is entered where the handler runs, in its own thread or process, because that is where such
contexts live; a worker's middleware runs in the event loop and cannot do it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

from ..client.sending import RetryRule
from ..client.times import Duration
from ..worker import Handle, Worker
from ..worker.handlers import Mode

P = ParamSpec("P")
T = TypeVar("T")

Surround = Callable[[], AbstractContextManager[Any]]


class SurroundedWorker(Worker):
    """A Worker; `surround` makes the context of one run. TaskWorker classes are not surrounded: see `surrounded`."""

    def __init__(self, surround: Surround, url: str | None = None, **options: Any) -> None:
        super().__init__(url, **options)
        self._surround = surround

    def handles(
        self,
        topic: str,
        *,
        mode: Mode | None = None,
        timeout: Duration | None = None,
        concurrency: int | None = None,
        max_attempts: int | None = None,
        retry: RetryRule | None = None,
        lease: Duration | None = None,
        ttl: Duration | None = None,
    ) -> Callable[[Callable[P, T]], Handle[P, T]]:
        """As of Worker; the function is called inside the context."""
        handles = super().handles(
            topic,
            mode=mode,
            timeout=timeout,
            concurrency=concurrency,
            max_attempts=max_attempts,
            retry=retry,
            lease=lease,
            ttl=ttl,
        )

        def decorate(function: Callable[P, T]) -> Handle[P, T]:
            plain: Any = function.function if isinstance(function, Handle) else function
            return handles(surrounded(plain, self._surround))

        return decorate


def surrounded(function: Callable[P, T], surround: Surround) -> Callable[P, T]:
    """The function, or coroutine function, called inside a context that `surround` makes for each call."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def inside_later(*args: Any, **kwargs: Any) -> Any:
            with surround():
                return await function(*args, **kwargs)

        return inside_later  # pyright: ignore[reportReturnType]

    @functools.wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        with surround():
            return function(*args, **kwargs)

    return inside
