"""Acks on their way to the queue. Those of a few milliseconds share a call, and so do those that arrive during a call.

    add(job) --> future of its outcome
    take(topic) --> those of a lane that is about to pull: they go with the pull (Lane), in one request
    otherwise, after `within_s` --> one call for all that wait; at once if the worker has no other job, or stops

A batch that was taken comes back: `answered` with the outcomes, or `put_back` if the call failed, because an ack may be
repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..api.answers import LeasedJob, Outcome
from .queue import Queue

MAX_TAKEN = 500

Batch = Sequence[tuple[LeasedJob, asyncio.Future[Outcome]]]


class Acks:
    """The acks of one worker. Used in one event loop. `busy`: whether the worker has other jobs in hand."""

    def __init__(self, queue: Queue, within_s: float, busy: Callable[[], bool]) -> None:
        self._queue = queue
        self._within_s = within_s
        self._busy = busy
        self._alarm: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[LeasedJob, asyncio.Future[Outcome]]] = []
        self._calling: asyncio.Task[None] | None = None

    def add(self, job: LeasedJob) -> asyncio.Future[Outcome]:
        answer: asyncio.Future[Outcome] = self._loop.create_future()
        self._waiting.append((job, answer))
        if self._within_s <= 0 or len(self._waiting) >= MAX_TAKEN or not self._busy():
            self._call()
        elif self._alarm is None:
            self._alarm = self._loop.call_later(self._within_s, self._call)
        return answer

    def hurry(self) -> None:
        """From now on, acks do not wait for others."""
        self._within_s = 0.0
        if self._waiting:
            self._call()

    def take(self, topic: str) -> Batch:
        """Acks of this topic, for a call that the caller makes."""
        taken = [one for one in self._waiting if one[0].topic == topic][:MAX_TAKEN]
        if taken:
            self._waiting = [one for one in self._waiting if one not in taken]
        return taken

    def answered(self, batch: Batch, outcomes: Sequence[Outcome]) -> None:
        for (_, answer), outcome in zip(batch, outcomes, strict=True):
            if not answer.done():
                answer.set_result(outcome)

    def put_back(self, batch: Batch) -> None:
        self._waiting += batch
        self._call()

    def _call(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._calling is None or self._calling.done():
            self._calling = self._loop.create_task(self._call_all())

    async def _call_all(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                self.answered(batch, await self._queue.ack([job for job, _ in batch]))
            except Exception as error:
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(error)
