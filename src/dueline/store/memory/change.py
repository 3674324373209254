"""The context of one changing operation of the reference store. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...engine.job import State
from ...engine.store import Code, Outcome, SendOutcome
from .partitions import PartitionState, RecordSet
from .records import Record, Status

NOT_FOUND = Outcome(Code.NOT_FOUND)


@dataclass(slots=True)
class Change:
    """A changing operation in progress: its partition, its time, the records it wrote, and other clean-up work that it
    created."""

    state: PartitionState
    now_ms: int
    history_budget: int = 0
    history_used: int | None = None  # None: not counted yet
    touched: list[Record] = field(default_factory=list[Record])
    work_ms: list[int] = field(default_factory=list[int])

    @property
    def record_set(self) -> RecordSet:
        return self.state.record_set

    def moved(self) -> SendOutcome:
        """The answer of a closed partition to a send with a new id."""
        return SendOutcome(Code.MOVED, State.READY, 0, self.state.closed or 0)

    def find(self, id: str) -> tuple[Record, Status] | Outcome:
        """The job with this id, or the refusal if it belongs to another topic. A partition without a topic accepts jobs
        of all topics."""
        found = self.record_set.find(id, self.now_ms)
        if found is None:
            return NOT_FOUND
        topic = self.state.partition.topic
        return found if found[0].topic == topic or not topic else Outcome(Code.ELSEWHERE)
