"""Places for jobs, and the loop that fills them: pull as many as there are free places, wait, pull again.

Topics whose handlers run in the same way share the places of that way; a topic whose handlers name their own number
has a lane to itself. The order of the topics turns from pull to pull, so that none of them starves the others.

A thread that is left alone with a handler that does not end frees the place of its job, but only as many of them as
there are places: each one above that keeps a place. So there are never more than twice as many threads as places (one
more per place for each further function of a topic), and where all hang nothing is pulled until one of them ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from ..client.errors import DuelineApiError, InvalidRequest, NotAllowed
from ..client.results import LeasedJob
from .queue import Queue

MAX_TOPICS = 100  # of one pull
MAX_PULL = 500
WAIT_MS = 20_000
BACK_OFF_S = (0.2, 5.0)

log = logging.getLogger("dueline.worker")


class Lane:
    """`begin` is called with each pulled job; `leave` frees its place. `left_alone` and `came_back` tell of threads."""

    def __init__(
        self, queue: Queue, topics: Sequence[str], places: int, lease_ms: int, begin: Callable[[Lane, LeasedJob], None]
    ) -> None:
        if len(topics) > MAX_TOPICS:
            raise ValueError(f"{len(topics)} topics share their places, at most {MAX_TOPICS} can: use a second worker")
        self.topics = tuple(topics)
        self.places = places
        self.busy = 0
        self.alone = 0  # threads that nobody waits for
        self.trouble: str | None = None  # why the last pull failed
        self._queue = queue
        self._lease_ms = lease_ms
        self._begin = begin
        self._room = asyncio.Event()
        self._room.set()
        self._turns = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        rest_s = BACK_OFF_S[0]
        while True:
            await self._room.wait()
            try:
                jobs = await self._queue.pull(self._turned(), min(self.free, MAX_PULL), self._lease_ms, WAIT_MS)
            except DuelineApiError as error:
                self.trouble = str(error)
                serious = isinstance(error, NotAllowed | InvalidRequest)
                log.log(logging.ERROR if serious else logging.WARNING, "cannot pull %s: %s", self.topics, error)
                await asyncio.sleep(rest_s)
                rest_s = min(rest_s * 2, BACK_OFF_S[1])
                continue
            except Exception:  # a bug, which must not end the worker's pulls in silence
                log.exception("a pull of %s failed", self.topics)
                await asyncio.sleep(BACK_OFF_S[1])
                continue
            rest_s, self.trouble = BACK_OFF_S[0], None
            for job in jobs:
                self.busy += 1
                self._begin(self, job)
            self._look()

    @property
    def free(self) -> int:
        """Places for jobs; not above 0: none."""
        return self.places - self.busy - max(0, self.alone - self.places)

    def leave(self) -> None:
        self.busy -= 1
        self._look()

    def left_alone(self) -> None:
        """A thread runs on after the job for which it was begun."""
        self.alone += 1
        if self.alone > self.places:
            log.warning("%d threads hang in handlers of %s: they keep places now", self.alone, ", ".join(self.topics))
        self._look()

    def came_back(self) -> None:
        """A thread that was left alone has ended its handler."""
        self.alone -= 1
        self._look()

    def _look(self) -> None:
        if self.free > 0:
            self._room.set()
        else:
            self._room.clear()

    def _turned(self) -> Sequence[str]:
        self._turns = (self._turns + 1) % len(self.topics)
        return self.topics[self._turns :] + self.topics[: self._turns]
