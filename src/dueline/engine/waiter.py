"""One pull call that waits for its answer. `engine.waiters` describes the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from .completion import Done
from .job import LeasedJob
from .limits import PULL_BYTES
from .store import Credit
from .timer import Handle
from .topics import Topic

if TYPE_CHECKING:
    from .waiters import PartitionQueue, Waiters


class Waiter(msgspec.Struct, eq=False):
    """One pull call that is not answered yet. `credit`: the jobs it was made for. `until_s` None: it does not wait.
    `done` gets its jobs, or the error."""

    owner: Waiters
    topics: Sequence[Topic]
    credit: Credit
    until_s: float | None
    fails_fast: bool
    done: Done
    answered: bool = False  # or cancelled
    queues: list[PartitionQueue] = []
    untried: list[PartitionQueue] = []  # queues to ask in next, best first; empty: parked
    asking: PartitionQueue | None = None  # the queue whose call includes this waiter
    jobs: list[LeasedJob] = []
    timed_out: bool = False
    timeout: Handle | None = None  # set once it parks
    error: BaseException | None = None  # of the last call, if it failed

    @property
    def lacks(self) -> int:
        return self.credit.max - len(self.jobs)

    @property
    def over(self) -> bool:
        """Time is up: answer as soon as no call includes it."""
        return self.timed_out or (self.until_s is not None and self.owner.timer.time() >= self.until_s)

    @property
    def is_full(self) -> bool:
        """Whether it has all its jobs, or as much as an answer may hold."""
        jobs = self.jobs
        return len(jobs) == self.credit.max or sum([len(job.body) for job in jobs]) >= PULL_BYTES

    def advance(self) -> None:
        """The next step of a waiter that takes part in no call."""
        if self.untried and not self.over:
            self.untried[0].pump()
        elif self.jobs or self.until_s is None or self.over:
            self.finish()
        else:
            due = [queue for queue in self.queues if queue.alarm.is_due()]
            if due:
                self.untried = due
                due[0].pump()
            else:
                self.park(self.until_s)

    def park(self, until_s: float) -> None:
        """Sleep until a queue is due or woken, or time is up. Most waiters get their jobs before, and need no timer."""
        if self.timeout is None:
            self.timeout = self.owner.timer.call_later(max(0.0, until_s - self.owner.timer.time()), self.time_out)
        for queue in self.queues:
            queue.arm()

    def proceed(self, asked: PartitionQueue, filled: bool, more: bool) -> None:
        """After a call: answer, or ask the next partition. `filled`: the waiter got all the jobs it asked for."""
        if self.answered:
            return
        if (filled and self.is_full) or (more and self.jobs):
            self.finish()
            return
        again = more or filled
        if self.untried and self.untried[0] is asked:
            if not again:
                self.untried.pop(0)
        elif again:
            self.untried.insert(0, asked)
        self.advance()

    def finish(self) -> None:
        """Answer with the jobs it has. If it has none and the store is still down, answer with that error."""
        if self.answered:
            return
        self.leave()
        self.owner.outbox.tell(self.done, self.jobs if self.error is None or self.jobs else self.error)

    def cancel(self) -> None:
        """The caller is gone. Release the jobs it has; a call in flight releases its own."""
        if not self.answered:
            self.leave()
        self.owner.release(self)

    def time_out(self) -> None:
        self.timed_out = True
        if self.asking is None:
            self.finish()

    def leave(self) -> None:
        """Leave all queues. It gets no more jobs."""
        self.answered = True
        self.owner.count -= 1
        if self.timeout is not None:
            self.timeout.cancel()
            self.timeout = None
        for queue in self.queues:
            del queue.waiters[self]
            if not queue.waiters:
                queue.emptied()
        self.queues = []
