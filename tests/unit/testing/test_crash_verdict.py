"""When a crash run is green: no violation, and proof that it could have seen one."""

from __future__ import annotations

import msgspec
import pytest

from dueline.testing.checker import Kind, Report, Violation
from tools.faults.crash import Result, main

GOOD = Report(
    violations=(),
    sends_ok=100,
    sends_failed=0,
    sends_unknown=3,
    recovered=1,
    deliveries=120,
    redeliveries=20,
    ends_ok=100,
    failed=5,
    unavailable=2,
    unknown=3,
    faults=2,
    under_way=9,
    left=0,
)
GREEN = Result(
    seed=1,
    what="all",
    rounds=2,
    struck=2,
    report=GOOD,
    restart_ms=(100.0, 300.0),
    orphans=(),
    drained=True,
    findings=(),
    bugs=(),
    history=None,
)


def with_report(**fields: object) -> Result:
    return msgspec.structs.replace(GREEN, report=msgspec.structs.replace(GOOD, **fields))


def test_a_run_without_violations_that_met_something_is_green() -> None:
    assert GREEN.failures() == []


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (with_report(violations=(Violation(Kind.LOST, "t", "a", "gone"),)), "lost: t/a: gone"),
        (msgspec.structs.replace(GREEN, findings=("no record of a",)), "fsck: no record of a"),
        (msgspec.structs.replace(GREEN, bugs=("POST /",)), "status 500: POST /"),
        (msgspec.structs.replace(GREEN, orphans=(42,)), "store process 42 outlived its server"),
        (msgspec.structs.replace(GREEN, drained=False), "not drained: 0 live jobs are left"),
        (with_report(left=3), "not drained: 3 live jobs are left"),
        (msgspec.structs.replace(GREEN, struck=1), "only 1 of 2 faults happened: this run shows nothing"),
        (with_report(deliveries=0), "nothing was delivered: this run shows nothing"),
        (
            with_report(under_way=0, unavailable=0, unknown=0),
            "no operation was in progress, refused or unknown at a fault: the faults hit nothing",
        ),
    ],
)
def test_a_run_that_is_wrong_or_shows_nothing_is_red(result: Result, why: str) -> None:
    assert result.failures() == [why]


def test_every_violation_is_counted_in_exactly_one_row_of_the_table() -> None:
    violations = tuple(Violation(kind, "t", "a", "") for kind in Kind)
    shown = with_report(violations=violations).table()
    rows = dict(line.strip().rsplit("  ", 1) for line in shown.splitlines())
    names = ("lost", "early", "delivered after ack or cancel", "two leases at once", "stale token accepted")
    counted = {name.strip(): value.strip() for name, value in rows.items()}
    assert sum(int(counted[name]) for name in (*names, "other violations")) == len(Kind)


def test_the_command_refuses_what_it_cannot_kill(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--what", "everything"])
    assert ended.value.code == 2
    assert "invalid choice" in capsys.readouterr().err
