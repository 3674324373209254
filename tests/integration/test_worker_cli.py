"""`dueline work`: a program as a handler, by its exit code, and what is said to wrong usage."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from dueline import Client, Job
from dueline.testing.process import DUELINE, free_port
from tests.kit.waiting import wait_until

from .serve_kit import environment, served, typed

WITHIN_S = 30.0

PROGRAM = """
import json, os, pathlib, signal, subprocess, sys, time
body = sys.stdin.buffer.read()
alive = pathlib.Path(__file__).with_name("alive")
inherited = [os.open(alive, os.O_WRONLY)] if alive.exists() else []
if body == b"polite":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(json.dumps({name: value for name, value in os.environ.items() if name.startswith("DUELINE_")}), flush=True)
print(repr(body), flush=True)
if body.isdigit():
    print("it is", body.decode(), file=sys.stderr)
    sys.exit(int(body))
if body.startswith(b"leave "):
    left = subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print(left.pid, flush=True)
    print("left it", file=sys.stderr)
    sys.exit(int(body.split()[1]))
if body == b"tree":
    subprocess.Popen(["sleep", "60"], pass_fds=inherited)
if body in (b"polite", b"hang", b"tree"):
    time.sleep(60)
"""


CONNECTING = """
import asyncio
from dueline.cli.main import main
from dueline.worker.runner import Runner

start = Runner.start

async def start_and_report(runner):
    asyncio.get_running_loop().call_soon(print, "connecting")  # so when `start` waits for the first time
    await start(runner)

Runner.start = start_and_report
sys.stdout.reconfigure(line_buffering=True)
main()
"""


class ProcessTree:
    """A program and all that it started: each holds the writing end of a pipe, whose end is the end of all of them."""

    def __init__(self, tmp_path: Path) -> None:
        self._path = tmp_path / "alive"
        os.mkfifo(self._path)

    def met(self) -> None:
        """Return when the program runs."""
        self._fd = os.open(self._path, os.O_RDONLY)

    def ended(self) -> bool:
        """Whether none of them is left, waiting for it."""
        try:
            return bool(select.select([self._fd], [], [], WITHIN_S)[0]) and os.read(self._fd, 1) == b""
        finally:
            os.close(self._fd)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("work") / "data") as url:
        yield url


@contextmanager
def working(url: str, topic: str, tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [*DUELINE, "work", topic, *options, "--", sys.executable, str(program)]
    with subprocess.Popen(
        command, env=environment(url), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as worker:
        try:
            yield worker
        finally:
            worker.kill()


def ended(client: Client, topic: str, id: str, *states: str) -> Job:
    wanted = states or ("done", "dead")
    return wait_until(lambda: client.get(topic, id), lambda job: job.state in wanted, within_s=WITHIN_S)


def test_a_program_gets_the_body_on_stdin_and_the_rest_in_its_environment(url: str, tmp_path: Path) -> None:
    with Client(url) as client, working(url, "env", tmp_path) as worker:
        assert worker.stdout is not None
        client.send("env", {"a": 1.0}, id="a", tags=["x"], headers={"K": "v"}, max_attempts=3)
        report = json.loads(worker.stdout.readline())
        assert worker.stdout.readline() == "b'{\"a\":1.0}'\n"
        due_at_ms = ended(client, "env", "a").due_at_ms
        assert report == {
            "DUELINE_URL": url,
            "DUELINE_JOB_ID": "a",
            "DUELINE_TOPIC": "env",
            "DUELINE_ATTEMPT": "1",
            "DUELINE_MAX_ATTEMPTS": "3",
            "DUELINE_DELIVERY": "1",
            "DUELINE_DUE_AT_MS": str(due_at_ms),
            "DUELINE_MERGE_KEY": "",
            "DUELINE_HEADERS": '{"K":"v"}',
            "DUELINE_TAGS": '["x"]',
        }
        client.send("env", b"\x00\xff", id="b")
        worker.stdout.readline()
        assert worker.stdout.readline() == "b'\\x00\\xff'\n"


EXIT_CODES = {
    0: ("done", None, 1, None),
    65: ("dead", "rejected", 1, "exit 65\nit is 65"),
    75: ("dead", "exhausted", 2, "exit 75\nit is 75"),
    1: ("dead", "exhausted", 2, "exit 1\nit is 1"),
}


def test_the_exit_code_says_what_becomes_of_the_job(url: str, tmp_path: Path) -> None:
    with Client(url) as client, working(url, "codes", tmp_path):
        for code in EXIT_CODES:
            client.send("codes", str(code), id=str(code), max_attempts=2, retry=["10ms"])
        jobs = {code: ended(client, "codes", str(code)) for code in EXIT_CODES}
        assert {code: (job.state, job.reason, job.attempts, job.last_error) for code, job in jobs.items()} == EXIT_CODES


def test_a_worker_shows_its_health_where_the_command_line_says(url: str, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with Client(url) as client, working(url, "health", tmp_path, "--health", address):
        client.send("health", "0", id="a")
        ended(client, "health", "a")
        with urlopen(f"http://{address}/readyz") as answer:
            assert answer.read() == b'{"ready":true}'
        with urlopen(f"http://{address}/metrics") as answer:
            assert b'dueline_worker_jobs_total{outcome="done",topic="health"} 1.0' in answer.read()


@pytest.mark.parametrize("code", [0, 65, 3])
def test_the_exit_code_counts_whatever_the_program_leaves_running(url: str, tmp_path: Path, code: int) -> None:
    topic = f"leave{code}"
    with Client(url) as client, working(url, topic, tmp_path, "--timeout", "5s") as worker:
        assert worker.stdout is not None
        client.send(topic, f"leave {code}", id="a", max_attempts=1)
        left = int([worker.stdout.readline() for _ in range(3)][2])
        try:
            job = ended(client, topic, "a")
            os.kill(left, 0)  # it holds stderr all the while
        finally:
            os.kill(left, signal.SIGKILL)
        assert (job.state, job.attempts) == ("done" if code == 0 else "dead", 1)
        assert job.last_error == (None if code == 0 else f"exit {code}\nleft it")


def test_a_program_that_runs_too_long_is_killed_with_all_that_it_started(url: str, tmp_path: Path) -> None:
    tree = ProcessTree(tmp_path)
    with Client(url) as client, working(url, "slow", tmp_path, "--timeout", "2s"):
        client.send("slow", "tree", id="a", max_attempts=1)
        tree.met()
        job = ended(client, "slow", "a")
        assert (job.state, job.reason) == ("dead", "exhausted")
        assert (job.last_error or "").endswith("did not end within 2 s")
        assert tree.ended()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent has ended")
def test_a_program_ends_with_a_worker_that_is_killed(url: str, tmp_path: Path) -> None:
    tree = ProcessTree(tmp_path)
    with Client(url) as client, working(url, "orphan", tmp_path) as worker:
        client.send("orphan", "hang", id="a")
        tree.met()
        worker.kill()
        assert tree.ended()


@pytest.mark.parametrize(("body", "state"), [("polite", "done"), ("hang", "ready")])
def test_sigterm_is_passed_on_and_costs_no_attempt(url: str, tmp_path: Path, body: str, state: str) -> None:
    topic = f"term-{body}"
    with Client(url) as client, working(url, topic, tmp_path) as worker:
        client.send(topic, body, id="a", max_attempts=1)
        assert worker.stdout is not None
        worker.stdout.readline()
        worker.stdout.readline()  # it has read its body, and sleeps
        worker.terminate()
        assert worker.wait(WITHIN_S) == 0
        job = client.get(topic, "a")
        assert (job.state, job.reason, job.attempts) == (state, None, 1 if state == "done" else 0)


@pytest.mark.parametrize(
    ("own", "options", "asked"),
    [
        (False, False, ("environment", "e", "e")),
        (True, False, ("own", "o", "o")),
        (True, True, ("typed", "t", "t")),
    ],
    ids=["nobody", "the program", "the command line"],
)
def test_a_worker_is_where_the_command_line_says_else_the_program_else_the_environment(
    tmp_path: Path, own: bool, options: bool, asked: tuple[str, str, str]
) -> None:
    """Three servers that only listen: the one that is called is the worker's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as by_environment,
        socket.create_server(("127.0.0.1", 0)) as by_program,
        socket.create_server(("127.0.0.1", 0)) as by_option,
    ):
        names = {by_environment: "environment", by_program: "own", by_option: "typed"}
        urls = {name: f"http://127.0.0.1:{listener.getsockname()[1]}" for listener, name in names.items()}
        report = f'"{urls["own"]}", namespace="o", token="o"' if own else ""
        code = f'from dueline.worker import Worker\nworker = Worker({report})\nworker.handles("t")(print)\n'
        (tmp_path / "shop.py").write_text(code)
        (tmp_path / "token").write_text("t\n")
        (tmp_path / "environment").write_text("e\n")
        typed = ["--url", urls["typed"], "--namespace", "t", "--token-file", "token"] if options else []
        with subprocess.Popen(
            [*DUELINE, "work", "shop:worker", *typed],
            cwd=tmp_path,
            env=environment(urls["environment"], DUELINE_NAMESPACE="e", DUELINE_TOKEN_FILE="environment"),
            stderr=subprocess.DEVNULL,
        ) as worker:
            try:
                called, _, _ = select.select(list(names), [], [], WITHIN_S)
                with called[0].accept()[0] as peer:
                    head = peer.recv(65536).decode().split("\r\n")
                [namespace] = [line.partition(": ")[2] for line in head if line.startswith("Dueline-Namespace")]
                [token] = [line.partition("Bearer ")[2] for line in head if line.startswith("Authorization")]
                assert (names[called[0]], namespace, token) == asked
            finally:
                worker.kill()


@pytest.mark.parametrize(
    ("way", "number"),
    [
        ("silent store", signal.SIGTERM),
        ("no store", signal.SIGTERM),
        ("no server", signal.SIGTERM),
        ("no server", signal.SIGINT),
    ],
)
def test_a_worker_that_is_still_connecting_ends_at_once(way: str, number: int) -> None:
    """A queue that is away is tried for 30 seconds, and an answer that does not come is waited for 10."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if way != "silent store":
            listener.close()
        url = f"{'http' if way == 'no server' else 'redis'}://127.0.0.1:{port}"
        code = f"import signal, sys; sys.argv = ['dueline', 'work', 't', '--url', '{url}', '--', 'true']\n" + CONNECTING
        with subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment(url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as worker:
            try:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "connecting\n"
                worker.send_signal(number)
                _, said = worker.communicate(timeout=5)
                assert (worker.returncode, "Traceback" in said) == (0, False), said
            finally:
                worker.kill()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["work", "topic"], "is not MODULE:WORKER"),
        (["work", "shop:worker", "--concurrency", "4"], "need a command"),
        (["work", "nowhere.at.all:worker"], "there is no module nowhere"),
        (["work", "dueline:Client"], "is not a Worker"),
        (["work", "topic", "--", "no-such-program-here"], "there is no program no-such-program-here"),
        (["work", "topic", "--lease", "1ms", "--", "true"], "lease"),
        (["work", "topic", "--url", "ftp://x", "--", "true"], "is not a queue"),
        (["work", "topic", "--health", "9280", "--", "true"], "health: write HOST:PORT"),
    ],
)
def test_wrong_usage_is_refused_and_starts_nothing(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])  # the command adds to it
    shown = typed(*arguments, DUELINE_URL="http://127.0.0.1:1")
    assert shown.exit_code in (1, 2)
    assert said in " ".join(shown.stderr.replace("│", " ").split())


@pytest.mark.parametrize("wrong", ["undefined_name", "import no_such_library"])
def test_a_worker_that_cannot_be_imported_shows_its_own_frame_first_and_none_of_ours(
    tmp_path: Path, wrong: str
) -> None:
    (tmp_path / "shop_helpers.py").write_text(f"def setup():\n    {wrong}\n")
    (tmp_path / "shop_app.py").write_text("import shop_helpers\n\nshop_helpers.setup()\n")
    done = subprocess.run(
        [*DUELINE, "work", "shop_app:worker"],
        cwd=tmp_path,
        env=environment("http://127.0.0.1:1"),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    first = done.stderr.splitlines()[0]
    assert (done.returncode, f"{tmp_path / 'shop_helpers.py'}:2 in setup" in first) == (1, True), done.stderr
    assert [line.split('"')[1] for line in done.stderr.splitlines() if line.startswith("  File ")] == [
        str(tmp_path / "shop_app.py"),
        str(tmp_path / "shop_helpers.py"),
    ]
