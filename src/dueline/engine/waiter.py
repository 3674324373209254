"""One pull call that waits for its answer. `engine.waiters` describes the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .completion import Done
from .job import LeasedJob
from .limits import PULL_BYTES
from .outcomes import actor_name
from .timer import Handle
from .topics import Topic

if TYPE_CHECKING:
    from .waiters import PartitionQueue, Waiters


class Waiter:
    """One pull call that is not answered yet. `until_s` None: it does not wait. `done` gets its jobs, or the error."""

    __slots__ = (
        "actor",
        "answered",
        "asking",
        "by",
        "done",
        "error",
        "fails_fast",
        "jobs",
        "lease_ms",
        "max",
        "owner",
        "queues",
        "timed_out",
        "timeout",
        "topics",
        "until_s",
        "untried",
    )

    def __init__(
        self,
        owner: Waiters,
        topics: Sequence[Topic],
        max: int,
        lease_ms: int | None,
        until_s: float | None,
        fails_fast: bool,
        by: str | None,
        done: Done,
    ) -> None:
        self.owner = owner
        self.done = done
        self.answered = False  # or cancelled
        self.topics = topics
        self.max = max
        self.lease_ms = lease_ms
        self.until_s = until_s
        self.by = by
        self.actor = by or actor_name()
        self.fails_fast = fails_fast or until_s is None
        self.queues: list[PartitionQueue] = []
        self.untried: list[PartitionQueue] = []  # queues to ask in next, best first; empty: parked
        self.asking: PartitionQueue | None = None  # the queue whose call includes this waiter
        self.jobs: list[LeasedJob] = []
        self.timed_out = False
        self.timeout: Handle | None = None  # set once it parks
        self.error: BaseException | None = None  # of the last call, if it failed

    @property
    def lacks(self) -> int:
        return self.max - len(self.jobs)

    @property
    def over(self) -> bool:
        """Time is up: answer as soon as no call includes it."""
        return self.timed_out or (self.until_s is not None and self.owner.timer.time() >= self.until_s)

    @property
    def is_full(self) -> bool:
        """Whether its jobs are as large as an answer may be."""
        return sum([len(job.body) for job in self.jobs]) >= PULL_BYTES

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
        if not self.lacks or (more and self.jobs) or (filled and self.is_full):
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
        self.owner.outbox.tell(self.done, self.error if self.error is not None and not self.jobs else self.jobs)

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
        queues, self.queues = self.queues, []
        for queue in queues:
            del queue.waiters[self]
            queue.left()
