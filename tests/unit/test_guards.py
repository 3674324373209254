"""The state of guards: when they begin to hold, when they are over, and what they mean for readiness."""

from __future__ import annotations

from dueline.engine.guards import RULES, Guard
from dueline.runtime.guards import Guards, Reason
from tests.kit.log_lines import logged_events

A, B = "10.0.0.1:6379", "10.0.0.2:6379"
BOTH = (A, B)


def codes(reasons: list[Reason]) -> list[tuple[str, str | None]]:
    return [(reason.code, reason.shard) for reason in reasons]


def test_every_guard_has_a_rule_with_all_of_its_texts() -> None:
    assert list(RULES) == list(Guard)
    texts = [(rule.when, rule.refuses, rule.heals, rule.entered, rule.left) for rule in RULES.values()]
    assert all(all(row) for row in texts)
    assert len({rule.entered for rule in RULES.values()}) == len({rule.left for rule in RULES.values()}) == len(Guard)


def test_a_guard_that_a_call_trips_holds_at_once_and_logs_one_line_with_its_shard() -> None:
    guards = Guards()
    guards.checked({}, BOTH, BOTH)
    with logged_events() as lines:
        for _ in range(3):
            guards.tripped(Guard.STORE_FULL, A, "no memory")
        assert guards.holds(Guard.STORE_FULL, A)
        assert not guards.holds(Guard.STORE_FULL, B)
        assert [(line["event"], line["level"], line["guard"], line["shard"], line["detail"]) for line in lines] == [
            ("the store is full", "warning", "store_full", A, "no memory")
        ]


def test_a_tripped_guard_is_over_after_a_check_in_which_no_call_tripped_it() -> None:
    """A check may not see what a call sees: a replica that is connected and does not answer."""
    now_s = 100.0
    guards = Guards(now_s=lambda: now_s)
    with logged_events() as lines:
        guards.tripped(Guard.NOT_REPLICATED, A, "no replica")
        guards.tripped(Guard.NOT_REPLICATED, A, "no replica")
        guards.checked({}, [A], [A])
        assert guards.holds(Guard.NOT_REPLICATED)
        guards.tripped(Guard.NOT_REPLICATED, A, "no replica")
        guards.checked({}, [A], [A])
        assert guards.holds(Guard.NOT_REPLICATED)
        now_s = 107.0
        guards.checked({}, [A], [A])
        assert not guards
    assert [line["event"] for line in lines] == ["changes reach no replica", "changes reach a replica again"]
    assert (lines[1]["level"], lines[1]["lasted_s"], lines[1]["refused_calls"]) == ("info", 7.0, 3)


def test_a_guard_that_checks_find_holds_until_one_does_not_find_it() -> None:
    guards = Guards()
    with logged_events() as lines:
        for _ in range(3):
            guards.checked({(Guard.EVICTION, A): "allkeys-lru"}, BOTH, BOTH)
        guards.checked({}, BOTH, BOTH)
    assert [(line["event"], line["shard"]) for line in lines] == [
        ("the store may delete jobs", A),
        ("the store does not delete jobs any more", A),
    ]


def test_nothing_is_known_to_be_over_on_a_shard_that_does_not_answer() -> None:
    guards = Guards()
    guards.checked({(Guard.EVICTION, A): "allkeys-lru"}, BOTH, BOTH)
    down = {(Guard.SHARD_DOWN, A): "silent"}
    for _ in range(3):
        guards.checked(down, [B], BOTH)
    assert [guards.holds(guard, A) for guard in (Guard.EVICTION, Guard.SHARD_DOWN)] == [True, True]
    guards.checked({}, [B], [B])  # another node serves the slots of A
    assert not guards


def test_what_is_certain_is_ended_only_by_whoever_knows_it() -> None:
    guards = Guards(lambda node: "embedded")
    guards.known(Guard.DISK_LOW, "/run/v.sock", "1 byte left")
    guards.tripped(Guard.STORE_FULL, "/run/v.sock", "OOM")  # that is how the embedded store refuses on a full disk
    for _ in range(3):
        guards.checked({}, ["/run/v.sock"], ["/run/v.sock"])
    assert codes(guards.reasons()[1]) == [("disk_low", "embedded")]
    guards.known(Guard.STORE_FULL, "/run/v.sock", None)
    guards.known(Guard.DISK_LOW, "/run/v.sock", None)
    assert not guards


def test_the_store_serves_while_one_shard_does() -> None:
    guards = Guards()
    guards.checked({(Guard.READ_ONLY, A): "is a replica"}, BOTH, BOTH)
    assert [codes(found) for found in guards.reasons()] == [[], [("read_only", A)]]
    guards.checked({(Guard.READ_ONLY, A): "is a replica", (Guard.SHARD_DOWN, B): "silent"}, [A], BOTH)
    assert [codes(found) for found in guards.reasons()] == [[("read_only", A), ("shard_down", B)], []]


def test_a_store_that_only_refuses_sends_serves_because_consumers_can_empty_it() -> None:
    guards = Guards()
    guards.checked({(Guard.STORE_FULL, A): "full", (Guard.STORE_FULL, B): "full"}, BOTH, BOTH)
    assert [codes(found) for found in guards.reasons()] == [[], [("store_full", A), ("store_full", B)]]
    message = guards.reasons()[1][0].message
    assert message.startswith("full. Sends are refused; pull, ack,")


def test_a_guard_that_was_accepted_is_a_warning() -> None:
    guards = Guards()
    guards.checked({(Guard.NOT_REPLICATED, A): "alone"}, [A], [A])
    assert codes(guards.reasons()[0]) == [("not_replicated", A)]
    assert [codes(found) for found in guards.reasons(frozenset({Guard.NOT_REPLICATED}))] == [
        [],
        [("not_replicated", A)],
    ]


def test_sends_that_the_store_would_accept_are_refused_per_shard() -> None:
    guards = Guards()
    assert not guards.closed
    guards.checked({(Guard.EVICTION, A): "allkeys-lru", (Guard.STORE_FULL, B): "full"}, BOTH, BOTH)
    assert guards.closed
    assert "allkeys-lru. Sends are refused." in (guards.refusal(A) or "")
    assert guards.refusal(B) is None  # the store refuses those itself, and knows best when to accept them
    guards.checked({}, BOTH, BOTH)
    assert not guards.closed


def test_the_metric_has_a_series_for_every_guard_of_every_shard() -> None:
    guards = Guards()
    guards.checked({(Guard.EVICTION, A): "allkeys-lru"}, BOTH, BOTH)
    values = guards.values()
    assert len(values) == 2 * len(Guard)
    assert [key for key, value in values.items() if value] == [("eviction", A)]


def test_whoever_checks_is_told_of_calls_that_fail() -> None:
    guards, calls = Guards(), list[str]()
    guards.trouble = lambda: calls.append("trouble")
    guards.failed()
    guards.tripped(Guard.DISK_FULL, A, "MISCONF")
    assert len(calls) == 2
