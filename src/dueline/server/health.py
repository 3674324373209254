"""Can this process serve? `/healthz`: the process is alive. `/readyz`: it accepts sends and pulls, or why it does not.

    not ready (503)   starting loading store_down draining; a guard that stops all shards (engine.guards)
    warnings (200)    data_loss store_unverified; a guard that stops some shards, or only sends

A warning leaves the process ready. A full store in particular must stay reachable: only consumers can empty it. So must
a Cluster of which one shard is down, full or without a replica: the others serve.
"""

from __future__ import annotations

from enum import Enum

from ..runtime.guards import Reason
from ..runtime.watch import StoreWatch

__all__ = ["Health", "Phase", "Reason"]


class Phase(Enum):
    """The phase of this process's life cycle."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class Health:
    """What is known about this process and its store."""

    def __init__(self, watch: StoreWatch) -> None:
        self.phase = Phase.STARTING
        self.watch = watch

    @property
    def up(self) -> bool:
        """Whether the store answers."""
        return self.watch.up

    def reasons(self) -> list[Reason]:
        """Why this process is not ready; empty if it is."""
        found = self.watch.reasons()
        if self.phase is Phase.DRAINING:
            return [Reason("draining", "the server is stopping"), *found]
        if self.phase is Phase.STARTING and not found:
            return [Reason("starting", "the server is starting")]
        return found

    def warnings(self) -> list[Reason]:
        """What an operator should know even though this process is ready."""
        return self.watch.warnings()
