"""The command line against a real server with its embedded store, also as processes and on a terminal; and the same
commands straight on a store, where a server stands beside it and must see the same."""

from __future__ import annotations

import asyncio
import base64
import os
import pty
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import redis.asyncio
from typer.testing import CliRunner

from dueline import Client, Patience
from dueline.cli.direct import StoreClient
from dueline.cli.main import build
from dueline.store.valkey.embedded import EmbeddedStore
from dueline.testing.process import DUELINE
from tests.kit.waiting import wait_until

from ..kit.valkey import PrivateValkey
from .serve_kit import environment, served


class Outcome(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Shell:
    """A user at a prompt without a terminal. Commands run in this process, which is a second quicker for each."""

    def __init__(self, url: str, server: str | None = None) -> None:
        self.url = url
        self._server = server or url

    def run(self, *arguments: str, stdin: bytes | None = b"") -> Outcome:
        done = CliRunner().invoke(
            build(arguments), arguments, input=stdin, env={"DUELINE_URL": self.url, "NO_COLOR": "1"}
        )
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Outcome(done.exit_code, done.stdout_bytes, done.stderr_bytes)

    def process(self, *arguments: str) -> Outcome:
        """The same as a process of its own."""
        done = subprocess.run(
            [*DUELINE, *arguments], input=b"", capture_output=True, timeout=60, env=environment(self.url)
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def json(self, *arguments: str, stdin: bytes | None = b"") -> Any:
        done = self.run(*arguments, "-o", "json", stdin=stdin)
        assert done.returncode == 0, done.stderr
        return msgspec.json.decode(done.stdout)

    def live(self) -> set[str]:
        """The topics that hold live jobs."""
        found = self.json("topics", "--all")["topics"]
        return {one["topic"] for one in found if any(one["counts"][s] for s in ("scheduled", "ready", "leased"))}

    def api(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self._server}{path}", timeout=30) as answer:
            return answer.read()


@pytest.fixture(scope="module", params=["a server", "a store"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    data = tmp_path_factory.mktemp("cli") / "data"
    if request.param == "a server":
        with served(data) as url:
            yield Shell(url)
        return
    with PrivateValkey() as store, served(data, DUELINE_STORE__URL=store.url) as url:
        yield Shell(store.url, server=url)


def test_a_group_lives_its_whole_life_at_the_prompt(shell: Shell) -> None:
    opened = shell.json("send", "groups", '{"n": 1.0}', "--merge-key", "k", "--in", "1h", "--max-items", "3")
    assert (opened["result"], opened["items_count"]) == ("created", 1)
    appended = shell.json("send", "groups", "two", "--merge-key", "k")
    assert (appended["id"], appended["result"], appended["items_count"]) == (opened["id"], "appended", 2)
    assert b"merge key" in shell.run("get", "groups", opened["id"]).stdout
    assert shell.json("send", "groups", "3", "--merge-key", "k")["state"] == "ready"
    leased = shell.run("pull", "groups", "--wait", "5s", "--ack", "-o", "json")
    assert b'"items":[{"n": 1.0},"two",3]' in leased.stdout
    done = shell.json("get", "groups", opened["id"])
    assert (done["state"], done["items"], done["merge_key"]) == ("done", None, "k")
    lines = (
        b'{"body":1,"merge":{"key":"f","quiet_ms":60000}}\n{"body":2,"merge":{"key":"f"}}\n{"body":3,"id":"plain"}\n'
    )
    rows = shell.json("send", "groups", "--from", "-", stdin=lines)["results"]
    assert [(row["result"], row["items_count"]) for row in rows] == [("created", 1), ("appended", 2), ("created", None)]
    cancelled = shell.json("cancel", "groups", "--merge-key", "f", "--yes")
    assert cancelled == {"matched": 1, "cancelled": 1, "dry_run": False}
    shown = shell.json("topic", "groups", "set", 'merge={"quiet_ms":5}')
    assert shown["policy"]["merge"] == {"quiet_ms": 5, "max_wait_ms": None, "max_items": None, "update": None}


def test_a_job_lives_its_whole_life_at_the_prompt(shell: Shell) -> None:
    sent = shell.json("send", "life", '{"n": 1.0}', "--in", "50ms", "--id", "a", "--tag", "x", "--header", "k=v")
    assert {name: sent[name] for name in ("id", "topic", "result", "state")} == {
        "id": "a",
        "topic": "life",
        "result": "created",
        "state": "scheduled",
    }
    pulled = shell.run("pull", "life", "--wait", "30s", "--lease", "1m", "-o", "jsonl").stdout
    assert b'"body":{"n": 1.0}' in pulled
    leased = msgspec.json.decode(pulled)
    assert (leased["id"], leased["attempt"], leased["tags"], leased["headers"]) == ("a", 1, ["x"], {"k": "v"})
    assert shell.json("extend", "life", "a", leased["lease"], "--lease", "2m")["results"][0]["result"] == "extended"
    assert shell.json("release", "life", "a", leased["lease"], "--error", "no")["results"][0]["result"] == "released"
    again = shell.json("pull", "life", "--wait", "30s")["jobs"][0]
    assert (again["attempt"], again["delivery"]) == (2, 2)
    stale = shell.run("ack", "life", "a", leased["lease"])
    assert (stale.returncode, b"lease_lost" in stale.stderr) == (4, True)
    assert shell.json("ack", "life", "a", again["lease"]) == {"results": [{"id": "a", "result": "acked"}]}
    assert shell.json("get", "life", "a")["state"] == "done"
    assert shell.run("cancel", "life", "a").returncode == 4


def test_the_history_of_a_job_says_who_had_it_and_what_went_wrong(shell: Shell) -> None:
    shell.json("send", "past", "x", "--id", "a")
    leased = shell.json("pull", "past", "--wait", "30s", "--by", "desk-4")["jobs"][0]
    shell.json("release", "past", "a", leased["lease"], "--error", "no paper", "--in", "1h")
    shell.json("cancel", "past", "a", "--yes")
    timeline = shell.json("history", "past", "a")
    assert [entry["what"] for entry in timeline["entries"]] == ["sent", "delivered", "released", "cancelled"]
    assert (timeline["entries"][1]["by"], timeline["entries"][2]["error"], timeline["dropped"]) == (
        "desk-4",
        "no paper",
        0,
    )
    shown = shell.run("history", "past", "a", "-o", "table").stdout.decode()
    assert all(word in shown for word in ("desk-4", "no paper", "cancelled"))
    assert shell.run("history", "past", "nobody").returncode == 3


def test_json_is_the_apis_own_object_byte_for_byte(shell: Shell) -> None:
    shell.json("send", "bytes", '{"b": 1.0,  "a": "漢"}', "--in", "1h", "--id", "a")
    assert shell.run("get", "bytes", "a", "-o", "json").stdout == shell.api("/v1/topics/bytes/jobs/a") + b"\n"
    assert shell.run("topic", "bytes", "-o", "json").stdout == shell.api("/v1/topics/bytes") + b"\n"
    assert (
        shell.run("dead", "list", "bytes", "-o", "json").stdout == shell.api("/v1/topics/bytes/dead?limit=50") + b"\n"
    )


def test_bytes_of_standard_input_come_back_as_they_were(shell: Shell) -> None:
    data = bytes(range(256))
    shell.json("send", "raw", "-", "--as", "bytes", "--id", "a", stdin=data)
    assert base64.b64decode(shell.json("pull", "raw", "--ack")["jobs"][0]["body_base64"]) == data
    assert shell.json("get", "raw", "a")["state"] == "done"


def test_a_job_moves_in_time_and_can_be_withdrawn(shell: Shell) -> None:
    shell.json("send", "moves", "x", "--at", "2030-01-01T00:00:00Z", "--id", "a")
    moved = shell.json("reschedule", "moves", "a", "--at", "2031-01-01T00:00:00Z", "--version", "1")
    assert (moved["due_at_ms"], moved["state"]) == (1_924_992_000_000, "scheduled")
    assert shell.run("reschedule", "moves", "a", "--in", "1h", "--version", "1").returncode == 4
    assert shell.json("fire", "moves", "a")["result"] == "fired"
    assert shell.json("get", "moves", "a")["state"] == "ready"
    assert shell.json("cancel", "moves", "a", "--yes") == {"id": "a", "result": "cancelled"}
    assert shell.run("fire", "moves", "a").returncode == 4


def test_a_taken_id_is_a_conflict_and_the_same_request_again_is_kept(shell: Shell) -> None:
    first = ("send", "ids", "1", "--in", "1h", "--id", "a")
    assert [shell.json(*first)["result"] for _ in range(2)] == ["created", "kept"]
    assert shell.run("send", "ids", "2", "--in", "1h", "--id", "a").returncode == 4
    assert shell.json("send", "ids", "2", "--in", "1h", "--id", "a", "--on-conflict", "replace")["result"] == "replaced"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["get", "nowhere", "nobody"], 3),
        (["topic", "never-seen"], 3),
        (["ack", "nowhere", "nobody", "AAAAAAAAAAAAAAAA"], 3),
        (["send", "bad topic!", "x"], 2),
        (["send", "t", "x", "--on-conflict", "explode"], 2),
        (["topic", "t", "set", "lease_sm=5"], 2),
        (["get", "t"], 2),
    ],
    ids=str,
)
def test_failures_have_the_exit_code_of_their_kind(shell: Shell, arguments: list[str], code: int) -> None:
    done = shell.run(*arguments)
    assert (done.returncode, done.stdout if code != 3 else b"", done.stderr != b"") == (code, b"", True)


def test_a_process_ends_with_the_exit_code_of_its_command(shell: Shell) -> None:
    codes = [shell.process(*words).returncode for words in (["version"], ["get", "t"], ["get", "t", "nobody"])]
    assert codes == [0, 2, 3]


def test_the_dead_are_listed_revived_and_purged(shell: Shell) -> None:
    for id in ("a", "b", "c"):
        shell.json("send", "graves", id, "--id", id)
    for leased in shell.json("pull", "graves", "--max", "3")["jobs"]:
        assert (
            shell.json("release", "graves", leased["id"], leased["lease"], "--discard")["results"][0]["result"]
            == "dead"
        )
    listed = shell.json("dead", "list", "graves")
    assert (sorted(job["id"] for job in listed["jobs"]), listed["by_reason"]["rejected"]) == (["a", "b", "c"], 3)
    assert shell.json("dead", "revive", "graves", "a", "--in", "1h")["results"][0]["result"] == "revived"
    assert shell.json("dead", "purge", "graves", "--all", "--dry-run")["matched"] == 2
    assert shell.run("dead", "purge", "graves", "--all").returncode == 2
    assert shell.json("dead", "purge", "graves", "--all", "--yes") == {"matched": 2, "purged": 2, "dry_run": False}
    counts = shell.json("topic", "graves")["counts"]
    assert (counts["scheduled"], counts["dead"]) == (1, 0)


def test_a_topic_gets_a_policy_and_is_paused_and_resumed(shell: Shell) -> None:
    made = shell.json("topic", "policy", "set", "max_attempts=3", 'retry={"ladder":["1s"]}')
    assert (made["policy"]["max_attempts"], made["policy"]["retry"]) == (3, {"ladder": ["1s"]})
    changed = shell.json("topic", "policy", "set", "lease_ms=2m", "max_attempts=null")["policy"]
    assert (changed["max_attempts"], changed["lease_ms"], changed["retry"]) == (None, 120_000, {"ladder": ["1s"]})
    shell.json("send", "policy", "x")
    assert (
        shell.json("topic", "policy", "pause", "--until", "2090-01-01T00:00:00Z")["paused_until_ms"]
        == 3_786_912_000_000
    )
    assert shell.json("pull", "policy") == {"jobs": []}
    assert shell.json("topic", "policy", "resume")["paused"] is False
    assert len(shell.json("pull", "policy", "--wait", "10s", "--ack")["jobs"]) == 1


def test_what_is_set_by_hand_is_the_operators_and_the_rest_stays_the_workers(shell: Shell) -> None:
    with Client(shell.url) if shell.url.startswith("http") else StoreClient(shell.url, None, Patience()) as client:
        client.set_topic("owned", max_attempts=5, retry=["1m"], set_by="worker")
        changed = shell.json("topic", "owned", "set", "max_attempts=9", "ttl_ms=1h")["policy"]
        assert (changed["max_attempts"], changed["retry"], changed["by_worker"]) == (9, {"ladder": ["1m"]}, ["retry"])
        policy = client.set_topic("owned", max_attempts=5, retry="none", ttl="2h", set_by="worker").policy
        assert (policy["max_attempts"], policy["ttl_ms"], policy["retry"]) == (9, 3_600_000, "none")
    shown = shell.run("topic", "owned").stdout.decode()
    assert "none (set by a worker)" in shown
    assert shell.json("topic", "owned", "set", "retry=null")["policy"]["by_worker"] == []
    assert shell.json("topic", "owned", "set", "retry=none")["policy"]["retry"] == "none"


def test_a_file_of_jobs_is_sent_and_cancelled_by_tag(shell: Shell) -> None:
    lines = b"".join(b'{"id":"j%d","body":%d,"delay":"1h","tags":["t%d"]}\n' % (n, n, n % 2) for n in range(1200))
    assert len(shell.json("send", "bulk", "--from", "-", stdin=lines)["results"]) == 1200
    assert shell.json("cancel", "bulk", "--tag", "t0", "--dry-run")["matched"] == 600
    assert shell.json("cancel", "bulk", "--tag", "t0", "--yes")["cancelled"] == 600
    assert shell.json("topic", "bulk")["counts"]["scheduled"] == 600
    again = shell.run("send", "bulk", "--from", "-", stdin=b'{"id":"j1","body":"other"}\n')
    assert (again.returncode, b"line 1 (j1)" in again.stderr) == (4, True)
    wrong = shell.run("send", "bulk", "--from", "-", stdin=b'{"id":"n1","body":1}\n{"id":"n2","bdy":1}\n')
    assert (wrong.returncode, shell.run("get", "bulk", "n1").returncode) == (2, 3)
    assert b"line 2" in wrong.stderr


def test_namespaces_do_not_see_each_other(shell: Shell) -> None:
    shell.json("send", "mine", "x", "--namespace", "shop", "--id", "a")
    assert shell.run("get", "mine", "a").returncode == 3
    assert shell.json("get", "mine", "a", "--namespace", "shop")["id"] == "a"


def test_topics_and_top_show_every_topic(shell: Shell) -> None:
    for name in ("seen-1", "seen-2"):
        shell.json("send", name, "x", "--in", "1h")
    pages = shell.run("topics", "--limit", "1", "--all", "-o", "jsonl").stdout.splitlines()
    assert {"seen-1", "seen-2"} <= {msgspec.json.decode(line)["topic"] for line in pages}
    assert len(pages) == len(shell.json("top", "--once")["topics"])
    assert b"seen-2" in shell.run("top").stdout


def test_doctor_finds_a_healthy_server(shell: Shell) -> None:
    is_server = shell.url.startswith("http")
    done = shell.run("doctor", "-o", "json")
    found = msgspec.json.decode(done.stdout)
    durability, levels = ("fsync", {"ok"}) if is_server else ("standard", {"ok", "warn"})
    assert (done.returncode, found["ok"], found["info"]["durability"]) == (0 if is_server else 1, is_server, durability)
    assert {finding["level"] for finding in found["findings"]} == levels


@pytest.mark.parametrize("kind", ["send", "roundtrip", "lateness"])
def test_bench_does_what_it_says_loses_nothing_and_leaves_nothing(shell: Shell, kind: str) -> None:
    found = shell.json("bench", kind, "-n", "200", "-c", "4", "--topic", f"bench-{kind}")
    assert (found["bench"], found["jobs"], found["refused"]) == (kind, 200, 0)
    if kind == "lateness":
        assert (found["early"], found["duplicates"], found["lost"]) == (0, 0, 0)
    counts = shell.json("topic", f"bench-{kind}")["counts"]
    assert counts["scheduled"] + counts["ready"] + counts["leased"] == 0


@pytest.mark.parametrize("kind", ["send", "roundtrip", "lateness"])
def test_a_bench_that_is_stopped_by_ctrl_c_leaves_nothing(shell: Shell, kind: str) -> None:
    topics = {topic["topic"] for topic in shell.json("topics", "--all")["topics"]}
    command = [*DUELINE, "bench", kind, "-n", "10000000", "-c", "4"]
    bench = subprocess.Popen(
        command,
        env=environment(shell.url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # `make test &` ignores it, with all children
    )
    with bench:
        begun = wait_until(lambda: [name for name in shell.live() if name not in topics])
        bench.send_signal(signal.SIGINT)
        _, said = bench.communicate(timeout=60)
    assert (len(begun), bench.returncode, b"Traceback" in said) == (1, 130, False), said
    assert begun[0] not in {topic["topic"] for topic in shell.json("topics", "--all")["topics"]}


def on_a_terminal(arguments: list[str], url: str, typed: bytes, **more: str) -> tuple[int, str]:
    """Run a command with a terminal for all three streams, type something, and read what appears."""
    master, slave = pty.openpty()
    env = {**environment(url), "TERM": "xterm", "COLUMNS": "200", **more}
    if not more.get("NO_COLOR"):
        env.pop("NO_COLOR")
    with subprocess.Popen([*DUELINE, *arguments], stdin=slave, stdout=slave, stderr=slave, env=env) as process:
        os.close(slave)
        os.write(master, typed)
        seen = b""
        while True:
            try:
                more_seen = os.read(master, 65536)
            except OSError:  # the terminal ends with the last process that holds it
                break
            if not more_seen:
                break
            seen += more_seen
    os.close(master)
    return process.returncode, seen.decode()


def test_on_a_terminal_what_destroys_asks_and_takes_no_for_an_answer(shell: Shell) -> None:
    shell.json("send", "asked", "x", "--in", "1h", "--id", "a", "--tag", "t")
    code, seen = on_a_terminal(["cancel", "asked", "--tag", "t"], shell.url, b"n\n")
    assert (code, "Cancel 1 jobs of asked?" in seen, shell.json("get", "asked", "a")["state"]) == (1, True, "scheduled")
    code, _ = on_a_terminal(["cancel", "asked", "--tag", "t"], shell.url, b"y\n")
    assert (code, shell.json("get", "asked", "a")["state"]) == (0, "cancelled")


def test_colour_is_for_terminals_and_no_color_is_honoured(shell: Shell) -> None:
    shell.json("send", "colour", "x", "--in", "1h", "--id", "a")
    _, coloured = on_a_terminal(["get", "colour", "a"], shell.url, b"")
    _, plain = on_a_terminal(["get", "colour", "a"], shell.url, b"", NO_COLOR="1")
    assert "\x1b[36m" in coloured  # the state in cyan
    assert "\x1b[36m" not in plain
    assert b"\x1b" not in shell.run("get", "colour", "a").stdout


def test_fsck_reads_the_folder_of_a_stopped_server_and_finds_what_is_wrong(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data) as url:
        shell = Shell(url)
        shell.json("send", "kept", "x", "--in", "1h", "--id", "a")
        busy = shell.run("fsck", "--data", str(data))
        assert (busy.returncode, b"stop that server first" in busy.stderr) == (1, True)
    clean = shell.json("fsck", "--data", str(data))
    assert (clean["jobs"], clean["findings"]) == (1, [])
    asyncio.run(damage(data))
    damaged = shell.run("fsck", "--data", str(data), "-o", "jsonl")
    assert (damaged.returncode, len(damaged.stdout.splitlines()) > 0) == (1, True)


async def damage(data: Path) -> None:
    """Take every member out of one index, as a foreign hand could."""
    store = EmbeddedStore(data)
    await store.start()
    client = redis.asyncio.Redis.from_url(store.url)
    try:
        [index] = [key async for key in client.scan_iter(_type="zset") if await client.zcard(key) and b"kept" in key]
        await client.zremrangebyrank(index, 0, -1)
    finally:
        await client.aclose()
        await store.stop()


def test_a_list_is_filtered_as_in_the_api(shell: Shell) -> None:
    base_ms = time.time_ns() // 1_000_000 + 3_600_000
    for number, tag in enumerate(("even", "odd", "even")):
        shell.json(
            "send", "listed", f'{{"n": {number}}}', "--id", f"l{number}", "--tag", tag, "--at", str(base_ms + number)
        )

    def ids(*options: str) -> list[str]:
        return [job["id"] for job in shell.json("list", "listed", *options)["jobs"]]

    assert ids() == ids("--state", "scheduled") == ["l0", "l1", "l2"]
    assert ids("--tag", "even") == ["l0", "l2"]
    assert ids("--due-after", str(base_ms + 1), "--due-before", str(base_ms + 3)) == ["l1", "l2"]
    first = shell.json("list", "listed", "--limit", "2")
    assert ids("--limit", "2", "--cursor", first["next_cursor"]) == ["l2"]
    assert ids("--limit", "1", "--all") == ["l0", "l1", "l2"]
    assert "body" not in shell.json("list", "listed")["jobs"][0]
    assert shell.json("list", "listed", "--body")["jobs"][1]["body"] == {"n": 1}
    assert shell.run("list", "listed", "--state", "asleep").returncode == 2
    assert b'{"n": 2}' in shell.run("list", "listed", "--body").stdout


def test_a_list_fits_in_100_columns_and_never_cuts_an_id(shell: Shell) -> None:
    ids = [f"{number:032x}" for number in range(3)]
    for id in ids:
        long = "x" * 300
        options = ("--id", id, "--tag", f"customer-{long[:50]}", "--tag", "monthly", "--max-attempts", "1")
        shell.json("send", "a-topic-with-a-name", f'{{"to": "{long}"}}', *options)
    commands = (
        ("pull", "a-topic-with-a-name", "--max", "2"),
        ("list", "a-topic-with-a-name"),
        ("list", "a-topic-with-a-name", "--body"),
    )
    shown = {command: shell.run(*command).stdout.decode() for command in commands}
    leased = shell.json("pull", "a-topic-with-a-name")["jobs"][0]
    error = "/srv/shop/tasks.py:12 in charge\nTraceback (most recent call last):\n  ...\nKeyError: 'card'"
    shell.json("release", "a-topic-with-a-name", leased["id"], leased["lease"], "--error", error)
    shown["dead",] = dead = shell.run("dead", "list", "a-topic-with-a-name").stdout.decode()
    shown["topics",] = shell.run("topics").stdout.decode()
    shown["top",] = shell.run("top", "--once").stdout.decode()
    shown["doctor",] = shell.run("doctor").stdout.decode()
    for command, text in shown.items():
        assert max(map(len, text.splitlines())) <= 100, f"{command}\n{text}"
    assert sorted(line.split()[0] for line in shown[commands[1]].splitlines()[1:]) == ids
    assert " tasks.py:12 in charge: K" in dead


def test_a_topic_is_deleted_when_it_holds_no_jobs(shell: Shell) -> None:
    assert shell.run("topics", "delete", "never-made").returncode == 3
    shell.json("send", "short-lived", "x", "--id", "a")
    refused = shell.run("topics", "delete", "short-lived")
    assert (refused.returncode, b"1 ready" in refused.stderr, b"dueline list" in refused.stderr) == (4, True, True)
    shell.json("pull", "short-lived", "--wait", "5s", "--ack")
    assert shell.json("topics", "delete", "short-lived") == {"topic": "short-lived", "result": "deleted"}
    assert shell.run("topic", "short-lived").returncode == 3


def test_a_topic_with_a_policy_is_deleted_only_by_who_means_it(shell: Shell) -> None:
    shell.json("topic", "with-policy", "set", "lease_ms=1m")
    asked = shell.run("topics", "delete", "with-policy")
    assert (asked.returncode, b"--yes" in asked.stderr) == (2, True)
    assert shell.json("topics", "delete", "with-policy", "--yes")["result"] == "deleted"
    assert shell.run("topic", "with-policy").returncode == 3
    assert shell.run("topics", "explode", "x").returncode == shell.run("topics", "delete").returncode == 2


def test_namespaces_are_listed(shell: Shell) -> None:
    shell.json("send", "t", "x", "--namespace", "branch-1")
    names = [one["namespace"] for one in shell.json("namespaces", "--limit", "1", "--all")["namespaces"]]
    assert ("branch-1" in names, names) == (True, sorted(set(names)))
    assert "branch-1" in shell.run("namespaces", "--all").stdout.decode().splitlines()
