"""Questions that are asked together share a call: those of one turn of the event loop, and those that come during a
call. One call is under way at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

MOST = 100  # questions of one call


class SharedCall(Generic[Q, A]):
    """`call` takes questions and returns one answer for each, in order. If it raises, each of them raises that."""

    def __init__(self, call: Callable[[Sequence[Q]], Awaitable[Sequence[A]]]) -> None:
        self._call = call
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._calling: asyncio.Task[None] | None = None

    async def ask(self, question: Q) -> A:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[A] = loop.create_future()
        self._waiting.append((question, answer))
        if self._calling is None or self._calling.done():
            self._calling = loop.create_task(self._call_all())
        return await answer

    async def _call_all(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            batch = [one for one in batch if not one[1].done()]  # others were cancelled
            if batch:
                await self._call_one(batch)

    async def _call_one(self, batch: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._call([question for question, _ in batch])
        except BaseException as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
