"""How late jobs start in an otherwise idle worker.

All workers run at once, each with its defaults; its polling interval is part of the result. All jobs are sent in
advance and come due one by one, at random moments and in random order. So no two are due at the same time, and all
contestants are measured under the same conditions.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from ..broken import Broken
from ..report import percentile
from .contestants import Contestant
from .processes import Producer, worker

READY_S = 60.0
AHEAD_S = 6.0  # time for the sends, before the first job is due
GAP_S = (0.15, 0.45)  # between any two jobs
PATIENCE_S = 30.0  # after the last job


class Lateness(msgspec.Struct, frozen=True):
    """The lateness of one contestant's jobs in ms; negative if a job started too early."""

    late_ms: list[float]
    missing: int

    def at(self, share: float) -> float | None:
        return percentile(self.late_ms, share) if self.late_ms else None

    @property
    def early(self) -> int:
        """How many jobs started early. Half a millisecond is tolerated, because due times are rounded."""
        return sum(late < -0.5 for late in self.late_ms)


def measure(
    producers: Sequence[Producer],
    urls: Mapping[str, str],
    variables: Mapping[str, Mapping[str, str]],
    jobs: int,
    place: Path,
) -> Mapping[str, Lateness]:
    """The lateness by contestant. `variables` are each one's environment, with the file that its worker writes."""
    with contextlib.ExitStack() as stack:
        for producer in producers:
            name = producer.contestant.name
            log = place / f"{producer.contestant.module}.worker.log"
            stack.enter_context(worker(producer.contestant, urls[name], variables[name], log))
        for producer in producers:
            _wait_until_it_works(producer, record_of(place, producer.contestant), place)
        due_ms = _moments([producer.contestant.name for producer in producers], jobs)
        for producer in producers:
            producer.ask(do="due", at_ms=due_ms[producer.contestant.name])
        last_s = max(max(moments) for moments in due_ms.values()) / 1000
        return {
            producer.contestant.name: _read(
                record_of(place, producer.contestant), due_ms[producer.contestant.name], last_s
            )
            for producer in producers
        }


def record_of(place: Path, contestant: Contestant) -> Path:
    """The file to which a worker writes when each job started."""
    return place / f"{contestant.module}.record"


def _moments(names: Sequence[str], jobs: int) -> dict[str, list[int]]:
    """The due times of each contestant's jobs."""
    chance = random.Random(7)
    turns = [name for name in names for _ in range(jobs)]
    chance.shuffle(turns)
    found: dict[str, list[int]] = {name: [] for name in names}
    moment_s = time.time() + AHEAD_S
    for name in turns:
        moment_s += chance.uniform(*GAP_S)
        found[name].append(round(moment_s * 1000))
    return found


def _wait_until_it_works(producer: Producer, record: Path, place: Path) -> None:
    producer.ask(do="due", at_ms=[round(time.time() * 1000) + 100])
    until_s = time.monotonic() + READY_S
    while not record.exists():
        if time.monotonic() > until_s:
            log = place / f"{producer.contestant.module}.worker.log"
            raise Broken(f"{producer.contestant.name}'s worker did nothing: {log.read_text(errors='replace')[-1500:]}")
        time.sleep(0.1)


def _read(record: Path, due_ms: Sequence[int], last_s: float) -> Lateness:
    """Read the record, once it is complete or the time is over."""
    wanted = set(due_ms)
    while True:
        lines = [line.split() for line in record.read_text().splitlines()]
        began = {int(due): float(at) for due, at in reversed(lines) if int(due) in wanted}  # the first start counts
        if len(began) == len(wanted) or time.time() > last_s + PATIENCE_S:
            late = [at - due for due, at in sorted(began.items())]
            return Lateness(late, len(wanted) - len(began))
        time.sleep(0.2)
