"""The numbered cases of the specification that concern the Redis interface (26 to 39), by their numbers."""

from __future__ import annotations

import time

import pytest

from dueline.exfe import Locked

from .lab import Lab, say_when_heard

TEN = [f"task{i}" for i in range(10)]
TEN_BYTES = [task.encode() for task in TEN]


def push_ten(lab: Lab, key: str = "k") -> None:
    producer = lab.queue()
    for task in TEN:
        producer.push(key, task, {}, 1000, "once")


def test_case_26_pushes_with_once_keep_the_first_time_and_each_says_insert(lab: Lab) -> None:
    ear = lab.ear()
    queue = lab.queue()
    for i in (1, 2, 3):
        queue.push("k", f"task{i}", {"n": str(i)}, 1000 + i, "once")
    assert lab.state() == {"timer": {"k": 1001}, "queue:k": ["task1", "task2", "task3"], "queue:k:data": {"n": "3"}}
    assert ear.heard(3) == ["insert"] * 3
    ear.close()


def test_case_27_pushes_with_always_keep_the_last_time(lab: Lab) -> None:
    queue = lab.queue()
    for i in range(10):
        queue.push("k", TEN[i], None, 12340 + i, "always")
    assert lab.state() == {"timer": {"k": 12349}, "queue:k": TEN}


def test_case_29_get_locks_and_reads_the_first_tasks_without_removing_them(lab: Lab) -> None:
    push_ten(lab)
    assert lab.queue().schedule(1000) == (0, "k")
    assert lab.state()["queue:k:start"] == "1000"
    tasks = lab.queue(timeout=2).get("k", 2, "r1", now=5000)
    ttl_ms = lab.raw.pttl(lab.names.locker("k"))
    state = lab.state()
    assert tasks == TEN_BYTES[:2]
    assert 0 < ttl_ms <= 2000
    assert state == {
        "timer": {"k": 5002},
        "queue:k": TEN,
        "queue:k:locker": "r1",
        "queue:k:locker ttl": True,
        "queue:k:overwrite": "1",
    }


def test_case_29_the_time_of_the_lease_counts_on_the_stores_clock(lab: Lab) -> None:
    push_ten(lab)
    before = lab.now()
    lab.queue(timeout=2).get("k", 2)
    assert before + 2 <= lab.state()["timer"]["k"] <= lab.now() + 2


def test_case_30_a_queue_locked_by_another_is_refused_and_nothing_changes(lab: Lab) -> None:
    push_ten(lab)
    lab.queue().get("k", 2, "r1", now=5000)
    before = lab.state()
    with pytest.raises(Locked, match=r"^locked$"):
        lab.queue().get("k", 2, "r2", now=6000)
    assert lab.state() == before


def test_case_31_completing_all_removes_the_queue_and_leaves_the_others(lab: Lab) -> None:
    push_ten(lab)
    queue = lab.queue()
    queue.push("k", "last", {"a": "1"}, 1000, "once")
    queue.push("other", "task", None, 2000, "once")
    queue.get("k", 11)
    assert queue.complete("k", 11) is True
    assert lab.state() == {"timer": {"other": 2000}, "queue:other": ["task"]}


def test_case_33_complete_without_a_locker_changes_nothing(lab: Lab) -> None:
    push_ten(lab)
    queue = lab.queue()
    queue.push("k", "last", {"a": "1"}, 1000, "once")
    lab.raw.set(lab.names.overwrite("k"), "1")
    lab.raw.set(lab.names.start("k"), "1000")
    before = lab.state()
    assert queue.complete("k", 5) is False
    assert queue.complete("k", -1) is False
    assert lab.state() == before


def test_case_34_a_release_with_a_time_reschedules_and_the_next_push_decides_again(lab: Lab) -> None:
    push_ten(lab)
    queue = lab.queue()
    queue.get("k", 2)
    assert queue.release("k", 23456) is True
    assert lab.state() == {"timer": {"k": 23456}, "queue:k": TEN, "queue:k:overwrite": "1"}
    queue.push("k", "new", None, 30000, "once")
    assert lab.state() == {"timer": {"k": 30000}, "queue:k": [*TEN, "new"]}


def test_case_35_a_release_without_a_time_keeps_the_time(lab: Lab) -> None:
    push_ten(lab)
    queue = lab.queue(timeout=100)
    queue.get("k", 2, now=5000)
    assert queue.release("k") is True
    assert lab.state() == {"timer": {"k": 5100}, "queue:k": TEN, "queue:k:overwrite": "1"}


def test_case_37_getting_all_and_completing_all_leaves_nothing(lab: Lab) -> None:
    push_ten(lab)
    queue = lab.queue()
    assert queue.get("k", -1) == TEN_BYTES
    assert queue.complete("k", -1) is True
    assert lab.state() == {}


def test_case_38_a_lease_that_ends_gives_the_same_tasks_to_the_next_worker(lab: Lab) -> None:
    push_ten(lab)
    lab.raw.config_set("notify-keyspace-events", "Ex")
    ends = lab.raw.pubsub()
    ends.subscribe("__keyevent@0__:expired")
    assert ends.get_message(timeout=30)["type"] == "subscribe"
    assert lab.queue(timeout=1).get("k", 3, "r1") == TEN_BYTES[:3]
    while ends.get_message(timeout=30)["data"] != lab.names.locker("k"):
        pass
    ends.close()
    second = lab.queue()
    assert second.schedule() == (0, "k")
    assert second.get("k", 3, "r2") == TEN_BYTES[:3]


def test_case_39_wait_ends_at_a_push(lab: Lab) -> None:
    queue = lab.queue()
    speaker = say_when_heard(lab.raw, lab.names.channel, "insert")
    assert queue.wait(60) is True
    speaker.join()


def test_case_39_wait_without_a_push_lasts_its_timeout(lab: Lab) -> None:
    queue = lab.queue()
    begun = time.monotonic()
    assert queue.wait(1) is False
    assert time.monotonic() - begun >= 1
