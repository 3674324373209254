"""The checker finds every kind of broken promise, and never raises a false alarm about what nobody can know.

Each violation kind is seeded into a small history. Times are in ms; the job is always `t/a`.
"""

from __future__ import annotations

import random
from pathlib import Path

import history_lives as lives
import pytest

from dueline.testing import history as h
from dueline.testing.checker import Kind, check
from tests.kit.histories import (
    BODY,
    DONE,
    FAIL,
    INFO,
    MS,
    OK,
    OTHER,
    ack,
    append,
    at,
    cancel,
    deliver,
    extend,
    group_ack,
    group_delivery,
    kept,
    move,
    release,
    revive,
    send,
)

SEEDED = lives.SEEDED | {
    "an acknowledged send that is nowhere": (Kind.LOST, [send(0, 1)], {}),
    "a delivered job that vanished unfinished": (Kind.LOST, [send(0, 1), deliver(2, 3)], {}),
    "a finish that was refused does not excuse a loss": (
        Kind.LOST,
        [send(0, 1), deliver(2, 3), ack(9, 9.5, outcome=FAIL, code="store_down")],
        {},
    ),
    "a delivery of what nobody sent": (Kind.GHOST, [deliver(2, 3)], {}),
    "a delivery of what was refused": (Kind.GHOST, [send(0, 1, FAIL), deliver(2, 3)], kept("leased", 1)),
    "a stored job of a refused send": (Kind.GHOST, [send(0, 1, FAIL)], kept("ready")),
    "a changed body": (Kind.ALTERED, [send(0, 1), deliver(2, 3, digest=OTHER)], kept("leased", 1)),
    "a delivery half a millisecond early": (
        Kind.EARLY,
        [send(0, 1, delay_ms=50), deliver(2, 49.4)],
        kept("leased", 1),
    ),
    "a delivery before the wait of its release is over": (
        Kind.EARLY,
        [send(0, 1), deliver(2, 3), release(4, 5, delay_ms=500), deliver(6, 300, 2)],
        kept("leased", 2),
    ),
    "a delivery before the time it was moved to": (
        Kind.EARLY,
        [send(0, 1), move(2, 3, delay_ms=500), deliver(4, 300)],
        kept("leased", 1),
    ),
    "a pull that began after the ack": (
        Kind.AFTER_DONE,
        [send(0, 1), deliver(2, 3), ack(4, 5), deliver(5000, 5001, 2)],
        DONE,
    ),
    "a long poll from before the ack whose number shows it came after": (
        Kind.AFTER_DONE,
        [send(0, 1), deliver(2, 3), ack(4, 5), deliver(3.5, 9000, 2)],
        DONE,
    ),
    "a delivery after a confirmed cancel": (
        Kind.AFTER_DONE,
        [send(0, 1), cancel(2, 3), deliver(4, 5)],
        kept("cancelled"),
    ),
    "a long poll from before a cancel, of a job due after it": (
        Kind.AFTER_DONE,
        [send(0, 1, delay_ms=100), deliver(2, 101), cancel(3, 4)],
        kept("cancelled"),
    ),
    "a delivery after a release that said dead": (
        Kind.AFTER_DONE,
        [send(0, 1, max_attempts=2), deliver(2, 3), release(4, 5, result="dead"), deliver(6, 7, 2)],
        kept("dead", 2, "exhausted"),
    ),
    "a delivery between two confirmations of one ack": (
        Kind.AFTER_DONE,
        [send(0, 1), deliver(2, 3, 2), ack(4, 5, 2), deliver(6, 7, 1), ack(8, 9, 2)],
        DONE,
    ),
    "an extend between two confirmations of one ack": (
        Kind.STALE_TOKEN_OK,
        [send(0, 1), deliver(2, 3), ack(4, 5), extend(6, 7), ack(8, 9)],
        DONE,
    ),
    "a done job that is ready in the end": (
        Kind.ALIVE_AFTER_DONE,
        [send(0, 1), deliver(2, 3), ack(4, 5)],
        kept("ready", 1),
    ),
    "a job both acked and cancelled": (
        Kind.ENDED_TWICE,
        [send(0, 1), deliver(2, 3), ack(4, 5), cancel(4, 5)],
        DONE,
    ),
    "two consumers at once": (
        Kind.TWO_LEASES,
        [send(0, 1), deliver(2, 3), deliver(4, 500, 2)],
        kept("leased", 2),
    ),
    "a second consumer while an extended lease lives": (
        Kind.TWO_LEASES,
        [send(0, 1), deliver(2, 3), extend(900, 901), deliver(1100, 1500, 2)],
        kept("leased", 2),
    ),
    "a third consumer while the first of three holds on": (
        Kind.TWO_LEASES,
        [send(0, 1), deliver(2, 3, lease_ms=9000), deliver(4, 9100, 2, lease_ms=1), deliver(5, 8000, 3)],
        kept("leased", 3),
    ),
    "a holder refused while its lease lives": (
        Kind.HOLDER_REFUSED,
        [send(0, 1), deliver(2, 3), ack(4, 5, outcome=FAIL, code="lease_lost")],
        kept("leased", 1),
    ),
    "an ack with an old token": (
        Kind.STALE_TOKEN_OK,
        [send(0, 1), deliver(2, 3), deliver(1500, 1501, 2), ack(1502, 1503, 1)],
        DONE,
    ),
    "a release with an old token": (
        Kind.STALE_TOKEN_OK,
        [send(0, 1), deliver(2, 3), deliver(1500, 1501, 2), release(1502, 1503, 1)],
        kept("ready", 2),
    ),
    "an extend with an old token": (
        Kind.STALE_TOKEN_OK,
        [send(0, 1), deliver(2, 3), deliver(1500, 1501, 2), extend(1502, 1503, 1)],
        kept("leased", 2),
    ),
    "an ack after its own release": (
        Kind.STALE_TOKEN_OK,
        [send(0, 1), deliver(2, 3), release(4, 5), ack(6, 7)],
        DONE,
    ),
    "an ack after a confirmed cancel": (
        Kind.STALE_TOKEN_OK,
        [send(0, 1), deliver(2, 3), cancel(4, 5), ack(6, 7)],
        kept("cancelled", 1),
    ),
    "an extend after a confirmed ack": (
        Kind.STALE_TOKEN_OK,
        [send(0, 1), deliver(2, 3), ack(4, 5), extend(6, 7)],
        DONE,
    ),
    "an invented token": (Kind.STALE_TOKEN_OK, [send(0, 1), deliver(2, 3), ack(4, 5, 77)], DONE),
    "a number given twice": (
        Kind.NUMBER_REPEATED,
        [send(0, 1), deliver(2, 3), deliver(1500, 1501, 1, lease="M1")],
        kept("leased", 2),
    ),
    "numbers that go down": (
        Kind.NUMBER_ORDER,
        [send(0, 1), deliver(2, 3, 2, attempt=1), deliver(1500, 1501, 1)],
        kept("leased", 2),
    ),
    "more attempts than allowed": (
        Kind.ATTEMPTS_OVER,
        [send(0, 1, max_attempts=1), deliver(2, 3), deliver(1500, 1501, 2)],
        kept("leased", 1),
    ),
    "more attempts in the dump than allowed": (Kind.ATTEMPTS_OVER, [send(0, 1, max_attempts=1)], kept("leased", 2)),
    "fewer attempts in the dump than were seen": (
        Kind.ATTEMPTS_WRONG,
        [send(0, 1), deliver(2, 3), deliver(1500, 1501, 2)],
        kept("leased", 1),
    ),
    "exhausted before the last attempt": (
        Kind.ATTEMPTS_WRONG,
        [send(0, 1, max_attempts=3), deliver(2, 3)],
        kept("dead", 1, "exhausted"),
    ),
    "one id, two jobs": (Kind.CREATED_TWICE, [send(0, 1), send(2, 3)], kept("ready")),
    "the own retry refused": (
        Kind.RETRY_REFUSED,
        [send(0, 1, INFO), send(2, 3, FAIL, code="id_exists")],
        kept("ready"),
    ),
    "two bodies accepted under one id": (
        Kind.CONFLICT_ACCEPTED,
        [send(0, 1), send(2, 3, digest=OTHER, result="kept")],
        kept("ready"),
    ),
}


@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_violation_is_found(name: str) -> None:
    kind, events, final = SEEDED[name]
    assert {v.kind for v in check(events, final).violations} >= {kind}


def test_every_kind_of_violation_is_seeded_at_least_once() -> None:
    assert {kind for kind, _, _ in SEEDED.values()} == set(Kind)


INNOCENT = lives.INNOCENT | {
    "a whole life": ([send(0, 1), deliver(2, 3), ack(4, 5)], DONE),
    "a life whose tombstone is gone": ([send(0, 1), deliver(2, 3), ack(4, 5)], {}),
    "the same token acked twice": ([send(0, 1), deliver(2, 3), ack(4, 5), ack(6, 7)], DONE),
    "an unknown send that never happened": ([send(0, 1, INFO)], {}),
    "an unknown send that did happen": ([send(0, 1, INFO), deliver(50, 51), ack(52, 53)], DONE),
    "an unknown send, then kept": ([send(0, 1, INFO), send(2, 3, result="kept")], kept("ready")),
    "an unknown ack that happened": ([send(0, 1), deliver(2, 3), ack(4, 5, outcome=INFO)], {}),
    "an unknown ack that did not happen": (
        [send(0, 1), deliver(2, 3), ack(4, 5, outcome=INFO), deliver(1100, 1101, 2), ack(1102, 1103, 2)],
        kept("done", 2),
    ),
    "an unknown cancel, then delivered": ([send(0, 1), cancel(2, 3, INFO), deliver(4, 5), ack(6, 7)], DONE),
    "an unknown cancel took the lease away": (
        [send(0, 1), deliver(2, 3), cancel(4, 5, INFO), ack(6, 7, outcome=FAIL, code="lease_lost")],
        kept("cancelled", 1),
    ),
    "an unknown release gave it to another at once": (
        [send(0, 1), deliver(2, 3), release(4, 5, outcome=INFO), deliver(6, 7, 2)],
        kept("leased", 2),
    ),
    "an unknown release, then the same again refused": (
        [
            send(0, 1),
            deliver(2, 3),
            release(4, 5, outcome=INFO),
            release(6, 7, outcome=FAIL, code="lease_lost"),
        ],
        kept("ready", 1),
    ),
    "an unknown extend promises nothing": (
        [send(0, 1), deliver(2, 3), extend(900, 901, outcome=INFO), deliver(1002, 1004, 2)],
        kept("leased", 2),
    ),
    "delivered again when the lease is over": ([send(0, 1), deliver(2, 3), deliver(4, 1003, 2)], kept("leased", 2)),
    "a late ack while nobody else has it": ([send(0, 1), deliver(2, 3), ack(5000, 5001)], DONE),
    "a stale ack refused": (
        [
            send(0, 1),
            deliver(2, 3),
            deliver(1500, 1501, 2),
            ack(1502, 1503, 1, FAIL, "lease_lost"),
            ack(1504, 1505, 2),
        ],
        kept("done", 2),
    ),
    "numbers with a gap (an answer was lost)": (
        [send(0, 1), h.Pull(**at(2, 3, INFO)), deliver(1500, 1501, 2), ack(1502, 1503, 2)],
        kept("done", 2),
    ),
    "overlapping pulls answered out of order": (
        [send(0, 1), deliver(2, 3000, 1), deliver(2, 1900, 2)],
        kept("leased", 2),
    ),
    "exactly on time": ([send(0, 1, delay_ms=50), deliver(2, 50), ack(51, 52)], DONE),
    "early only by another of its sends": (
        [send(0, 1, INFO, delay_ms=0), send(2, 3, delay_ms=100, result="kept"), deliver(4, 5)],
        kept("leased", 1),
    ),
    "moved to an earlier time": ([send(0, 1, delay_ms=900), move(2, 3, 0), deliver(4, 5)], kept("leased", 1)),
    "a cancel that raced a delivery": (
        [send(0, 1), deliver(2, 9), cancel(3, 8), ack(10, 11, outcome=FAIL, code="lease_lost")],
        kept("cancelled", 1),
    ),
    "an uncounted release": (
        [
            send(0, 1, max_attempts=1),
            deliver(2, 3),
            release(4, 5, count=False),
            deliver(6, 7, 2, attempt=1),
            ack(8, 9, 2),
        ],
        kept("done", 1),
    ),
    "dead after its last attempt": (
        [send(0, 1, max_attempts=1), deliver(2, 3), release(4, 5, result="dead")],
        kept("dead", 1, "exhausted"),
    ),
    "another request under its id refused": (
        [send(0, 1), send(2, 3, FAIL, digest=OTHER, code="id_exists")],
        kept("ready"),
    ),
    "an unknown move to an earlier time": (
        [send(0, 1, delay_ms=900), move(2, 3, 0, INFO), deliver(4, 5)],
        kept("leased", 1),
    ),
    "two moves, one of them unknown": (
        [send(0, 1), move(2, 3, 900), move(4, 5, 0, INFO), deliver(6, 7)],
        kept("leased", 1),
    ),
    "an unknown release with a wait may not have happened": (
        [send(0, 1), deliver(2, 3, lease_ms=10), release(4, 5, outcome=INFO, delay_ms=900), deliver(6, 20, 2)],
        kept("leased", 2),
    ),
    "an ack after a release that did not happen": (
        [send(0, 1), deliver(2, 3), release(4, 5, outcome=INFO), ack(6, 7)],
        DONE,
    ),
    "a stale ack of unknown outcome": (
        [send(0, 1), deliver(2, 3), deliver(1500, 1501, 2), ack(1502, 1503, 1, INFO), ack(1504, 1505, 2)],
        kept("done", 2),
    ),
    "an unknown release that cost no attempt": (
        [send(0, 1), deliver(2, 3), release(4, 5, outcome=INFO, count=False)],
        kept("ready", 0),
    ),
    "another body under its id, of unknown outcome": (
        [send(0, 1), send(2, 3, INFO, digest=OTHER)],
        kept("ready"),
    ),
    "a drained store's dead job": ([send(0, 1), deliver(2, 3)], kept("dead", 10, "exhausted")),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_what_can_be_explained_is_no_violation(name: str) -> None:
    events, final = INNOCENT[name]
    assert check(events, final).violations == ()


def test_the_order_of_events_in_the_file_does_not_matter() -> None:
    for events, final in [(e, f) for _, e, f in SEEDED.values()] + list(INNOCENT.values()):
        shuffled = list(events)
        random.Random(7).shuffle(shuffled)
        assert sorted(map(str, check(shuffled, final).violations)) == sorted(map(str, check(events, final).violations))


def test_the_figures_count_jobs_deliveries_and_outcomes() -> None:
    events = [
        send(0, 1, INFO),
        send(2, 3, result="kept"),
        deliver(4, 5),
        ack(6, 7, outcome=INFO),
        deliver(1500, 1501, 2),
        ack(1502, 1503, 1, FAIL, "lease_lost"),
        ack(1504, 1505, 2),
        h.Fault(**{**at(6.5, 6.6), "topic": "", "id": ""}),
    ]
    report = check(events, kept("done", 2))
    figures = (report.sends_ok, report.sends_unknown, report.sends_failed, report.deliveries, report.redeliveries)
    assert figures == (1, 1, 0, 2, 1)
    assert (report.ends_ok, report.failed, report.unavailable, report.unknown, report.left) == (1, 1, 0, 2, 0)
    assert (report.faults, report.under_way, report.recovered) == (1, 1, 1)
    unknown = check([send(0, 1, INFO), ack(2, 3, outcome=INFO)], kept("ready"))
    assert (unknown.sends_ok, unknown.recovered, unknown.ends_ok, unknown.left) == (0, 1, 0, 1)


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    events = [send(0, 1), deliver(2, 3), release(4, 5, count=False), extend(6, 7), cancel(8, 9), move(8, 9, 5)]
    events += [h.Pull(**at(2, 3, INFO)), ack(4, 5), h.Fault(**at(1, 1, code="kill"))]
    h.write(tmp_path / "history.jsonl", events, DONE)
    assert h.read(tmp_path / "history.jsonl") == (events, DONE)


def test_a_timeline_shows_one_job_and_the_faults_between_its_events() -> None:
    other = h.Ack(topic="t", id="b", invoke_ns=0, complete_ns=1, outcome=OK, lease="x")
    fault = h.Fault(topic="", id="", invoke_ns=2 * MS, complete_ns=2 * MS, outcome=OK, code="kill store")
    late = h.Fault(topic="", id="", invoke_ns=900 * MS, complete_ns=900 * MS, outcome=OK, code="kill later")
    text = h.explain([ack(4, 5, outcome=INFO), other, late, send(0, 1), fault], "t", "a", DONE)
    assert [line.split("ms  ")[-1].split(" client")[0].strip() for line in text.splitlines()] == [
        "t/a",
        f"send     ok   delay_ms=0 digest={BODY} result=created max_attempts=10",
        "!! kill store",
        "ack      info lease=L1",
        "at the end: done, attempts 1",
    ]


def test_the_cost_grows_with_the_events_and_not_with_their_square() -> None:
    """One job with 20,000 deliveries, and 20,000 jobs: both are judged event by event."""
    one = [send(0, 1, max_attempts=None)]
    one += [deliver(2000 * n, 2000 * n + 1, n) for n in range(1, 20_000)]
    many = []
    for n in range(20_000):
        for event in (send(0, 1), deliver(2, 3), ack(4, 5)):
            many.append(h.msgspec.structs.replace(event, id=str(n)))
    assert check(one, kept("leased", 19_999)).violations == ()
    assert check(many, {}).violations == ()


def test_items_count_as_sends_and_groups_do_not() -> None:
    events = [append(0, 1, "i"), append(2, 3, "j", INFO), group_delivery(4, 5, ["i", "j"]), group_ack(6, 7)]
    report = check(events, lives.GONE)
    assert (report.sends_ok, report.sends_unknown, report.recovered, report.deliveries, report.ends_ok) == (
        1,
        1,
        0,
        1,
        1,
    )


def test_such_a_history_survives_its_file(tmp_path: Path) -> None:
    events = [
        send(0, 1),
        lives.replace(2, 3, digest=BODY),
        revive(4, 5),
        append(6, 7, "i"),
        group_delivery(8, 9, ["i"]),
    ]
    final = {("t", "g"): h.FinalJob("ready", 0, None, ("i",))}
    h.write(tmp_path / "history.jsonl", events, final)
    assert h.read(tmp_path / "history.jsonl") == (events, final)
