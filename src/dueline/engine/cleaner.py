"""The one background loop: tidies lines by the directory's hints and removes unused topics (STORE 18, 19, 47).

Clean-up only writes down what is already true, so nobody waits for it. Any process may do it; a hint that was taken
comes back after 30 s if its taker died. A hint is written before the line is told that it exists, and the next hint
before the taken one is finished: a crash anywhere leaves a hint too many, never one too few.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from .errors import DuelineError
from .figures import Figures
from .job import Line
from .registrar import Registrar
from .store import Hint, Store
from .timer import Handle, Timer

ROUND_S = 30.0  # other processes may have left hints: look at least this often
TAKE = 20
HOLD_MS = 30_000
STEPS_PER_LINE = 50
GRAIN_MS = 10_000  # hints are rounded up to this, so that a busy line is tidied in batches
BACK_OFF_S = 1.0


class Cleaner:
    """start, stop, and `run_once`, which does what is due and says how long it may sleep."""

    def __init__(
        self,
        store: Store,
        registrar: Registrar,
        figures: Figures,
        timer: Timer,
        idle_round_s: float = 600.0,
        round_s: float = ROUND_S,
    ) -> None:
        self._store = store
        self._registrar = registrar
        self._figures = figures
        self._timer = timer
        self._idle_round_s = idle_round_s
        self._round_s = round_s
        self.died: Callable[[str, str], None] | None = None  # told of topics where dead jobs were found
        self._notes: dict[Line, int] = {}
        self._earliest_ms: int | None = None  # of the hints this process knows of
        self._taken_at_s: float | None = None
        self._idle_at_s = timer.time() + idle_round_s
        self._wake = asyncio.Event()
        self._back_off = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def noted(self, line: Line, at_ms: int) -> None:
        """There is work on this line at that time which the directory does not know yet."""
        known = self._notes.get(line)
        self._notes[line] = at_ms if known is None else min(known, at_ms)
        self._wake.set()

    async def start(self) -> None:
        if self._task is None and not self._stopping:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End after the step that is under way; hints that were taken come back by themselves."""
        self._stopping = True
        self._wake.set()
        self._back_off.set()
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while not self._stopping:
            try:
                await self._sleep(self._wake, await self.run_once())
            except Exception as error:
                if not isinstance(error, DuelineError):
                    context = {"message": "clean-up failed", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(context)
                self._back_off.clear()
                await self._sleep(self._back_off, BACK_OFF_S)

    async def _sleep(self, event: asyncio.Event, sleep_s: float) -> None:
        if self._stopping:
            return
        handle: Handle = self._timer.call_later(sleep_s, event.set)
        await event.wait()
        handle.cancel()

    async def run_once(self) -> float:
        """Write down notes, tidy what is due, look for unused topics; the seconds until there may be more."""
        self._wake.clear()
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
            batch = [Hint(line, at_ms) for line, at_ms in list(self._notes.items())[:TAKE]]
            await self._note(batch)
            for hint in batch:
                if self._notes.get(hint.line) == hint.at_ms:
                    del self._notes[hint.line]
                await self._store.agenda_noted(hint.line, hint.at_ms)

    async def _note(self, hints: Sequence[Hint]) -> None:
        await self._store.directory.note(hints)
        for hint in hints:
            if self._earliest_ms is None or hint.at_ms < self._earliest_ms:
                self._earliest_ms = hint.at_ms

    async def _tidy(self) -> None:
        """Take due hints until there is none left that is due now."""
        while not self._stopping:
            self._taken_at_s = self._timer.time()
            hints, self._earliest_ms = await self._store.directory.take(TAKE, HOLD_MS)
            for hint in hints:
                await self._tidy_line(hint)
            if len(hints) < TAKE:
                return

    async def _tidy_line(self, hint: Hint) -> None:
        next_ms: int | None = None
        for _ in range(STEPS_PER_LINE):
            cleaned = await self._store.clean(hint.line)
            if cleaned.expired or cleaned.exhausted or cleaned.dead_trimmed:
                self._figures.of(hint.line.namespace, hint.line.topic).count_cleaned(cleaned)
            if (cleaned.expired or cleaned.exhausted) and self.died is not None:
                self.died(hint.line.namespace, hint.line.topic)
            next_ms = None if cleaned.next_ms is None else -(-cleaned.next_ms // GRAIN_MS) * GRAIN_MS
            if not cleaned.more:
                break
        if next_ms is not None:
            await self._note([Hint(hint.line, next_ms)])
        if next_ms != hint.at_ms:
            await self._store.directory.finish([hint])
