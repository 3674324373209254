"""Can this process serve? `/healthz`: the process is alive. `/readyz`: it accepts sends and pulls, or why it does not.

    not ready (503)   starting loading store_down disk_full eviction not_durable not_replicated clock_step draining
                      store_replaced (the whole store)
    warnings (200)    data_loss store_full disk_low store_unverified shard_down
                      not_replicated (store.degraded = "accept"), store_replaced (some partitions)

A warning leaves the process ready. A full store in particular must stay reachable: only consumers can empty it. So must
a Cluster that has lost a shard: the others serve.

An idle server queries the store only once every 5 s. The state of the embedded store is read on demand, because its
supervisor may be another process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from ..engine.errors import DuelineError, Unavailable
from ..event_log import EventLog
from ..runtime.access import StoreAccess
from ..runtime.facts import StoreFacts, full_text, is_full, refusals
from ..store.valkey.embedded import Status, StoreState
from ..store.valkey.embedded_extent import accepted_loss
from ..store.valkey.store import WrongStore
from ..store_address import Kind

EVERY_S = 5.0
LOSS_SHOWN_MS = 7 * 86_400_000  # how long the warning stays after an operator accepted the loss; the metric stays
SHOWN_LOSSES = 20  # lost partitions that are named
AGAIN_S = 0.5  # between queries while the store is down, to be ready again soon after it is back


class Phase(Enum):
    """The phase of this process's life cycle."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class Reason(msgspec.Struct, frozen=True):
    """Why a process is not ready, or a warning for the operator."""

    code: str
    message: str


class Health:
    """What is known about this process and its store. `durability` is the promised level; `accepts_degraded`: changes
    are answered even if no replica has them."""

    def __init__(self, access: StoreAccess, durability: str, accepts_degraded: bool = False) -> None:
        self.phase = Phase.STARTING
        self.facts: StoreFacts | None = None
        self.up = False
        self._full: frozenset[str] = frozenset()  # primaries that refuse sends
        self.changed: Callable[[Sequence[Reason]], None] | None = None  # called when the reasons change
        self._reported: list[Reason] = []
        self._access = access
        self._access.looked = self._looked
        self._durability = durability
        self._accepts_degraded = accepts_degraded
        self._wrong: Reason | None = None
        self._trouble: Reason | None = Reason("starting", "the store has not been checked yet")
        self._task: asyncio.Task[None] | None = None
        self._log = EventLog("dueline.health")

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._watch(), name="health")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    @property
    def full(self) -> bool:
        """Whether a part of the store refuses sends because its memory is full."""
        return bool(self._full)

    def _embedded(self) -> Status | None:
        return self._access.location.status

    def _looked(self, found: StoreFacts | Unavailable) -> None:
        """Keep what a query of the store found, and log whether it serves."""
        before = self._trouble
        if isinstance(found, StoreFacts):
            self._judge_memory(found)
            self._judge_shards(found)
            self.facts = found
            self._trouble = None
        else:
            self._trouble = Reason(found.code, found.message)
        self.up = self._trouble is None
        is_first = before is not None and before.code == "starting" and self._embedded() is None
        if (before is None or is_first) and self._trouble is not None:
            self._log.warning("the store is unavailable", reason=self._trouble.code, detail=self._trouble.message)
        elif before is not None and not is_first and before.code != "starting" and self._trouble is None:
            self._log.info("the store is available again")

    def _judge_memory(self, facts: StoreFacts) -> None:
        """Record and log which primaries are full. The embedded store's supervisor logs a full disk."""
        embedded = self._embedded()
        low_space = embedded is not None and embedded.low_space
        before = self._full
        full: set[str] = set()
        for node in facts.nodes:
            earlier = None if self.facts is None else self.facts.of(node.node)
            if not low_space and is_full(node, earlier, node.node in before):
                full.add(node.node)
                if node.node not in before:
                    self._log.warning(full_text(node, facts.address.kind is Kind.CLUSTER))
            elif node.node in before:
                self._log.info("the store has room again", used_bytes=node.memory_bytes)
        self._full = frozenset(full)

    def _judge_shards(self, facts: StoreFacts) -> None:
        """Log which shards of a Cluster have become unavailable or available."""
        before = set() if self.facts is None else {one.node for one in self.facts.absent}
        for one in facts.absent:
            if one.node not in before:
                self._log.warning("a shard is unavailable", shard=one.node, reason=one.code, detail=one.message)
        for node in sorted(before - {one.node for one in facts.absent}):
            self._log.info("a shard is available again, or another node serves its slots", shard=node)

    def reasons(self) -> list[Reason]:
        """Why this process is not ready; empty if it is."""
        found: list[Reason] = []
        if self.phase is Phase.DRAINING:
            found.append(Reason("draining", "the server is stopping"))
        embedded = self._embedded()
        if embedded is not None and embedded.state is StoreState.DISK_FULL:
            found.append(Reason("disk_full", embedded.detail))
        elif embedded is not None and embedded.state in (StoreState.STARTING, StoreState.LOADING):
            found.append(Reason("loading", embedded.detail or "the store is starting"))
        elif embedded is not None and embedded.state is not StoreState.READY:
            found.append(Reason("store_down", embedded.detail or "the store is not running"))
        elif self._trouble is not None:
            found.append(self._trouble)
        elif self.phase is Phase.STARTING:
            found.append(Reason("starting", "the server is starting"))
        if self._wrong is not None and not found:
            found.append(self._wrong)
        found += self._replaced(is_whole=True) if not found else []
        if embedded is not None and embedded.missing_bytes and not found:
            text = f"{embedded.missing_bytes:,} bytes of the append-only file are missing; it is being rewritten"
            found.append(Reason("not_durable", text))
        if self.facts is not None and not found:
            found += self._about(self.facts)
        return found

    def warnings(self) -> list[Reason]:
        """What an operator should know even though this process is ready."""
        found: list[Reason] = []
        embedded = self._embedded()
        accepted_ms = None if embedded is None else embedded.accepted_at_ms
        if embedded is not None and accepted_ms is not None and time.time() * 1000 < accepted_ms + LOSS_SHOWN_MS:
            found.append(Reason("data_loss", accepted_loss(embedded.lost_bytes, accepted_ms)))
        if embedded is not None and embedded.low_space:
            text = f"sends are refused: the disk has {embedded.free_bytes or 0:,} bytes left (store.min_free_bytes)"
            found.append(Reason("disk_low", text))
        elif self.facts is not None:
            is_cluster = self.facts.address.kind is Kind.CLUSTER
            full = [node for node in self.facts.nodes if node.node in self._full]
            found += [Reason("store_full", full_text(node, is_cluster)) for node in full]
        if self.facts is not None and self._trouble is None:
            for one in self.facts.absent:
                text = f"the shard {one.node} is unavailable ({one.message}); calls for its topics are refused"
                found.append(Reason("shard_down", text))
            if self._accepts_degraded:
                found += self._unreplicated(self.facts)
        found += self._replaced(is_whole=False)
        if self._access.location.tls.warning is not None:
            found.append(Reason("store_unverified", self._access.location.tls.warning))
        return found

    def _replaced(self, is_whole: bool) -> list[Reason]:
        """What the store has lost: the whole store, or partitions."""
        epochs = self._access.store.epochs
        lost = [loss for place, loss in epochs.losses.items() if (place is None) == is_whole]
        return [Reason("store_replaced", epochs.text(loss)) for loss in lost[:SHOWN_LOSSES]]

    def _unreplicated(self, facts: StoreFacts) -> list[Reason]:
        """The primaries without a replica, if changes need one."""
        if self._durability != "replicated":
            return []
        does = "changes are accepted without one" if self._accepts_degraded else "changes are refused"
        alone = [node.node for node in facts.nodes if not node.replicas]
        return [Reason("not_replicated", f"the primary {node} has no connected replica; {does}") for node in alone]

    def _about(self, facts: StoreFacts) -> list[Reason]:
        found = [Reason(code, sentence) for code, sentence in refusals(facts)]
        if self._durability == "fsync" and not (facts.aof and facts.aof_ok):
            found.append(Reason("not_durable", "the store does not write its append-only file"))
        if not self._accepts_degraded:
            found += self._unreplicated(facts)
        if self._access.store.clock.stepped:
            found.append(Reason("clock_step", "the store's clock jumped; nothing is done until the time is confirmed"))
        return found

    async def _look(self) -> None:
        """Query the store, check that it is still ours, and read its clock."""
        try:
            await self._access.look()
            await self._access.check()
            self._wrong = None
        except WrongStore as error:
            self._wrong = Reason("store_down", str(error))
        except DuelineError:
            pass  # the store is unavailable (`_looked`), or the connection was just lost: the next query reports it

    def _tell(self) -> None:
        """Log changes of readiness since the last call. `_looked` logs a store that is down."""
        if self.phase is Phase.DRAINING:
            return
        before, self._reported = self._reported, self.reasons()
        if self._reported == before:
            return
        codes = {reason.code for reason in before}
        for reason in self._reported if self.up else ():
            if reason.code not in codes:
                self._log.warning("the server is not ready", reason=reason.code, detail=reason.message)
        if self.up and not self._reported:
            self._log.info("the server is ready again")
        if self.changed is not None:
            self.changed(self._reported)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S if self.up else AGAIN_S)
            try:
                await self._look()
                self._tell()
            except Exception:
                self._log.exception("the health check failed")
