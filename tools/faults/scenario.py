"""What one scenario of the fault suite showed, in one format: a line for people, an object for docs/data/faults.jsonl.

Every scenario of `tests/faults` that belongs to the suite (`make test-faults`) ends with one `Scenario`. Most come from
a history (`judged`); a test with figures of its own fills the fields itself. `failures` is what a test asserts.
`misses` is what depends on the speed of the machine: it is shown, and judged by whoever reads the results of a quiet
machine, never asserted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from dueline.testing.checker import Kind, Report, check
from dueline.testing.history import AnyEvent, Fault, Final, Outcome, Send

DOUBLED = (
    *(Kind.AFTER_DONE, Kind.ALIVE_AFTER_DONE, Kind.ENDED_TWICE, Kind.TWO_LEASES),
    *(Kind.STALE_TOKEN_OK, Kind.NUMBER_REPEATED, Kind.CREATED_TWICE),
)
MOST_OTHERS = 5  # of the other violations are spelled out


class Scenario(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one scenario.

    `name` is what the table shows; scenarios are sorted by it. `operations`: all calls of clients. `unknowns`: calls
    whose outcome their client does not know. `refused`: calls that were certainly not done because the server or the
    store was unavailable. `doubled`: deliveries or jobs that must not exist beside others. `gap_ms`: the longest time
    without an accepted send. `wake_ms`: from the return of the service to the answer of the last parked poll.
    `refusal_ms`: the slowest refusal. `others`: everything else that is wrong, in words. `control`: a promise is broken
    on purpose, so jobs must be lost.
    """

    name: str
    seed: int
    operations: int
    faults: int
    unknowns: int = 0
    refused: int = 0
    lost: int = 0
    early: int = 0
    doubled: int = 0
    gap_ms: float = 0.0
    gap_limit_ms: float | None = None
    wake_ms: float | None = None
    wake_limit_ms: float | None = None
    refusal_ms: float | None = None
    refusal_limit_ms: float | None = None
    others: tuple[str, ...] = ()
    control: bool = False

    def line(self) -> str:
        """All figures in one line."""
        figures: list[tuple[str, object]] = [
            ("seed", self.seed),
            ("operations", self.operations),
            ("faults", self.faults),
            ("unknowns", self.unknowns),
            ("refused", self.refused),
            ("lost", self.lost),
            ("early", self.early),
            ("doubled", self.doubled),
            ("gap", f"{self.gap_ms:.0f} ms"),
        ]
        if self.wake_ms is not None:
            figures.append(("wake-up", f"{self.wake_ms:.0f} ms"))
        if self.refusal_ms is not None:
            figures.append(("slowest refusal", f"{self.refusal_ms:.0f} ms"))
        notes = [*self.failures(), *self.misses()]
        text = "  ".join(f"{name} {value}" for name, value in figures)
        return f"{self.name}: {text}" + (f"  ! {'; '.join(notes)}" if notes else "")

    def failures(self) -> list[str]:
        """What is wrong, whatever the speed of the machine."""
        found = list(self.others)
        if self.faults == 0:
            found.append("no fault happened: this shows nothing")
        if self.control:
            return found if self.lost else [*found, "the control lost nothing: the other runs show nothing"]
        counts = {"lost": self.lost, "early": self.early, "doubled": self.doubled}
        return found + [f"{count} {name}" for name, count in counts.items() if count]

    def misses(self) -> list[str]:
        """Times that are longer than wanted."""
        times = (
            ("the gap", self.gap_ms, self.gap_limit_ms),
            ("the last wake-up", self.wake_ms, self.wake_limit_ms),
            ("the slowest refusal", self.refusal_ms, self.refusal_limit_ms),
        )
        return [
            f"{name} is wanted within {limit:.0f} ms"
            for name, found, limit in times
            if found is not None and limit is not None and found > limit
        ]


def judged(
    name: str,
    seed: int,
    events: Sequence[AnyEvent],
    final: Final,
    *,
    topics: Collection[str] | None = None,
    others: Iterable[str] = (),
    control: bool = False,
) -> Scenario:
    """Check a history and count. `topics`: where the gap is looked for; all if None."""
    report = check(events, final)
    return Scenario(
        name=name,
        seed=seed,
        operations=sum(1 for event in events if not isinstance(event, Fault)),
        faults=report.faults,
        unknowns=report.unknown,
        refused=report.unavailable,
        lost=report.count(Kind.LOST),
        early=report.count(Kind.EARLY),
        doubled=report.count(*DOUBLED),
        gap_ms=gap_ms(events, topics),
        others=(*others, *_others(report, control)),
        control=control,
    )


def _others(report: Report, control: bool) -> Iterable[str]:
    if not control:
        counted = (Kind.LOST, Kind.EARLY, *DOUBLED)
        found = [str(violation) for violation in report.violations if violation.kind not in counted]
        yield from found[:MOST_OTHERS]
        if len(found) > MOST_OTHERS:
            yield f"and {len(found) - MOST_OTHERS} more violations"
    if report.deliveries == 0:
        yield "nothing was delivered: this shows nothing"


def gap_ms(events: Iterable[AnyEvent], topics: Collection[str] | None = None) -> float:
    """The longest time between two accepted sends."""
    accepted = sorted(
        event.complete_ns
        for event in events
        if isinstance(event, Send) and event.outcome is Outcome.OK and (topics is None or event.topic in topics)
    )
    return max((after - before for before, after in pairwise(accepted)), default=0) / 1e6


def together(scenarios: Iterable[Scenario]) -> list[Scenario]:
    """Those of one name as one, sorted by name: counts are added, of times the longest counts."""
    found: dict[str, Scenario] = {}
    for one in scenarios:
        other = found.get(one.name)
        found[one.name] = one if other is None else _sum(other, one)
    return [found[name] for name in sorted(found)]


def _sum(one: Scenario, other: Scenario) -> Scenario:
    counts = ("operations", "faults", "unknowns", "refused", "lost", "early", "doubled")
    times = ("gap_ms", "wake_ms", "refusal_ms")
    fields: dict[str, object] = {name: getattr(one, name) + getattr(other, name) for name in counts}
    for name in times:
        found = [time for time in (getattr(one, name), getattr(other, name)) if time is not None]
        fields[name] = max(found, default=None)
    return msgspec.structs.replace(one, **fields, others=(*one.others, *other.others))


def read(path: Path) -> list[Scenario]:
    """The scenarios of a file, one per line."""
    return [msgspec.json.decode(line, type=Scenario) for line in path.read_bytes().splitlines()]


def write(path: Path, scenarios: Iterable[Scenario]) -> None:
    """Replace the scenarios of the same names in a file, keep the others, sorted by name."""
    found = {scenario.name: scenario for scenario in read(path)} if path.exists() else {}
    found |= {scenario.name: scenario for scenario in scenarios}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(found[name]) + b"\n" for name in sorted(found)))
