"""Both clients behind one face, so that one suite of tests holds for both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

import pytest

from dueline import AsyncClient, Client, Patience

QUICK = Patience(first_s=0.01, most_s=0.05)

both = pytest.mark.parametrize("kind", [Client, AsyncClient], ids=["sync", "async"])


class Shell:
    """A client of either kind, called without await; a list that comes in pages is collected. `waits`: what it slept
    between tries; with `sleeping` False it only says so."""

    def __init__(self, kind: type[Any], url: str, sleeping: bool = True, **options: Any) -> None:
        self.waits: list[float] = []
        self._sleeping = sleeping
        self._runner = asyncio.Runner()
        sleep = self._sleep_async if kind is AsyncClient else self._sleep
        self.client = kind(url, sleep=sleep, **{"timeout_s": 5, "patience": QUICK, **options})

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self.client.close())
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        made = getattr(self.client, name)
        return lambda *args, **options: self.run(made(*args, **options))

    def run(self, made: Any) -> Any:
        if inspect.iscoroutine(made):
            return self._runner.run(made)
        if isinstance(made, AsyncIterator):
            return self._runner.run(_collected(made))
        return list(made) if inspect.isgenerator(made) else made

    def turn(self) -> None:
        """Let the event loop see what has arrived."""
        self._runner.run(asyncio.sleep(0.01))

    def _sleep(self, wait_s: float) -> None:
        import time

        self.waits.append(wait_s)
        if self._sleeping:
            time.sleep(wait_s)

    async def _sleep_async(self, wait_s: float) -> None:
        self.waits.append(wait_s)
        if self._sleeping:
            await asyncio.sleep(wait_s)


async def _collected(rows: AsyncIterator[Any]) -> list[Any]:
    return [row async for row in rows]
