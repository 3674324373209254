"""Histories of jobs that were replaced or revived, and of the items of merge groups, for test_history_checker.py."""

from __future__ import annotations

from dueline.testing import history as h
from dueline.testing.checker import Kind
from tests.kit.histories import (
    DONE,
    FAIL,
    INFO,
    OTHER,
    ack,
    append,
    cancel,
    deliver,
    group_ack,
    group_delivery,
    kept,
    release,
    revive,
    send,
)

THIRD = h.digest_of(b"third")
GONE = {("t", "g"): h.FinalJob("done", 1)}


def replace(invoke_ms, complete_ms, outcome=h.Outcome.OK, digest=OTHER, **rest):
    return send(invoke_ms, complete_ms, outcome, digest=digest, replaces=True, **rest)


SEEDED = {
    "the old body after it was replaced": (
        Kind.AFTER_REPLACE,
        [send(0, 1), replace(2, 3), deliver(4, 5)],
        kept("leased", 1),
    ),
    "the old body in a long poll, due after the replacement": (
        Kind.AFTER_REPLACE,
        [send(0, 1, delay_ms=100), deliver(2, 101), replace(3, 4)],
        kept("leased", 1),
    ),
    "an ack of the old job after it was replaced": (
        Kind.STALE_TOKEN_OK,
        [send(0, 1), deliver(2, 3), replace(4, 5), ack(6, 7)],
        kept("ready"),
    ),
    "the new job is nowhere, though the old one was acked": (
        Kind.LOST,
        [send(0, 1), deliver(2, 3), ack(4, 5), replace(6, 7)],
        {},
    ),
    "the new job before its own time": (
        Kind.EARLY,
        [send(0, 1), replace(2, 3, delay_ms=500), deliver(4, 300, digest=OTHER)],
        kept("leased", 1),
    ),
    "a body that no send had": (
        Kind.ALTERED,
        [send(0, 1), replace(2, 3), deliver(4, 5, digest=THIRD)],
        kept("leased", 1),
    ),
    "the new job twice at once": (
        Kind.TWO_LEASES,
        [send(0, 1), replace(2, 3), deliver(4, 5, digest=OTHER), deliver(6, 7, 2, digest=OTHER)],
        kept("leased", 2),
    ),
    "the new job after its ack": (
        Kind.AFTER_DONE,
        [send(0, 1), replace(2, 3), deliver(4, 5, digest=OTHER), ack(6, 7), deliver(8, 9, 2, digest=OTHER)],
        DONE,
    ),
    "the new job after a cancel that met nothing else": (
        Kind.AFTER_DONE,
        [send(0, 1), replace(2, 3), cancel(4, 5), deliver(6, 7, digest=OTHER)],
        kept("cancelled"),
    ),
    "more attempts than the new job has": (
        Kind.ATTEMPTS_OVER,
        [send(0, 1), replace(2, 3, max_attempts=1), deliver(4, 5, 2, digest=OTHER)],
        kept("leased", 1),
    ),
    "a revived job before its time": (
        Kind.EARLY,
        [
            *(send(0, 1, max_attempts=1), deliver(2, 3), release(4, 5, result="dead")),
            *(revive(6, 7, delay_ms=500), deliver(8, 300, 2, attempt=1)),
        ],
        kept("leased", 1),
    ),
    "a delivery of a dead job whose revive was refused": (
        Kind.AFTER_DONE,
        [send(0, 1), deliver(2, 3), release(4, 5, result="dead"), revive(6, 7, FAIL), deliver(8, 9, 2)],
        kept("dead", 2),
    ),
    "a revived job that was acked and came again": (
        Kind.AFTER_DONE,
        [
            *(send(0, 1), deliver(2, 3), release(4, 5, result="dead"), revive(6, 7)),
            *(deliver(8, 9, 2, attempt=1), ack(10, 11, 2), deliver(12, 13, 3, attempt=2)),
        ],
        DONE,
    ),
    "an accepted item that is in no group": (Kind.LOST, [append(0, 1, "i")], {}),
    "an item that its group left behind": (
        Kind.LOST,
        [append(0, 1, "i", group="other"), append(2, 3, "j"), group_delivery(4, 5, ["j"]), group_ack(6, 7)],
        GONE,
    ),
    "an item in two groups that were acked": (
        Kind.ITEM_TWICE,
        [
            *(append(0, 1, "i"), group_delivery(2, 3, ["i"]), group_ack(4, 5)),
            *(group_delivery(6, 7, ["i"], group="g2"), group_ack(8, 9, group="g2")),
        ],
        {**GONE, ("t", "g2"): h.FinalJob("done", 1)},
    ),
    "an item twice in one group": (
        Kind.ITEM_TWICE,
        [append(0, 1, "i"), group_delivery(2, 3, ["i", "i"])],
        {("t", "g"): h.FinalJob("leased", 1)},
    ),
    "items in another order": (
        Kind.ITEM_ORDER,
        [append(0, 1, "i"), append(2, 3, "j"), group_delivery(4, 5, ["j", "i"])],
        {("t", "g"): h.FinalJob("leased", 1)},
    ),
    "an item that nobody sent": (
        Kind.ALTERED,
        [append(0, 1, "i"), append(0, 1, "j", key="another"), group_delivery(4, 5, ["i", "j"])],
        {("t", "g"): h.FinalJob("leased", 1)},
    ),
    "a group before it is due": (
        Kind.EARLY,
        [append(0, 1, "i", delay_ms=500), append(2, 3, "j", delay_ms=500), group_delivery(4, 300, ["i", "j"])],
        {("t", "g"): h.FinalJob("leased", 1)},
    ),
    "a group after its ack": (
        Kind.AFTER_DONE,
        [append(0, 1, "i"), group_delivery(2, 3, ["i"]), group_ack(4, 5), group_delivery(6, 7, ["i"], 2)],
        GONE,
    ),
}

INNOCENT = {
    "replaced, then delivered": ([send(0, 1), replace(2, 3), deliver(4, 5, digest=OTHER), ack(6, 7)], DONE),
    "replaced in a consumer's hands, whose ack is refused": (
        [send(0, 1), deliver(2, 3), replace(4, 5), ack(6, 7, outcome=FAIL, code="lease_lost")],
        kept("ready"),
    ),
    "the numbers of the new job begin again": (
        [
            *(send(0, 1), deliver(2, 3), deliver(1500, 1501, 2), replace(1600, 1601)),
            *(deliver(1602, 1603, lease="M1", digest=OTHER),),
        ],
        kept("leased", 1),
    ),
    "a replacement that raced a delivery": (
        [send(0, 1), replace(2, 9), deliver(3, 8), ack(10, 11, outcome=FAIL, code="lease_lost")],
        kept("ready"),
    ),
    "an unknown replacement that did not happen": (
        [send(0, 1), replace(2, 3, INFO), deliver(4, 5), ack(6, 7)],
        DONE,
    ),
    "an unknown replacement that happened late": (
        [
            *(send(0, 1), replace(2, 3, INFO), deliver(4, 5), ack(6, 7)),
            *(deliver(8, 9, lease="M1", digest=OTHER),),
        ],
        kept("leased", 1),
    ),
    "an unknown replacement, repeated, whose two lives are both delivered": (
        [
            *(send(0, 1), replace(2, 3, INFO), deliver(4, 5, lease="M1", digest=OTHER)),
            *(replace(6, 7), deliver(8, 9, lease="N1", digest=OTHER)),
        ],
        kept("leased", 1),
    ),
    "a done job that was replaced": (
        [send(0, 1), deliver(2, 3), ack(4, 5), replace(6, 7), deliver(8, 9, lease="M1", digest=OTHER)],
        kept("leased", 1),
    ),
    "the old job is gone": ([send(0, 1), replace(2, 3)], kept("ready")),
    "a cancel that met the new or the old job": (
        [send(0, 1), replace(2, 9), cancel(3, 8), deliver(10, 11, digest=OTHER)],
        kept("leased", 1),
    ),
    "two replacements at once": (
        [send(0, 1), replace(2, 9), replace(2, 9, digest=THIRD), deliver(10, 11, digest=OTHER)],
        kept("leased", 1),
    ),
    "dead, revived, delivered": (
        [
            *(send(0, 1, max_attempts=1), deliver(2, 3), release(4, 5, result="dead"), revive(6, 7)),
            *(deliver(8, 9, 2, attempt=1), ack(10, 11, 2)),
        ],
        DONE,
    ),
    "an unknown revive that happened": (
        [
            *(send(0, 1, max_attempts=1), deliver(2, 3), release(4, 5, result="dead"), revive(6, 7, INFO)),
            *(deliver(8, 9, 2, attempt=1),),
        ],
        kept("leased", 1),
    ),
    "revived with more attempts": (
        [
            *(send(0, 1, max_attempts=1), deliver(2, 3), release(4, 5, result="dead")),
            *(revive(6, 7, max_attempts=3), deliver(8, 9, 2, attempt=1), deliver(1500, 1501, 3, attempt=2)),
        ],
        kept("leased", 2),
    ),
    "a release that said dead had a wait": (
        [
            *(send(0, 1), deliver(2, 3), release(4, 5, delay_ms=900, result="dead"), revive(6, 7)),
            *(deliver(8, 9, 2, attempt=1),),
        ],
        kept("leased", 1),
    ),
    "a group with its items in order": (
        [append(0, 1, "i"), append(2, 3, "j"), group_delivery(4, 5, ["i", "j"]), group_ack(6, 7)],
        GONE,
    ),
    "items whose sends overlapped, in any order": (
        [append(0, 3, "i"), append(1, 2, "j"), group_delivery(4, 5, ["j", "i"])],
        {("t", "g"): h.FinalJob("leased", 1)},
    ),
    "an unknown item that is not there": ([append(0, 1, "i", INFO)], {}),
    "an unknown item that is there": (
        [append(0, 1, "i", INFO), group_delivery(2, 3, ["i"]), group_ack(4, 5)],
        GONE,
    ),
    "a full group is due at once": (
        [
            *(append(0, 1, "i", delay_ms=500, max_items=2), append(2, 3, "j", delay_ms=500, max_items=2)),
            *(group_delivery(4, 5, ["i", "j"]), group_ack(6, 7)),
        ],
        GONE,
    ),
    "an item that is in a group of the dump": ([append(0, 1, "i")], {("t", "g"): h.FinalJob("ready", 0, None, ("i",))}),
    "an unknown item that opened a group": (
        [append(0, 1, "i", INFO)],
        {("t", "g"): h.FinalJob("ready", 0, None, ("i",))},
    ),
    "an item in a group that somebody may have acked": (
        [append(0, 1, "i"), group_delivery(2, 3, ["i"]), group_ack(4, 5, outcome=INFO)],
        {},
    ),
    "an item that moved to another group": (
        [
            *(append(0, 1, "i", group="g1"), group_delivery(2, 3, ["i"], group="g1", lease_ms=10)),
            *(append(20, 21, "j"), group_delivery(30, 31, ["i", "j"]), group_ack(32, 33)),
        ],
        GONE,
    ),
}
