"""Watches a store: checks it again and again, and keeps its guards up to date.

    every 5 s             INFO of all primaries, the store's clock, and whether its data is still the same
    every second          the same, while a guard holds
    every half a second   the same, while the store does not answer

When a call is refused or fails, the next check is a second later. A guard that a call has shown holds at once.

So an idle store is queried once every 5 s. The state of the embedded store is read on demand, because its supervisor
may be another process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from ..engine.errors import DuelineError, StoreReplaced, Unavailable
from ..engine.guards import Guard
from ..event_log import EventLog
from ..store.valkey.embedded import LOW_SPACE_MAXMEMORY, Status, StoreState
from ..store.valkey.embedded_extent import accepted_loss
from ..store.valkey.store import WrongStore
from .access import StoreAccess
from .facts import NodeFacts, StoreFacts, is_full, may_evict, mismatches, shard_words
from .guards import Reason

EVERY_S = 5.0
GUARDED_S = 1.0  # between checks while a guard holds
AGAIN_S = 0.5  # between checks while the store is down, to be ready again soon after it is back
SHOWN_LOSSES = 20  # lost partitions that are named
LOSS_SHOWN_MS = 7 * 86_400_000  # how long the warning stays after an operator accepted the loss; the metric stays


class StoreWatch:
    """What is known about a store. `up`: it answers."""

    def __init__(self, access: StoreAccess) -> None:
        self.facts: StoreFacts | None = None
        self.up = False
        self.guards = access.guards
        self._access = access
        self._durability = access.location.durability
        self._wrong: str | None = None
        self._down: Reason | None = Reason("starting", "the store has not been checked yet")
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._log = EventLog("dueline.store")
        access.looked = self._looked
        access.guards.trouble = self._hurry.set
        if access.facts is not None:
            self._looked(access.facts)

    async def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="store-watch")

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- what is wrong ----------------------------------------------------------------------------------------------

    def reasons(self) -> list[Reason]:
        """Why the store cannot be used; empty if it can."""
        embedded = self._embedded()
        if embedded is not None and embedded.state in (StoreState.STARTING, StoreState.LOADING):
            return [Reason("loading", embedded.detail or "the store is starting")]
        if embedded is not None and embedded.state not in (StoreState.READY, StoreState.DISK_FULL):
            return [Reason("store_down", embedded.detail or "the store is not running")]
        if self._down is not None and (embedded is None or embedded.state is not StoreState.DISK_FULL):
            return [self._down]
        if self._wrong is not None:
            return [Reason("store_down", self._wrong)]
        return self._guarded()[0]

    def warnings(self) -> list[Reason]:
        """What an operator should know even though the store can be used."""
        found: list[Reason] = []
        embedded = self._embedded()
        accepted_ms = None if embedded is None else embedded.accepted_at_ms
        if embedded is not None and accepted_ms is not None and time.time() * 1000 < accepted_ms + LOSS_SHOWN_MS:
            found.append(Reason("data_loss", accepted_loss(embedded.lost_bytes, accepted_ms)))
        found += self._guarded()[1]
        epochs = self._access.store.epochs
        lost = [loss for partition, loss in epochs.losses.items() if partition is not None]
        found += [Reason("store_replaced", epochs.text(loss)) for loss in lost[:SHOWN_LOSSES]]
        if self._access.location.tls.warning is not None:
            found.append(Reason("store_unverified", self._access.location.tls.warning))
        return found

    def _guarded(self) -> tuple[list[Reason], list[Reason]]:
        return self.guards.reasons(
            frozenset({Guard.NOT_REPLICATED}) if self._access.location.accepts_degraded else frozenset()
        )

    def _embedded(self) -> Status | None:
        """The state of the embedded store, whose guards are known for certain."""
        status = self._access.location.status
        if status is None:
            return None
        low = f"the disk has {status.free_bytes or 0:,} bytes left (store.min_free_bytes)" if status.low_space else None
        gone = f"{status.missing_bytes:,} bytes of the append-only file are missing" if status.missing_bytes else None
        for guard, detail in ((Guard.DISK_LOW, low), (Guard.NOT_DURABLE, gone)):
            self.guards.known(guard, "embedded", detail)
        if status.state in (StoreState.DISK_FULL, StoreState.READY):  # it may start and end again on a full disk
            full = status.detail if status.state is StoreState.DISK_FULL else None
            self.guards.known(Guard.DISK_FULL, "embedded", full)
        return status

    # --- checks -----------------------------------------------------------------------------------------------------

    def _looked(self, found: StoreFacts | Unavailable) -> None:
        """Keep what a query of the store found, and log whether it serves."""
        before, embedded = self._down, self._embedded()
        if isinstance(found, StoreFacts):
            self._judge(found, embedded)
            self.facts = found
            self._down = None
        else:
            self._down = Reason(found.code, found.message)
        self.up = self._down is None
        if embedded is not None:
            return  # its supervisor logs it
        was_down = before is not None and before.code != "starting"
        if self._down is not None and not was_down:
            self._log.warning("the store is unavailable", reason=self._down.code, detail=self._down.message)
        elif self._down is None and was_down:
            self._log.info("the store is available again")

    def _judge(self, facts: StoreFacts, embedded: Status | None) -> None:
        """Tell the guards what a check has found."""
        found: dict[tuple[Guard, str], str] = {}
        for node in facts.nodes:
            for guard, detail in self._findings(facts, node, embedded):
                found[guard, node.node] = detail
        for one in facts.absent:
            found[Guard.SHARD_DOWN, one.node] = f"the shard {one.node} is unavailable ({one.message})"
        nodes = [node.node for node in facts.nodes]
        self.guards.checked(found, nodes, [*nodes, *(one.node for one in facts.absent)])

    def _findings(self, facts: StoreFacts, node: NodeFacts, embedded: Status | None) -> Iterator[tuple[Guard, str]]:
        """The guards that hold for a primary, by what it reports."""
        name, at, holds = shard_words(facts, node), node.node, self.guards.holds
        if (why := may_evict(facts, node)) is not None:
            yield Guard.EVICTION, why
        if node.role != "master":
            yield Guard.READ_ONLY, f"{name} is a {node.role}"
        if holds(Guard.CLOCK_STEP, at) and self._access.store.clock.stepped:
            yield Guard.CLOCK_STEP, f"the clock of {name} jumped; nothing is done until its time is confirmed"
        if not node.aof_ok or (not node.rdb_ok and holds(Guard.DISK_FULL, at)):
            yield Guard.DISK_FULL, f"{name} could not write {'a snapshot' if node.aof_ok else 'its append-only file'}"
        if self._durability == "fsync" and not node.aof:
            yield Guard.NOT_DURABLE, f"{name} has no append-only file"
        earlier = None if self.facts is None else self.facts.of(at)
        low_space = embedded is not None and (embedded.low_space or node.maxmemory_bytes <= LOW_SPACE_MAXMEMORY)
        if not low_space and is_full(node, earlier, holds(Guard.STORE_FULL, at)):
            yield Guard.STORE_FULL, f"{name} uses {node.memory_bytes:,} of {node.maxmemory_bytes:,} bytes"
        if not node.prompt_replicas and (self._durability == "replicated" or holds(Guard.NOT_REPLICATED, at)):
            late = "has no replica that answers in time" if node.replicas else "has no connected replica"
            yield Guard.NOT_REPLICATED, f"the primary {at} {late}"

    async def _check(self) -> None:
        """Query the store, check that it is still ours, and read its clock."""
        wrong = replaced = None
        try:
            wrong = next(mismatches(await self._access.look()), None)
            if not self.guards.holds(Guard.READ_ONLY):  # otherwise the check would wait for a primary
                await self._access.check()
        except (WrongStore, DuelineError) as error:
            if isinstance(error, StoreReplaced):
                replaced = self._access.store.epochs.losses[None].what
            elif isinstance(error, WrongStore):
                wrong = str(error)
            else:  # unavailable (`_looked`), or the connection was just lost: the next check reports it
                return
        if self.facts is not None:
            self.guards.known(Guard.STORE_REPLACED, self.facts.nodes[0].node, replaced)
        if wrong != self._wrong:
            self._wrong = wrong
            if wrong is None:
                self._log.info("the server is ready again")
            else:
                self._log.warning("the server is not ready", reason="store_down", detail=wrong)

    async def _run(self) -> None:
        while True:
            await self._rest()
            try:
                await self._check()
            except Exception:
                self._log.exception("the check of the store failed")

    async def _rest(self) -> None:
        """Wait for the next check. A call that fails ends the long wait, and shortens the next one."""
        if not self.up:
            await asyncio.sleep(AGAIN_S)
            return
        if self.guards:
            await asyncio.sleep(GUARDED_S)
            self._hurry.clear()
            return
        try:
            async with asyncio.timeout(EVERY_S):
                await self._hurry.wait()
            self._hurry.clear()
            await asyncio.sleep(GUARDED_S)
        except TimeoutError:
            pass
