"""The library and clients of the original on one Redis: the same objects, the same types, the same words."""

from __future__ import annotations

import random

import pytest

from dueline.exfe import ExfeQueue, Locked

from .kit import LONG, ExfeKit, state_of
from .original import Original


def test_the_original_takes_what_the_library_pushed(kit: ExfeKit) -> None:
    ours, theirs = kit.queue(), Original(kit.raw, kit.prefix, LONG)
    ours.push("k", "one", {"a": "1"}, 1000, "once")
    ours.push("k", "two", {"b": "2"}, 2000, "once")
    assert theirs.schedule(999) == (1, "")
    assert theirs.schedule(1000) == (0, "k")
    assert theirs.get("k", 2, "theirs", 1000) == ["one", "two"]
    assert kit.raw.hgetall(kit.names.data("k")) == {"a": "1", "b": "2"}
    theirs.complete("k", 2)
    assert kit.state() == {}


def test_the_library_takes_what_the_original_pushed(kit: ExfeKit) -> None:
    ours, theirs = kit.queue(), Original(kit.raw, kit.prefix, LONG)
    theirs.push("k", "one", {"a": "1"}, 1000, "once")
    theirs.push("k", "two", {"b": "2"}, 2000, "always")
    assert ours.schedule(1000) == (1000, "")
    assert ours.schedule(2000) == (0, "k")
    assert ours.get("k", 2) == [b"one", b"two"]
    assert ours.data("k") == {b"a": b"1", b"b": b"2"}
    assert ours.complete("k", 2) is True
    assert kit.state() == {}


def test_each_respects_the_others_lock(kit: ExfeKit) -> None:
    ours, theirs = kit.queue(), Original(kit.raw, kit.prefix, LONG)
    ours.push("k", "one", None, 1000, "once")
    assert theirs.get("k", 1, "theirs", 1000) == ["one"]
    with pytest.raises(Locked):
        ours.get("k", 1)
    theirs.release("k", 1500)
    assert ours.get("k", 1) == [b"one"]
    assert theirs.get("k", 1, "theirs", 1500) is None
    ours.release("k", 1700)
    assert theirs.get("k", 1, "theirs", 1700) == ["one"]


def test_each_hears_the_others_pushes(kit: ExfeKit) -> None:
    ours, theirs = kit.queue(), Original(kit.raw, kit.prefix, LONG)
    listener = kit.listener()
    ours.schedule(0)
    theirs.push("k", "one", {}, 1000, "once")
    assert ours.wait(60) is True
    ours.push("k", "two", {}, 1000, "once")
    assert listener.heard(2) == ["insert", "insert"]
    listener.close()


def test_a_retry_of_the_library_is_scheduled_by_the_original_and_back(kit: ExfeKit) -> None:
    ours, theirs = kit.queue(), Original(kit.raw, kit.prefix, LONG)
    theirs.push("k", "one", {}, 1000, "once")
    ours.get("k", 1, now=1000)
    ours.release("k", 1100)
    assert theirs.schedule(1050) == (50, "")
    assert theirs.get("k", 1, "theirs", 1100) == ["one"]
    theirs.release("k", 1200)
    assert ours.schedule(1150) == (50, "")
    theirs.push("k", "two", {}, 1300, "once")  # the first push after a get decides, also with once
    assert ours.schedule(1250) == (50, "")


@pytest.mark.parametrize("seed", range(5))
def test_a_life_without_accidents_leaves_the_same_objects_as_the_originals(kit: ExfeKit, seed: int) -> None:
    """Random actions in the order of the documented worker loop, side by side on two prefixes: equal after each."""
    dice = random.Random(seed)
    other = kit.prefix + "-original"
    ours, theirs = kit.queue(timeout=LONG), Original(kit.raw, other, LONG)
    now, leased = 1000, dict[str, int]()
    for step in range(120):
        now += dice.choice((0, 1, 2))
        key = dice.choice("abc")
        roll = dice.random()
        if roll < 0.5:
            when, how = now + dice.randrange(1, 30), dice.choice(("once", "always", "whatever"))
            ours.push(key, f"t{step}", {f"f{step % 3}": str(step)}, when, how)
            theirs.push(key, f"t{step}", {f"f{step % 3}": str(step)}, when, how)
        elif key in leased:
            count = leased.pop(key)
            if roll < 0.8:
                ours.complete(key, count)
                theirs.complete(key, count)
            else:
                ours.release(key, now + 7)
                theirs.release(key, now + 7)
        elif not leased:
            answer = theirs.schedule(now)
            assert ours.schedule(now) == answer
            seconds, due = answer
            if seconds == 0:
                number = dice.choice((1, 2, 5))
                tasks = theirs.get(due, number, f"r{step}", now)
                assert tasks is not None
                assert ours.get(due, number, f"r{step}", now=now) == [task.encode() for task in tasks]
                leased[due] = len(tasks)
        assert _unstarted(state_of(kit.raw, kit.prefix)) == _unstarted(state_of(kit.raw, other))
    kit.raw.delete(*kit.raw.scan_iter(f"{other}:*"))


def _unstarted(state: dict[str, object]) -> dict[str, object]:
    """Without `start`, which the library takes away more often, for the reason in the safety tests."""
    return {name: value for name, value in state.items() if not name.endswith(":start")}


def test_what_the_original_still_destroys_is_its_own_doing(kit: ExfeKit) -> None:
    """A note for those who share a Redis: an original's schedule purges under a lock, the library's never."""
    ours, theirs = kit.queue(), Original(kit.raw, kit.prefix, LONG)

    def locked_and_pushed(worker: ExfeQueue) -> None:
        worker.push("k", "one", None, 1000, "once")
        worker.get("k", 1, now=1000)
        worker.push("k", "two", None, 1001, "once")

    locked_and_pushed(ours)
    for now in (1001, 1006, 1011):
        assert ours.schedule(now)[1] == ""
    assert kit.state()["queue:k"] == ["one", "two"]
    assert [theirs.schedule(now) for now in (1001, 1006)] == [(0, "k"), (-1, "")]
    assert "queue:k" not in kit.state()
