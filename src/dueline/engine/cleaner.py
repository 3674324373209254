"""Clean-up: tidies the partitions that the directory has hints for, and removes unused topics.

Clean-up only records what is already true, so nobody waits for it. Any process may do it. If a process dies after
taking a hint, the hint becomes due again after 30 s. A hint is written before its partition learns of it, and the next
hint is written before the current one is finished. A crash may thus leave an extra hint, but never a missing one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .directory import Hint
from .job import Partition
from .metrics import EngineMetrics
from .registrar import Registrar
from .rounds import Rounds
from .store import Store
from .timer import Timer

ROUND_S = 30.0  # check at least this often, because other processes may have left hints
TAKE = 20
HOLD_MS = 30_000
STEPS_PER_PARTITION = 50
GRAIN_MS = 10_000  # hints are rounded up to this, so that a busy partition is tidied in batches


class Cleaner:
    """The clean-up loop. `run_once` does what is due and returns how long the loop may sleep."""

    def __init__(
        self,
        store: Store,
        registrar: Registrar,
        metrics: EngineMetrics,
        timer: Timer,
        idle_round_s: float = 600.0,
        round_s: float = ROUND_S,
    ) -> None:
        self._store = store
        self._registrar = registrar
        self._metrics = metrics
        self._timer = timer
        self._idle_round_s = idle_round_s
        self._round_s = round_s
        self.died: Callable[[str, str], None] | None = None  # called with topics where dead jobs were found
        self._notes: dict[Partition, int] = {}
        self._earliest_ms: int | None = None  # the earliest hint that this process knows of
        self._taken_at_s: float | None = None
        self._idle_at_s = timer.time() + idle_round_s
        self._rounds = Rounds(self.run_once, timer, "clean-up failed")

    def noted(self, partition: Partition, at_ms: int) -> None:
        """This partition has work at that time, and the directory has no hint for it yet."""
        known = self._notes.get(partition)
        self._notes[partition] = at_ms if known is None else min(known, at_ms)
        self._rounds.wake()

    def start(self) -> None:
        self._rounds.start()

    async def stop(self) -> None:
        """End after the current step. Hints already taken become due again by themselves."""
        await self._rounds.stop()

    async def run_once(self) -> float:
        """Write new hints, tidy what is due, remove unused topics. Returns the seconds until the next round."""
        await self._write_notes()
        now_s = self._timer.time()
        known = self._earliest_ms is not None and self._earliest_ms <= self._store.now_ms()
        if known or self._taken_at_s is None or now_s - self._taken_at_s >= self._round_s:
            await self._tidy()
        if self._timer.time() >= self._idle_at_s:
            self._idle_at_s = self._timer.time() + self._idle_round_s
            await self._registrar.remove_idle()
        return self._rest_s()

    def _rest_s(self) -> float:
        now_s = self._timer.time()
        ends_s = [(self._taken_at_s or now_s) + self._round_s, self._idle_at_s]
        if self._earliest_ms is not None:
            ends_s.append(now_s + (self._earliest_ms - self._store.now_ms()) / 1000)
        return max(0.0, min(ends_s) - now_s)

    async def _write_notes(self) -> None:
        while self._notes:
            batch = [Hint(partition, at_ms) for partition, at_ms in list(self._notes.items())[:TAKE]]
            await self._note(batch)
            for hint in batch:
                if self._notes.get(hint.partition) == hint.at_ms:
                    del self._notes[hint.partition]
                await self._store.agenda_noted(hint.partition, hint.at_ms)

    async def _note(self, hints: Sequence[Hint]) -> None:
        await self._store.directory.note(hints)
        for hint in hints:
            if self._earliest_ms is None or hint.at_ms < self._earliest_ms:
                self._earliest_ms = hint.at_ms

    async def _tidy(self) -> None:
        """Take due hints until none is left."""
        while not self._rounds.stopping:
            self._taken_at_s = self._timer.time()
            hints, self._earliest_ms = await self._store.directory.take(TAKE, HOLD_MS)
            for hint in hints:
                await self._tidy_partition(hint)
            if len(hints) < TAKE:
                return

    async def _tidy_partition(self, hint: Hint) -> None:
        next_ms: int | None = None
        for _ in range(STEPS_PER_PARTITION):
            cleaned = await self._store.clean(hint.partition)
            if cleaned.expired or cleaned.exhausted or cleaned.dead_trimmed:
                self._metrics.of(hint.partition.namespace, hint.partition.topic).count_cleaned(cleaned)
            if (cleaned.expired or cleaned.exhausted) and self.died is not None:
                self.died(hint.partition.namespace, hint.partition.topic)
            next_ms = None if cleaned.next_ms is None else -(-cleaned.next_ms // GRAIN_MS) * GRAIN_MS
            if not cleaned.more:
                break
        if next_ms is not None:
            await self._note([Hint(hint.partition, next_ms)])
        if next_ms != hint.at_ms:
            await self._store.directory.finish([hint])
