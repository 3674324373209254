"""What the specification says about each action beyond its numbered cases."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dueline.engine.errors import StoreDown, StoreFull, UnknownOutcome
from dueline.exfe import ExfeQueue, Invalid, Locked, Objects
from tests.kit.valkey import PrivateValkey

from .kit import LONG, ExfeKit

LUA = Path(sys.modules[ExfeQueue.__module__].__file__ or "").parent / "lua"


def pushed(kit: ExfeKit, *tasks: str) -> ExfeQueue:
    queue = kit.queue()
    for task in tasks:
        queue.push("k", task, None, 1000, "once")
    return queue


def test_the_objects_have_the_documented_names() -> None:
    names = Objects("p")
    per_key = (names.queue("k"), names.data("k"), names.locker("k"), names.overwrite("k"), names.start("k"))
    assert (names.channel, names.timer) == ("p:action:push", "p:timer")
    assert per_key == (
        "p:queue:k",
        "p:queue:k:data",
        "p:queue:k:locker",
        "p:queue:k:overwrite",
        "p:queue:k:start",
    )


def test_a_push_without_a_time_is_due_now(kit: ExfeKit) -> None:
    queue = kit.queue()
    before = kit.now()
    queue.push("zero", "one", None, 0, "once")
    queue.push("negative", "one", None, -5, "once")
    queue.push("virtual", "one", now=777)
    timer = kit.state()["timer"]
    assert timer.pop("virtual") == 777
    assert all(before <= score <= kit.now() for score in timer.values())
    assert sorted(timer) == ["negative", "zero"]


def test_a_fraction_of_a_second_is_never_early(kit: ExfeKit) -> None:
    queue = kit.queue()
    queue.push("k", "one", None, 1000.2, "once")
    assert queue.schedule(1000.9) == (1, "")
    assert queue.schedule(1001) == (0, "k")


def test_every_push_uses_up_the_overwrite_object(kit: ExfeKit) -> None:
    queue = pushed(kit, "one")
    queue.get("k", 1)
    queue.push("k", "two", None, 3000, "always")
    queue.push("k", "three", None, 4000, "once")
    state = kit.state()
    assert (state["timer"], "queue:k:overwrite" in state) == ({"k": 3000}, False)


def test_a_push_into_a_locked_queue_is_taken(kit: ExfeKit) -> None:
    queue = pushed(kit, "one")
    queue.get("k", 1, "r1")
    queue.push("k", "two", None, 2000, "once")
    assert kit.state() == {
        "timer": {"k": 2000},
        "queue:k": ["one", "two"],
        "queue:k:locker": "r1",
        "queue:k:locker ttl": True,
    }


def test_data_is_merged_field_by_field_and_tasks_are_bytes(kit: ExfeKit) -> None:
    queue = kit.queue()
    queue.push("k", b"\x00\xff\r\n", {"a": b"\xfe", "b": "2"}, 1000, "once")
    queue.push("k", "文", {"b": "3"}, 1000, "once")
    assert queue.data("k") == {b"a": b"\xfe", b"b": b"3"}
    assert queue.get("k", -1) == [b"\x00\xff\r\n", "文".encode()]


def test_a_key_may_be_any_text_even_what_is_not_utf8(kit: ExfeKit) -> None:
    queue = kit.queue()
    kit.raw.execute_command("ZADD", kit.names.timer, 1000, b"\xff:x")
    assert queue.schedule(1000) == (0, "\udcff:x")
    assert queue.get("\udcff:x", 1) == []
    queue.complete("\udcff:x", 1)
    queue.push("队列 1", "one", None, 1000, "once")
    assert queue.schedule(1000) == (0, "队列 1")


@pytest.mark.parametrize(("number", "count"), [(-7, 4), (-1, 4), (0, 1), (1, 1), (3, 3), (4, 4), (9, 4)])
def test_get_reads_as_many_as_asked(kit: ExfeKit, number: int, count: int) -> None:
    queue = pushed(kit, "a", "b", "c", "d")
    assert queue.get("k", number) == [b"a", b"b", b"c", b"d"][:count]


def test_get_of_an_empty_queue_reads_nothing_and_locks_it_all_the_same(kit: ExfeKit) -> None:
    queue = kit.queue(timeout=100)
    assert queue.get("k", 1, "r1", now=1000) == []
    assert kit.state() == {
        "timer": {"k": 1100},
        "queue:k:locker": "r1",
        "queue:k:locker ttl": True,
        "queue:k:overwrite": "1",
    }
    queue.complete("k", 1)
    assert kit.state() == {}


def test_the_same_random_is_let_in_again_without_more_time(kit: ExfeKit) -> None:
    queue = pushed(kit, "a", "b")
    queue.get("k", 1, "r1")
    kit.raw.expire(kit.names.locker("k"), LONG // 2)
    assert queue.get("k", 2, "r1") == [b"a", b"b"]
    assert kit.raw.ttl(kit.names.locker("k")) <= LONG // 2


def test_a_get_without_a_random_makes_a_new_one_each_time(kit: ExfeKit) -> None:
    queue = pushed(kit, "a")
    queue.get("k", 1)
    assert re.fullmatch(r"\d+\.\d+", kit.state()["queue:k:locker"])
    with pytest.raises(Locked):
        queue.get("k", 1)


def test_complete_of_some_keeps_the_rest_at_the_time_of_the_lease(kit: ExfeKit) -> None:
    queue = kit.queue(timeout=100)
    for task in ("a", "b", "c"):
        queue.push("k", task, {"f": "1"}, 1000, "once")
    queue.get("k", 2, now=1000)
    assert queue.complete("k", 2) is True
    assert kit.state() == {"timer": {"k": 1100}, "queue:k": ["c"], "queue:k:data": {"f": "1"}}


def test_schedule_says_nothing_or_how_long_or_which_key(kit: ExfeKit) -> None:
    queue = kit.queue()
    assert queue.schedule() == (-1, "")
    queue.push("later", "one", None, 2000, "once")
    queue.push("k", "one", None, 1000, "once")
    assert queue.schedule(990) == (10, "")
    assert queue.schedule(1000) == (0, "k")
    assert kit.queue().schedule(1004) == (0, "k")
    assert kit.state()["queue:k:start"] == "1000"


def test_a_queue_that_no_worker_takes_for_five_seconds_is_purged_whole(kit: ExfeKit) -> None:
    queue = kit.queue()
    queue.push("k", "one", {"a": "1"}, 1000, "once")
    queue.push("later", "one", None, 1004, "once")
    kit.raw.set(kit.names.overwrite("k"), "1")
    assert queue.schedule(1000) == (0, "k")
    assert queue.schedule(1004) == (0, "k")
    assert queue.schedule(1005) == (0, "later")
    assert kit.state() == {"timer": {"later": 1004}, "queue:later": ["one"], "queue:later:start": "1005"}


def test_a_score_without_end_is_a_very_long_time(kit: ExfeKit) -> None:
    kit.raw.zadd(kit.names.timer, {"k": float("inf")})
    assert kit.queue().schedule(1000) == (2**53, "")


def test_a_script_the_store_has_forgotten_is_sent_again(kit: ExfeKit) -> None:
    queue = kit.queue()
    kit.raw.script_flush()
    queue.push("k", "one", None, 1000, "once")
    kit.raw.script_flush()
    assert queue.schedule(1000) == (0, "k")


def test_a_lost_line_ends_a_wait_and_the_next_action_finds_a_new_one(kit: ExfeKit) -> None:
    queue = kit.queue()
    queue.push("k", "one", None, 2000, "once")
    assert queue.schedule(1000) == (1000, "")
    kit.raw.client_kill_filter(_type="pubsub")
    kit.raw.client_kill_filter(_type="normal", skipme=True)
    assert queue.wait(60) is True
    assert queue.wait(0) is False
    assert queue.schedule(2000) == (0, "k")


def test_a_client_may_be_closed_twice_or_unused(kit: ExfeKit) -> None:
    queue = kit.queue()
    queue.close()
    queue.push("k", "one", None, 1000, "once")
    queue.schedule(1000)
    queue.close()
    queue.close()


def test_a_store_that_is_not_there_has_done_nothing(tmp_path: Path) -> None:
    queue = ExfeQueue(f"unix://{tmp_path}/nothing.sock", "p", 1)
    for action in (lambda: queue.push("k", "one"), lambda: queue.schedule(), lambda: queue.wait(0)):
        with pytest.raises(StoreDown) as down:
            action()
        assert down.value.done is False


def test_an_answer_that_does_not_come_is_an_unknown_outcome_and_nothing_is_repeated(kit: ExfeKit) -> None:
    queue = ExfeQueue(f"{kit.url}?socket_timeout=0.05", kit.prefix, 1)
    queue.push("k", "one", None, 1000, "once")
    kit.raw.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
    with pytest.raises(UnknownOutcome) as unknown:
        queue.push("k", "two", None, 1000, "once")
    kit.raw.execute_command("CLIENT", "UNPAUSE")
    assert unknown.value.done is None
    queue.push("k", "three", None, 1000, "once")
    assert kit.raw.lrange(kit.names.queue("k"), 0, -1) in (["one", "two", "three"], ["one", "three"])
    queue.close()


def test_a_full_store_refuses_pushes_and_lets_workers_drain_it() -> None:
    server = PrivateValkey(options=("--maxmemory-policy", "noeviction"))
    server.start()
    try:
        kit = ExfeKit(server.url, "p")
        queue = pushed(kit, "one")
        kit.raw.config_set("maxmemory", 1)
        with pytest.raises(StoreFull):
            queue.push("k", "two", None, 1000, "once")
        assert queue.schedule(1000) == (0, "k")
        assert queue.get("k", 1) == [b"one"]
        assert queue.release("k", 1000) is True
        assert queue.get("k", 1) == [b"one"]
        assert queue.complete("k", 1) is True
        assert kit.state() == {}
        kit.close()
    finally:
        server.stop()


@pytest.mark.parametrize("url", ["valkey://127.0.0.1:1", "valkeys://127.0.0.1:1", "redis://127.0.0.1:1"])
def test_both_spellings_of_an_address_are_known(url: str) -> None:
    with pytest.raises(StoreDown):
        ExfeQueue(url, "p", 1).push("k", "one")


def test_an_address_of_another_kind_is_refused() -> None:
    for url in ("redis+cluster://127.0.0.1", "valkeys+cluster://127.0.0.1", "redis+sentinel://127.0.0.1/jobs"):
        with pytest.raises(Invalid, match=r"^invalid url: .* slots of a Cluster"):
            ExfeQueue(url, "p", 1)
    with pytest.raises(Invalid, match=r"^invalid url: "):
        ExfeQueue("http://127.0.0.1", "p", 1)


def test_import_dueline_imports_neither_this_library_nor_redis_and_this_library_only_the_errors() -> None:
    code = """
import sys
import dueline
assert not any(name == "redis" or name.startswith("dueline.exfe") for name in sys.modules)
import dueline.exfe
ours = {name for name in sys.modules if name.startswith("dueline.") and not name.startswith("dueline.exfe")}
assert ours == {"dueline._version", "dueline.engine", "dueline.engine.errors"}, ours
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_script_says_what_it_takes_gives_and_costs() -> None:
    for path in sorted(LUA.glob("*.lua")):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("#!lua"), path
        assert lines[1].startswith(f"-- {path.stem}: "), path
        words = [line[3:].split()[0] for line in lines[2:8] if re.match(r"-- [A-Z]+ ", line)]
        assert words == ["KEYS", "ARGV", "RETURN", "BOUND"], path
