"""The retry loop of an async client. The rules are those of `patience`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from .calls import Answer, Call
from .errors import DuelineApiError
from .patience import Patience, Tries

T = TypeVar("T")


async def retried(
    once: Callable[[Call[T], float], Awaitable[Answer[T]]],
    call: Call[T],
    patience: Patience,
    timeout_s: float = 0.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    servers: int = 1,
) -> Answer[T]:
    """The answer of `once(call, timeout_s)`, tried again where that is safe. Raises DuelineApiError when it fails."""
    begin_s = asyncio.get_running_loop().time()
    try:
        return await once(call, timeout_s + call.wait_ms / 1000)
    except DuelineApiError as error:
        return await tried_again(error, begin_s, once, call, patience, timeout_s, sleep, servers)


async def tried_again(
    error: DuelineApiError,
    begin_s: float,
    once: Callable[[Call[T], float], Awaitable[Answer[T]]],
    call: Call[T],
    patience: Patience,
    timeout_s: float = 0.0,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    servers: int = 1,
) -> Answer[T]:
    """`retried`, after a first try that began at `begin_s` has failed with `error`."""
    clock = asyncio.get_running_loop().time
    tries = Tries(patience, call, timeout_s, servers)
    while True:
        if wait_s := tries.wait_s(error, clock() - begin_s):
            await sleep(wait_s)
        try:
            return tries.answered(await once(call, tries.timeout_s(clock() - begin_s)))
        except DuelineApiError as last:
            error = last
