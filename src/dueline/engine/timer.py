"""The engine's interface to time. Tests use their own timer and advance it by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Handle(Protocol):
    """A scheduled call that can be cancelled."""

    def cancel(self) -> None: ...


class Timer(Protocol):
    """A monotonic clock, in seconds, that can schedule calls."""

    def time(self) -> float: ...
    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Handle: ...


class LoopTimer:
    """The running event loop's timers, on the system's monotonic clock (uvloop's own is a cached millisecond)."""

    time = staticmethod(time.monotonic)

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Handle:
        return asyncio.get_running_loop().call_later(delay_s, callback)
