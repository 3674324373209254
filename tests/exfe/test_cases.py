"""The numbered cases of the specification that concern the Redis interface (26 to 39), by their numbers."""

from __future__ import annotations

import time

import pytest

from dueline.exfe import Locked

from .kit import ExfeKit, say_when_heard

TEN = [f"task{i}" for i in range(10)]
TEN_BYTES = [task.encode() for task in TEN]


def push_ten(kit: ExfeKit, key: str = "k") -> None:
    producer = kit.queue()
    for task in TEN:
        producer.push(key, task, {}, 1000, "once")


def test_case_26_pushes_with_once_keep_the_first_time_and_each_says_insert(kit: ExfeKit) -> None:
    listener = kit.listener()
    queue = kit.queue()
    for i in (1, 2, 3):
        queue.push("k", f"task{i}", {"n": str(i)}, 1000 + i, "once")
    assert kit.state() == {"timer": {"k": 1001}, "queue:k": ["task1", "task2", "task3"], "queue:k:data": {"n": "3"}}
    assert listener.heard(3) == ["insert"] * 3
    listener.close()


def test_case_27_pushes_with_always_keep_the_last_time(kit: ExfeKit) -> None:
    queue = kit.queue()
    for i in range(10):
        queue.push("k", TEN[i], None, 12340 + i, "always")
    assert kit.state() == {"timer": {"k": 12349}, "queue:k": TEN}


def test_case_29_get_locks_and_reads_the_first_tasks_without_removing_them(kit: ExfeKit) -> None:
    push_ten(kit)
    assert kit.queue().schedule(1000) == (0, "k")
    assert kit.state()["queue:k:start"] == "1000"
    tasks = kit.queue(timeout=2).get("k", 2, "r1", now=5000)
    ttl_ms = kit.raw.pttl(kit.names.locker("k"))
    state = kit.state()
    assert tasks == TEN_BYTES[:2]
    assert 0 < ttl_ms <= 2000
    assert state == {
        "timer": {"k": 5002},
        "queue:k": TEN,
        "queue:k:locker": "r1",
        "queue:k:locker ttl": True,
        "queue:k:overwrite": "1",
    }


def test_case_29_the_time_of_the_lease_counts_on_the_stores_clock(kit: ExfeKit) -> None:
    push_ten(kit)
    before = kit.now()
    kit.queue(timeout=2).get("k", 2)
    assert before + 2 <= kit.state()["timer"]["k"] <= kit.now() + 2


def test_case_30_a_queue_locked_by_another_is_refused_and_nothing_changes(kit: ExfeKit) -> None:
    push_ten(kit)
    kit.queue().get("k", 2, "r1", now=5000)
    before = kit.state()
    with pytest.raises(Locked, match=r"^locked$"):
        kit.queue().get("k", 2, "r2", now=6000)
    assert kit.state() == before


def test_case_31_completing_all_removes_the_queue_and_leaves_the_others(kit: ExfeKit) -> None:
    push_ten(kit)
    queue = kit.queue()
    queue.push("k", "last", {"a": "1"}, 1000, "once")
    queue.push("other", "task", None, 2000, "once")
    queue.get("k", 11)
    assert queue.complete("k", 11) is True
    assert kit.state() == {"timer": {"other": 2000}, "queue:other": ["task"]}


def test_case_33_complete_without_a_locker_changes_nothing(kit: ExfeKit) -> None:
    push_ten(kit)
    queue = kit.queue()
    queue.push("k", "last", {"a": "1"}, 1000, "once")
    kit.raw.set(kit.names.overwrite("k"), "1")
    kit.raw.set(kit.names.start("k"), "1000")
    before = kit.state()
    assert queue.complete("k", 5) is False
    assert queue.complete("k", -1) is False
    assert kit.state() == before


def test_case_34_a_release_with_a_time_reschedules_and_the_next_push_decides_again(kit: ExfeKit) -> None:
    push_ten(kit)
    queue = kit.queue()
    queue.get("k", 2)
    assert queue.release("k", 23456) is True
    assert kit.state() == {"timer": {"k": 23456}, "queue:k": TEN, "queue:k:overwrite": "1"}
    queue.push("k", "new", None, 30000, "once")
    assert kit.state() == {"timer": {"k": 30000}, "queue:k": [*TEN, "new"]}


def test_case_35_a_release_without_a_time_keeps_the_time(kit: ExfeKit) -> None:
    push_ten(kit)
    queue = kit.queue(timeout=100)
    queue.get("k", 2, now=5000)
    assert queue.release("k") is True
    assert kit.state() == {"timer": {"k": 5100}, "queue:k": TEN, "queue:k:overwrite": "1"}


def test_case_37_getting_all_and_completing_all_leaves_nothing(kit: ExfeKit) -> None:
    push_ten(kit)
    queue = kit.queue()
    assert queue.get("k", -1) == TEN_BYTES
    assert queue.complete("k", -1) is True
    assert kit.state() == {}


def test_case_38_a_lease_that_ends_gives_the_same_tasks_to_the_next_worker(kit: ExfeKit) -> None:
    push_ten(kit)
    kit.raw.config_set("notify-keyspace-events", "Ex")
    ends = kit.raw.pubsub()
    ends.subscribe("__keyevent@0__:expired")
    assert ends.get_message(timeout=30)["type"] == "subscribe"
    assert kit.queue(timeout=1).get("k", 3, "r1") == TEN_BYTES[:3]
    while ends.get_message(timeout=30)["data"] != kit.names.locker("k"):
        pass
    ends.close()
    second = kit.queue()
    assert second.schedule() == (0, "k")
    assert second.get("k", 3, "r2") == TEN_BYTES[:3]


def test_case_39_wait_ends_at_a_push(kit: ExfeKit) -> None:
    queue = kit.queue()
    speaker = say_when_heard(kit.raw, kit.names.channel, "insert")
    assert queue.wait(60) is True
    speaker.join()


def test_case_39_wait_without_a_push_lasts_its_timeout(kit: ExfeKit) -> None:
    queue = kit.queue()
    begun = time.monotonic()
    assert queue.wait(1) is False
    assert time.monotonic() - begun >= 1
