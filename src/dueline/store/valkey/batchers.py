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


def slot_of(variant: int, lane: int) -> str:
    """The slot of a call. Calls in flight at the same time have different slots (`attempts`)."""
    return f"{variant or ''}{'b' * lane}"


class Batchers:
    """`queue_of`: the limit of a namespace's queued jobs. `hook`: where outcomes are reported."""

    def __init__(self, limits: Limits, queue_of: Callable[[str], QueueLimit | None], hook: OutcomeHook) -> None:
        self._limits = limits
        self._queue_of = queue_of
        self._hook = hook
        self._made: dict[tuple[str, Partition, int], Batcher[Any, Any]] = {}

    def of(
        self, name: str, partition: Partition, variant: int, make: Callable[[Partition, int], Run]
    ) -> Batcher[Any, Any]:
        """The batcher of an operation on a partition. Calls with different `variant` cannot share a script call. `make`
        creates the function that makes the script call."""
        key = (name, partition, variant)
        batcher = self._made.get(key)
        if batcher is None:
            batcher = self._made[key] = Batcher(
                make(partition, variant),
                requests.id_of,
                requests.body_size if name in ("send", "append", "edit") else lambda item: 64,
                partial(self._rests, key),
                self._limits,
                LANES.get(name, 1),
                None if name in FINISHING else self._queue_of(partition.namespace),
                self._hook,
                None
                if name == "find"
                else lambda outcomes, items, results, by: outcomes.done(name, partition, items, results, by),
            )
        return batcher

    def _rests(self, key: tuple[str, Partition, int]) -> None:
        if len(self._made) > IDLE:
            del self._made[key]
