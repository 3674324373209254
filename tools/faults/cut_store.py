"""A server that is gone after some store calls: killed, or stopped and never continued.

    store = CutStore(inner, at=3, done=True)     the third call takes effect, but its answer never comes
    engine = Engine(store, timer=store.timer(timer))

From that call on, nothing that the engine does has an effect, and its timers no longer fire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any

from dueline.engine.directory import Directory
from dueline.engine.posts import PostedByTask
from dueline.engine.store import Store
from dueline.engine.timer import Handle, Timer

LOCAL = {"start", "stop", "now_ms"}  # methods of a store that make no call to it


def _calls(protocol: type) -> frozenset[str]:
    return frozenset(name for name, one in vars(protocol).items() if isfunction(one) and name[0] != "_") - LOCAL


class _Cut:
    def __init__(self, inner: Any, calls: frozenset[str], through: Callable[..., Any]) -> None:
        self._inner = inner
        self._calls = calls
        self._through = through

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._calls:
            return found
        return partial(self._through, name, found)


class CutStore(PostedByTask, _Cut):
    """A store for one engine. `at`: the call at which the engine is gone, from 1; 0: never. `done`: whether that call
    takes effect. `calls`: the names of the calls so far."""

    def __init__(self, inner: Any, at: int = 0, *, done: bool = False) -> None:
        super().__init__(inner, _calls(Store), self._call)
        self.calls: list[str] = []
        self.gone = asyncio.Event()
        self.directory = _Cut(inner.directory, _calls(Directory), self._call)
        self._at = at
        self._in: str | None = None
        self.done = done

    @property
    def events(self) -> Any:
        return self._inner.events

    @events.setter
    def events(self, events: Any) -> None:
        self._inner.events = events

    def stop_at(self, at: int, *, done: bool) -> None:
        """The engine is gone at this call, counted from now."""
        self._at, self.done = len(self.calls) + at, done

    def stop_in(self, call: str, *, done: bool) -> None:
        """The engine is gone at its next call of this name."""
        self._in, self.done = call, done

    async def _call(self, name: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self.gone.is_set():
            await _for_ever()
        self.calls.append(name)
        if len(self.calls) == self._at or name == self._in:
            self.gone.set()
            if self.done:
                await call(*args, **options)
            await _for_ever()
        return await call(*args, **options)

    def timer(self, timer: Timer) -> Timer:
        return _CutTimer(timer, self.gone)


class _CutTimer:
    def __init__(self, timer: Timer, gone: asyncio.Event) -> None:
        self._timer = timer
        self._gone = gone
        self.time = timer.time

    def call_later(self, delay_s: float, callback: Callable[[], object], /) -> Handle:
        return self._timer.call_later(delay_s, lambda: None if self._gone.is_set() else callback())


async def _for_ever() -> None:
    await asyncio.get_running_loop().create_future()
