"""The figures of a scenario of the fault suite, from small histories. Times are in ms."""

from __future__ import annotations

from pathlib import Path

from dueline.testing import history as h
from tools.faults.scenario import Scenario, gap_ms, judged, read, together, write

MS = 1_000_000
OK, FAIL, INFO = h.Outcome.OK, h.Outcome.FAIL, h.Outcome.INFO


def common(id: str, invoke_ms: int, outcome: h.Outcome = OK, code: str = "", topic: str = "t") -> h.Common:
    return {
        **{"topic": topic, "id": id, "invoke_ns": invoke_ms * MS, "complete_ns": (invoke_ms + 1) * MS},
        **{"outcome": outcome, "client": "c", "code": code},
    }


def send(id: str, at_ms: int, outcome: h.Outcome = OK, code: str = "", topic: str = "t") -> h.Send:
    result = "created" if outcome is OK else ""
    return h.Send(**common(id, at_ms, outcome, code, topic), delay_ms=0, digest="d", result=result)


def deliver(id: str, at_ms: int, number: int = 1) -> h.Deliver:
    rest = {"lease": f"{id}{number}", "lease_ms": 1000, "delivery": number, "attempt": number, "digest": "d"}
    return h.Deliver(**common(id, at_ms), **rest)


FAULT = h.Fault(**common("", 5, code="kill"))
LIFE = [send("a", 0), deliver("a", 2), h.Ack(**common("a", 4), lease="a1")]


def test_a_scenario_counts_calls_faults_and_what_went_wrong() -> None:
    events = [*LIFE, FAULT, send("b", 10), send("c", 11, INFO), send("d", 12, FAIL, "store_down"), deliver("a", 20, 2)]
    found = judged("x", 3, events, {})
    counts = (found.operations, found.faults, found.unknowns, found.refused, found.lost, found.early, found.doubled)
    assert counts == (7, 1, 1, 1, 1, 0, 1)
    assert found.failures() == ["1 lost", "1 doubled"]
    assert found.line() == (
        "x: seed 3  operations 7  faults 1  unknowns 1  refused 1  lost 1  early 0  doubled 1  gap 10 ms"
        "  ! 1 lost; 1 doubled"
    )


def test_the_gap_is_the_longest_time_without_an_accepted_send() -> None:
    events = [send("a", 0), send("b", 30), send("c", 35, FAIL), send("d", 40, topic="u"), send("e", 100)]
    assert (gap_ms(events), gap_ms(events, {"t"}), gap_ms(events, {"u"})) == (60, 70, 0)


def test_a_run_that_shows_nothing_fails() -> None:
    assert judged("x", 1, LIFE, {}).failures() == ["no fault happened: this shows nothing"]
    assert judged("x", 1, [send("a", 0, INFO), FAULT], {}).failures() == ["nothing was delivered: this shows nothing"]


def test_a_control_must_lose_something() -> None:
    assert judged("x", 1, [*LIFE, FAULT, send("b", 10)], {}, control=True).failures() == []
    assert judged("x", 1, [*LIFE, FAULT], {}, control=True).failures() == [
        "the control lost nothing: the other runs show nothing"
    ]


def test_slow_times_are_shown_but_are_no_failure() -> None:
    slow = Scenario(name="x", seed=1, operations=1, faults=1, gap_ms=60, gap_limit_ms=50, wake_ms=9, wake_limit_ms=10)
    assert (slow.failures(), slow.misses()) == ([], ["the gap is wanted within 50 ms"])


def test_a_part_of_the_suite_replaces_its_own_lines_only(tmp_path: Path) -> None:
    one, two = (Scenario(name=name, seed=1, operations=1, faults=1) for name in ("b", "a"))
    again = Scenario(name="b", seed=2, operations=9, faults=1)
    write(tmp_path / "x" / "faults.jsonl", [one, two])
    write(tmp_path / "x" / "faults.jsonl", [again])
    assert read(tmp_path / "x" / "faults.jsonl") == [two, again]


def test_scenarios_of_one_name_are_one_line() -> None:
    counts = {"operations": 10, "faults": 1, "unknowns": 2, "refused": 3, "lost": 0, "early": 0, "doubled": 1}
    one = Scenario(name="b", seed=1, **counts, gap_ms=5, wake_ms=7)
    two = Scenario(name="b", seed=2, **counts, gap_ms=9, others=("odd",))
    other = Scenario(name="a", seed=1, operations=1, faults=1)
    both = {name: 2 * count for name, count in counts.items()}
    assert together([one, other, two]) == [
        other,
        Scenario(name="b", seed=1, **both, gap_ms=9, wake_ms=7, others=("odd",)),
    ]
