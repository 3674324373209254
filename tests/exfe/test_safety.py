"""Where the original loses or doubles work, and the library does not."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from dueline.engine.errors import DuelineError, InvalidField
from dueline.exfe import ExfeQueue, Invalid, Locked

from .kit import LONG, ExfeKit


def test_a_locked_queue_is_never_purged_and_gets_its_full_time_when_the_lock_is_gone(kit: ExfeKit) -> None:
    queue = kit.queue()
    queue.push("k", "one", None, 1000, "once")
    queue.get("k", 1, now=1000)
    queue.push("k", "two", None, 1000, "always")
    kit.raw.set(kit.names.start("k"), "1000")  # left by an original that offered the locked queue
    for now in (1000, 1005, 1100):
        assert queue.schedule(now)[1] == ""
    kit.raw.delete(kit.names.locker("k"))
    assert queue.schedule(1101) == (0, "k")
    assert queue.schedule(1105) == (0, "k")
    assert queue.get("k", -1) == [b"one", b"two"]


def test_a_locked_queue_does_not_hold_up_the_queues_behind_it(kit: ExfeKit) -> None:
    queue = kit.queue()
    for i in range(40):
        queue.push(f"busy{i:02}", "task", None, 1000, "once")
        queue.get(f"busy{i:02}", 1)
        queue.push(f"busy{i:02}", "more", None, 1000, "once")
    queue.push("busy19 but not this one", "task", None, 1000, "once")
    assert queue.schedule(1000) == (0, "busy19 but not this one")


def test_with_only_locked_queues_due_schedule_says_when_the_first_lock_ends(kit: ExfeKit) -> None:
    queue = kit.queue(timeout=300)
    queue.push("k", "one", None, 1000, "once")
    queue.get("k", 1)
    queue.push("k", "two", None, 1000, "once")
    seconds, key = queue.schedule(1000)
    assert (0 < seconds <= 300, key) == (True, "")
    queue.push("soon", "task", None, 1002, "once")
    assert queue.schedule(1000) == (2, "")


def test_a_queue_that_a_worker_had_is_offered_for_the_full_time_again(kit: ExfeKit) -> None:
    """Also when an original has offered it under the lock, and so has set its start."""
    queue = kit.queue(timeout=100)
    for task in ("one", "two", "three"):
        queue.push("k", task, None, 1000, "once")
    for end in (lambda: queue.complete("k", 1), lambda: queue.release("k", 1100)):
        queue.get("k", 1, now=1000)
        kit.raw.set(kit.names.start("k"), "1000")
        assert end() is True
        assert [queue.schedule(now) for now in (1100, 1104)] == [(0, "k"), (0, "k")]
    assert queue.get("k", -1) == [b"two", b"three"]


def test_a_push_that_moves_the_time_starts_the_waiting_for_a_worker_anew(kit: ExfeKit) -> None:
    queue = kit.queue()
    queue.push("k", "one", None, 1000, "once")
    assert queue.schedule(1000) == (0, "k")
    queue.push("k", "two", None, 1060, "always")
    assert queue.schedule(1060) == (0, "k")
    assert kit.state()["queue:k"] == ["one", "two"]


def test_a_queue_that_nobody_takes_is_kept_when_purging_is_off(kit: ExfeKit) -> None:
    queue = kit.queue(purge_after=None)
    queue.push("k", "one", None, 1000, "once")
    assert [queue.schedule(now) for now in (1000, 1005, 900_000)] == [(0, "k")] * 3
    assert queue.get("k", 1) == [b"one"]


def test_complete_all_removes_what_was_read_and_not_what_came_meanwhile(kit: ExfeKit) -> None:
    queue = kit.queue()
    for task in ("one", "two"):
        queue.push("k", task, {"a": "1"}, 1000, "once")
    queue.get("k", -1)
    queue.push("k", "three", None, 5000, "once")
    assert queue.complete("k", -1) is True
    assert kit.state() == {"timer": {"k": 5000}, "queue:k": ["three"], "queue:k:data": {"a": "1"}}


def test_complete_with_the_number_of_the_get_does_not_remove_what_came_after_a_short_read(kit: ExfeKit) -> None:
    queue = kit.queue()
    queue.push("k", "one", None, 1000, "once")
    assert queue.get("k", 10) == [b"one"]
    queue.push("k", "two", None, 5000, "once")
    assert queue.complete("k", 10) is True
    assert kit.state() == {"timer": {"k": 5000}, "queue:k": ["two"]}


def test_complete_may_remove_more_than_a_full_read_returned(kit: ExfeKit) -> None:
    queue = kit.queue()
    for task in ("one", "two", "three"):
        queue.push("k", task, None, 1000, "once")
    queue.get("k", 1)
    assert queue.complete("k", 2) is True
    assert kit.state()["queue:k"] == ["three"]


def test_complete_all_by_a_client_that_read_nothing_removes_everything(kit: ExfeKit) -> None:
    queue = kit.queue()
    for task in ("one", "two"):
        queue.push("k", task, None, 1000, "once")
    kit.queue().get("k", 1)
    assert queue.complete("k", -1) is True
    assert kit.state() == {}


def test_a_late_worker_neither_completes_nor_releases_the_lease_of_another(kit: ExfeKit) -> None:
    late, second = kit.queue(), kit.queue()
    late.push("k", "one", None, 1000, "once")
    late.get("k", 1)
    kit.raw.delete(kit.names.locker("k"))  # its lease ends
    second.get("k", 1)
    before = kit.state()
    assert late.complete("k", 1) is False
    assert late.complete("k", 1) is False
    assert late.release("k", 2000) is False
    assert kit.state() == before
    assert second.complete("k", 1) is True


def test_a_late_thread_neither_completes_nor_releases_the_lease_of_another_that_shares_its_client(kit: ExfeKit) -> None:
    shared = kit.queue()
    shared.push("k", "one", None, 1000, "once")
    with ThreadPoolExecutor(1) as late, ThreadPoolExecutor(1) as second:
        late.submit(shared.get, "k", 1).result()
        kit.raw.delete(kit.names.locker("k"))  # its lease ends
        second.submit(shared.get, "k", 1).result()
        before = kit.state()
        assert late.submit(shared.complete, "k", -1).result() is False
        assert late.submit(shared.release, "k", 2000).result() is False
        assert kit.state() == before
        assert second.submit(shared.complete, "k", -1).result() is True


def test_a_thread_that_got_nothing_completes_what_its_client_got(kit: ExfeKit) -> None:
    shared = kit.queue()
    shared.push("k", "one", None, 1000, "once")
    with ThreadPoolExecutor(1) as other:
        other.submit(shared.get, "k", 1).result()
        assert shared.complete("k", 1) is True


def test_a_random_given_to_complete_and_release_must_hold_the_lock(kit: ExfeKit) -> None:
    worker, helper = kit.queue(), kit.queue()
    worker.push("k", "one", None, 1000, "once")
    worker.get("k", 1, "r1")
    before = kit.state()
    assert helper.complete("k", 1, "r2") is False
    assert helper.release("k", 2000, "r2") is False
    assert kit.state() == before
    assert helper.complete("k", 1, "r1") is True


def test_a_client_that_did_not_get_completes_under_any_lock_as_in_the_original(kit: ExfeKit) -> None:
    worker, helper = kit.queue(), kit.queue()
    worker.push("k", "one", None, 1000, "once")
    worker.get("k", 1)
    assert helper.complete("k", 1) is True
    assert kit.state() == {}


def test_a_release_of_a_key_without_tasks_schedules_nothing(kit: ExfeKit) -> None:
    queue = kit.queue()
    kit.raw.set(kit.names.locker("k"), "somebody", ex=LONG)
    assert queue.release("k", 2000) is True
    assert kit.state() == {}


def test_a_release_with_a_time_wakes_a_waiting_worker(kit: ExfeKit) -> None:
    worker, other = kit.queue(), kit.queue()
    worker.push("k", "one", None, 1000, "once")
    worker.get("k", 1)
    other.schedule(0)
    worker.release("k", 1)
    assert other.wait(60) is True


def test_a_push_between_schedule_and_wait_is_not_slept_over(kit: ExfeKit) -> None:
    worker = kit.queue()
    assert worker.schedule(1000) == (-1, "")
    kit.queue().push("k", "one", None, 1000, "once")
    assert worker.wait(60) is True
    assert worker.schedule(1000) == (0, "k")
    assert worker.wait(0) is False


def test_a_push_that_schedule_has_seen_does_not_end_the_next_wait(kit: ExfeKit) -> None:
    worker = kit.queue()
    assert worker.schedule(1000) == (-1, "")
    kit.queue().push("k", "one", None, 2000, "once")
    kit.raw.ping()  # one turn of the store later, its word has left
    assert worker.schedule(1000) == (1000, "")
    assert worker.wait(0) is False


def test_two_threads_that_wait_on_one_client_both_hear_a_push(kit: ExfeKit) -> None:
    queue = kit.queue()
    heard: list[bool] = []
    ready = threading.Barrier(3)

    def work() -> None:
        queue.schedule(1000)
        ready.wait(60)
        heard.append(queue.wait(60))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    ready.wait(60)
    queue.push("k", "one", None, 1000, "once")
    for thread in threads:
        thread.join(60)
    assert heard == [True, True]


def test_workers_side_by_side_take_every_task_once(kit: ExfeKit) -> None:
    producer = kit.queue()
    expected = {f"{key}{i}".encode() for key in "abcdef" for i in range(10)}
    for task in sorted(expected):
        producer.push(chr(task[0]), task, None, 0, "once")
    done: list[bytes] = []

    def work() -> None:
        with ExfeQueue(kit.url, kit.prefix, LONG) as worker:
            while (answer := worker.schedule())[0] == 0:
                try:
                    done.extend(worker.get(answer[1], -1))
                except Locked:
                    continue
                worker.complete(answer[1], -1)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == sorted(expected)
    assert kit.state() == {}


@pytest.mark.parametrize("name", ["timer", "queue", "data"])
def test_an_object_of_a_wrong_type_fails_the_push_before_it_changes_anything(kit: ExfeKit, name: str) -> None:
    queue = kit.queue()
    objects = {"timer": kit.names.timer, "queue": kit.names.queue("k"), "data": kit.names.data("k")}
    kit.raw.set(objects[name], "not what it should be")
    kit.raw.set(kit.names.overwrite("k"), "1")
    before = kit.state()
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        queue.push("k", "one", {"a": "1"}, 1000, "once")
    assert kit.state() == before


@pytest.mark.parametrize("name", ["timer", "queue"])
def test_an_object_of_a_wrong_type_fails_a_workers_action_before_it_changes_anything(kit: ExfeKit, name: str) -> None:
    queue = kit.queue()
    kit.raw.set({"timer": kit.names.timer, "queue": kit.names.queue("k")}[name], "not what it should be")
    before = kit.state()
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        queue.get("k", 1)
    assert kit.state() == before
    kit.raw.set(kit.names.locker("k"), "r1", ex=LONG)
    kit.raw.set(kit.names.overwrite("k"), "1")
    before = kit.state()
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        queue.complete("k", 1)
    if name == "timer":
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            queue.release("k", 1000)
    assert kit.state() == before


@pytest.mark.parametrize("key", ["", "a:data", "a:locker", "a:overwrite", "a:start"])
def test_a_key_whose_queue_would_be_another_queues_object_is_refused(kit: ExfeKit, key: str) -> None:
    with pytest.raises(Invalid, match=r"^invalid key: ") as refused:
        kit.queue().push(key, "one", None, 1000, "once")
    assert isinstance(refused.value, ValueError)
    assert isinstance(refused.value, InvalidField)
    assert kit.state() == {}


@pytest.mark.parametrize("ontime", [float("nan"), float("inf"), 2**60])
def test_a_time_that_the_timer_cannot_hold_is_refused(kit: ExfeKit, ontime: float) -> None:
    queue = kit.queue()
    with pytest.raises(Invalid, match=r"^invalid ontime: "):
        queue.push("k", "one", None, ontime, "once")
    with pytest.raises(Invalid, match=r"^invalid ontime: "):
        queue.release("k", ontime)
    with pytest.raises(Invalid, match=r"^invalid now: "):
        queue.schedule(ontime)
    assert kit.state() == {}


@pytest.mark.parametrize("timeout", [0, -3])
def test_a_lease_without_time_is_refused(timeout: int) -> None:
    with pytest.raises(DuelineError, match=f"^invalid timeout: {timeout}$"):
        ExfeQueue("redis://127.0.0.1", "p", timeout)
