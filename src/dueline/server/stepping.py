"""Runs a coroutine without a task: stepped by its caller at first, then by the futures that it awaits.

It saves the task, but nothing that needs the current task works in it, such as asyncio.timeout. It cannot be cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


def step(
    handler: Coroutine[Any, Any, T], finish: Callable[[T], None], fail: Callable[[], None], _: object = None
) -> None:
    """Run `handler` until it awaits a future, and again when that future is done. `finish` gets its result; `fail` is
    called while its exception is handled."""
    try:
        waits_for = handler.send(None)
    except StopIteration as end:
        finish(end.value)
    except BaseException:
        fail()
    else:
        if waits_for is None:
            asyncio.get_running_loop().call_soon(step, handler, finish, fail)
        else:
            waits_for._asyncio_future_blocking = False  # acknowledged, as asyncio.Task does
            waits_for.add_done_callback(partial(step, handler, finish, fail))
