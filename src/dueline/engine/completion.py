"""Completions: how the calls that are made often are answered without a coroutine, a task or a future for each.

    post_send(..., done)      begins, returns at once; `done` is called once, with the result or with the error
    awaited(post), poll(post) the same for a caller that awaits: the only place where a future is made
    leave(work, done)         a rare case that must await something: a task does the rest and calls `done`
    through(convert, done)    a completion that converts a result on its way

`done` is called inside the event loop, sometimes before the call that it was given to returns. It must not raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from types import CoroutineType
from typing import Any, Protocol

from .errors import DuelineError

Done = Callable[[Any], None]
"""done(result), or done(error) with an exception."""


class PendingCall(Protocol):
    """A call that has begun and may wait for long. After `cancel`, its `done` is not called, or ignored."""

    def cancel(self) -> object: ...


_left: set[asyncio.Task[Any]] = set()  # the loop itself holds its tasks only weakly


def leave(work: Coroutine[Any, Any, Any], done: Done) -> asyncio.Task[Any]:
    """Do the rest of a call in a task."""
    task = asyncio.get_running_loop().create_task(work)
    _left.add(task)
    task.add_done_callback(partial(_ended, done))
    return task


def _ended(done: Done, task: asyncio.Task[Any]) -> None:
    _left.discard(task)
    if task.cancelled():
        done(asyncio.CancelledError())
    else:
        done(task.exception() or task.result())


def awaited(post: Callable[..., PendingCall | None], *args: Any) -> asyncio.Future[Any]:
    """A future for a posted call: post(*args, done)."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    post(*args, partial(settle, future))
    return future


async def poll(post: Callable[..., PendingCall | None], *args: Any) -> Any:
    """Await a posted call that may wait for long. If the caller is cancelled, so is the call."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    begun = post(*args, partial(settle, future))
    try:
        return await future
    except asyncio.CancelledError:
        if begun is not None:
            begun.cancel()
        raise


def settle(future: asyncio.Future[Any], result: Any) -> None:
    """Give a future the result of a call, or its error."""
    if future.done():
        return
    if isinstance(result, asyncio.CancelledError):
        future.cancel()
    elif isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def tell(done: Done, result: Any) -> None:
    """Call `done`. Its caller goes on even if that fails, because others wait for their results, too."""
    tell_each(((done, result),))


def tell_each(results: Iterable[tuple[Done, Any]]) -> None:
    """Call each `done` with its result. One that fails does not hold up the others."""
    for done, result in results:
        try:
            done(result)
        except Exception as error:
            context = {"message": "a completion failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)


async def quietly(work: Coroutine[Any, Any, object]) -> None:
    """Background work that is requested again if it is still needed, so a store failure here is ignored."""
    try:
        await work
    except DuelineError:
        pass


def through(convert: Callable[[Any], Any], done: Done) -> Done:
    """A completion that converts a result first. If what `convert` returns is a coroutine, the call leaves the line."""

    def on_reply(result: Any) -> None:
        if not isinstance(result, BaseException):
            try:
                result = convert(result)
            except Exception as error:
                result = error
            if result.__class__ is CoroutineType:
                leave(result, done)
                return
        done(result)

    return on_reply


class Outbox:
    """Results that are held back while their cause is still at work."""

    def __init__(self) -> None:
        self._held: list[tuple[Done, Any]] | None = None

    def hold(self) -> None:
        """Hold results back until `release`."""
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or (), None
        for done, result in held:
            tell(done, result)

    def tell(self, done: Done, result: Any) -> None:
        if self._held is None:
            tell(done, result)
        else:
            self._held.append((done, result))
