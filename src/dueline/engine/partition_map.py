"""Which partition an id belongs to. No I/O.

Each id hashes to one of 1,024 cells, and each partition of a topic has a range of cells. A topic that gets more
partitions gets a whole new set, under the numbers that follow: the map (first 0, count 1) is followed by (first 1,
count 8). The partitions of the previous map are old: they take no new ids, and serve the jobs that they hold until none
is left (engine.expansion). So a partition is either current or old as a whole.
"""

from __future__ import annotations

import msgspec

from .errors import Expanding, InvalidField
from .ids import partition_of
from .limits import CELLS


class PartitionMap(msgspec.Struct, frozen=True):
    """`first`, `count`: the current partitions. `old`: how many of the numbers before `first` are old partitions."""

    first: int = 0
    count: int = 1
    old: int = 0

    @property
    def numbers(self) -> range:
        """All that may hold jobs, the old ones first."""
        return range(self.first - self.old, self.first + self.count)

    @property
    def ever(self) -> range:
        """All numbers that this map and those before it have used."""
        return range(self.first + self.count)

    def index_of(self, text: str) -> int:
        """The index of the current partition of an id or a merge key."""
        return partition_of(text, self.count)

    def old_index_of(self, text: str) -> int:
        """The index of the old partition of an id or a merge key."""
        return partition_of(text, self.old)

    def old_cells(self, index: int) -> int:
        """How many cells belong to an old partition."""
        return -(-(index + 1) * CELLS // self.old) + (-index * CELLS // self.old)

    def expanded(self, count: int) -> PartitionMap:
        """The next map. Raises InvalidField for fewer partitions, Expanding while there are old ones."""
        if count == self.count:
            return self
        if count < self.count:
            raise InvalidField(f"has {self.count} partitions; their number can only grow", "partitions")
        if self.old:
            raise Expanding(
                f"partitions were added before, and {self.old} old ones may still hold jobs: only one expansion at a "
                "time",
                "partitions",
            )
        return PartitionMap(self.first + self.count, count, self.count)

    def completed(self) -> PartitionMap:
        """The map without its old partitions."""
        return PartitionMap(self.first, self.count)
