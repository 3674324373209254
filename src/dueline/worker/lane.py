"""Places for jobs, and the loop that fills them: pull as many jobs as there are free places, wait, pull again.

A pull of a single topic carries the acks of that topic that are waiting at that moment; such a pull does not wait for
jobs. So a busy worker needs one request per job instead of two.

While jobs are quick, a lane pulls some of them ahead (`prefetch`). They wait here for a place, and their leases are
renewed like those of running jobs. One that waits too long is given back, and so are all when the worker stops.

Topics whose handlers run in the same mode share that mode's places. A topic with its own concurrency has its own lane.
The order of the topics rotates from pull to pull, so that no topic starves the others.

An abandoned thread, whose handler does not end, frees the place of its job. This holds for as many threads as there are
places; each further one keeps a place. So there are at most twice as many threads as places (plus one per place for
each further handler of a topic), and if all of them hang, nothing is pulled until one ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from ..api.answers import LeasedJob
from ..client.errors import DuelineApiError, InvalidRequest, NotAllowed
from .acks import Acks
from .leases import JobLease
from .prefetch import PATIENCE_S, Prefetch
from .queue import Queue

MAX_TOPICS = 100  # of one pull
MAX_PULL = 500
WAIT_MS = 20_000
BACK_OFF_S = (0.2, 5.0)

log = logging.getLogger("dueline.worker")


class Lane:
    """Places and their pull loop. `lease` is called with each job that was pulled, and `begin` when it has a place;
    `leave` frees the place. `give_back` is called with jobs that get none. `abandoned` and `came_back` report abandoned
    threads."""

    def __init__(
        self,
        queue: Queue,
        acks: Acks,
        topics: Sequence[str],
        places: int,
        lease_ms: int,
        lease: Callable[[LeasedJob], JobLease],
        begin: Callable[[Lane, JobLease], None],
        give_back: Callable[[Sequence[JobLease]], None],
        prefetch: int = 0,
        name: str | None = None,
    ) -> None:
        if len(topics) > MAX_TOPICS:
            raise ValueError(
                f"{len(topics)} topics share one concurrency limit; at most {MAX_TOPICS} can: use a second worker"
            )
        self.topics = tuple(topics)
        self.places = places
        self.busy = 0
        self.alone = 0  # abandoned threads
        self.trouble: str | None = None  # why the last pull failed
        self._queue = queue
        self._acks = acks
        self._joins = len(topics) == 1  # pulls may take acks along
        self._lease_ms = lease_ms
        self._lease = lease
        self._begin = begin
        self._give_back = give_back
        self._prefetch = Prefetch(prefetch, places)
        self._waiting: deque[tuple[float, JobLease]] = deque()  # since when, for a place
        self._alarm: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._room = asyncio.Event()
        self._room.set()
        self._turns = 0

    async def run(self) -> None:
        """Pull until cancelled."""
        rest_s = BACK_OFF_S[0]
        while True:
            await self._room.wait()
            most = min(max(self.free, 0) + self._prefetch.ahead - len(self._waiting), MAX_PULL)
            if most < 1:  # jobs have become slow since there was room
                self._look()
                continue
            try:
                jobs = await self._pull(most)
            except DuelineApiError as error:
                self.trouble = str(error)
                serious = isinstance(error, NotAllowed | InvalidRequest)
                log.log(logging.ERROR if serious else logging.WARNING, "cannot pull %s: %s", self.topics, error)
                await asyncio.sleep(rest_s)
                rest_s = min(rest_s * 2, BACK_OFF_S[1])
                continue
            except Exception:  # a bug, which must not silently end the pulls
                log.exception("a pull of %s failed", self.topics)
                await asyncio.sleep(BACK_OFF_S[1])
                continue
            rest_s, self.trouble = BACK_OFF_S[0], None
            for job in jobs:
                self._waiting.append((self._loop.time(), self._lease(job)))
            self._look()

    async def _pull(self, most: int) -> Sequence[LeasedJob]:
        done = self._acks.take(self.topics[0]) if self._joins else ()
        if not done:
            return await self._queue.pull(self._turned(), most, self._lease_ms, WAIT_MS, self._name)
        try:
            acked = [job for job, _ in done]
            answer = await self._queue.ack_and_pull(self.topics[0], acked, most, self._lease_ms, self._name)
        except InvalidRequest:  # an older server
            self._joins = False
            self._acks.put_back(done)
            return ()
        except BaseException:
            self._acks.put_back(done)
            raise
        self._acks.answered(done, answer.acked)
        return answer.jobs

    @property
    def free(self) -> int:
        """The number of free places; 0 or less means none."""
        return self.places - self.busy - max(0, self.alone - self.places)

    @property
    def in_hand(self) -> int:
        """How many jobs run here or wait for a place."""
        return self.busy + len(self._waiting)

    def leave(self, spent_s: float) -> None:
        """A job has ended. It ran for `spent_s`."""
        self.busy -= 1
        self._prefetch.ended(spent_s)
        self._look()

    def stop(self) -> None:
        """Give back the jobs that wait for a place. The pulls must have ended."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._give_up(len(self._waiting))

    def abandoned(self) -> None:
        """A thread was abandoned: it still runs although its job is over."""
        self.alone += 1
        if self.alone > self.places:
            log.warning(
                "%d threads hang in handlers of %s and count towards its concurrency",
                self.alone,
                ", ".join(self.topics),
            )
        self._look()

    def came_back(self) -> None:
        """The handler of an abandoned thread has ended."""
        self.alone -= 1
        self._look()

    def _look(self) -> None:
        """Begin the jobs that have a place now. Pull if places are left, or if few jobs wait for the next place."""
        while self._waiting and self.free > 0:
            self.busy += 1
            self._begin(self, self._waiting.popleft()[1])
        waiting, ahead = len(self._waiting), self._prefetch.ahead
        if self.free > 0 or (waiting < ahead and waiting <= ahead // 2):
            self._room.set()
        else:
            self._room.clear()
        if waiting and self._alarm is None:
            self._alarm = self._loop.call_at(self._waiting[0][0] + PATIENCE_S, self._look_at_waiting)

    def _look_at_waiting(self) -> None:
        """Give back jobs that have waited too long."""
        self._alarm = None
        now_s = self._loop.time()
        late = sum(since_s + PATIENCE_S <= now_s for since_s, _ in self._waiting)
        if late:
            self._prefetch.stuck()
            self._give_up(late)
        self._look()

    def _give_up(self, count: int) -> None:
        if count:
            self._give_back([self._waiting.popleft()[1] for _ in range(count)])

    def _turned(self) -> Sequence[str]:
        self._turns = (self._turns + 1) % len(self.topics)
        return self.topics[self._turns :] + self.topics[: self._turns]
