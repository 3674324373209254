"""One changing operation of the reference store: what its pieces are told. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...engine.store import Code, Outcome
from .partitions import PartitionState, Shelf
from .records import Record, Seen

NOT_FOUND = Outcome(Code.NOT_FOUND)


@dataclass(slots=True)
class Change:
    """A changing operation under way: where, when, and which records it wrote."""

    state: PartitionState
    now_ms: int
    touched: list[Record] = field(default_factory=list[Record])

    @property
    def shelf(self) -> Shelf:
        return self.state.shelf

    def find(self, id: str) -> tuple[Record, Seen] | Outcome:
        """The job under this id, or why it is not this partition's to change. A partition without a topic is
        everybody's."""
        found = self.shelf.find(id, self.now_ms)
        if found is None:
            return NOT_FOUND
        topic = self.state.partition.topic
        return found if found[0].topic == topic or not topic else Outcome(Code.ELSEWHERE)
