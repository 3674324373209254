"""The batchers of a store: one per operation, partition and variant."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...engine.completion import Done
from ...engine.job import Partition
from ...engine.limits import Limits
from ...engine.outcomes import OutcomeHook
from ...engine.queue_limit import QueueLimit
from . import requests
from .batching import Batcher

FINISHING = frozenset({"ack", "release", "extend", "find"})  # never refused because other jobs of the namespace wait
LANES = {"send": 2}  # calls in flight per partition
IDLE = 4096  # idle batchers are kept as long as there are no more

Run = Callable[[list[Any], int, Done], object]
"""run(items, lane, done) of a Batcher."""

MakeRun = Callable[[Partition, int], Run]
"""The `run` for a partition and a variant."""


def slot_of(variant: int, lane: int) -> str:
    """The slot of a call. Calls in flight at the same time have different slots (`attempts`)."""
    return f"{variant or ''}{'b' * lane}"


class Batchers(dict[tuple[Partition, int], Batcher[Any, Any]]):
    """Those of one operation, by partition and variant: calls with different variants cannot share a script call. One
    is made when it is first asked for."""

    __slots__ = ("_all", "_make", "_name")

    def __init__(self, name: str, make: MakeRun, all: AllBatchers) -> None:
        super().__init__()
        self._name = name
        self._make = make
        self._all = all

    def __missing__(self, key: tuple[Partition, int]) -> Batcher[Any, Any]:
        name, partition, all = self._name, key[0], self._all
        batcher = self[key] = Batcher(
            self._make(*key),
            requests.id_of,
            requests.body_size if name in ("send", "append", "edit") else lambda item: 64,
            partial(self._rests, key),
            all.limits,
            LANES.get(name, 1),
            None if name in FINISHING else all.queue_of(partition.namespace),
            all.hook,
            None
            if name == "find"
            else lambda outcomes, items, results, by: outcomes.done(name, partition, items, results, by),
        )
        all.made += 1
        return batcher

    def _rests(self, key: tuple[Partition, int]) -> None:
        if self._all.made > IDLE:
            self._all.made -= 1
            del self[key]


class AllBatchers:
    """`queue_of`: the limit of a namespace's queued jobs. `hook`: where outcomes are reported."""

    def __init__(self, limits: Limits, queue_of: Callable[[str], QueueLimit | None], hook: OutcomeHook) -> None:
        self.limits = limits
        self.queue_of = queue_of
        self.hook = hook
        self.made = 0
        self._by_name: dict[str, Batchers] = {}

    def of(self, name: str, make: MakeRun) -> Batchers:
        """The batchers of an operation. `make` creates the function that makes the script call."""
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = Batchers(name, make, self)
        return found
