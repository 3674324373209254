"""What `dueline serve` says when something is wrong: one line, at once, in the format of the log."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dueline.testing.process import DUELINE, free_port
from tests.kit.full_listener import full_listener
from tests.kit.valkey import PrivateValkey
from tests.kit.waiting import wait_until

from .serve_kit import refused_settings, typed

SOON_S = 15.0  # half of the time after which a server without its store gives up

JSON = {"DUELINE_LOG__FORMAT": "json"}


def refused(*args: str, **env: str) -> tuple[int, str]:
    """Exit code and stderr of a `serve` that does not start."""
    done = subprocess.run(
        [*DUELINE, "serve", "--listen", "127.0.0.1:0", *args],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **env},
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


@contextmanager
def serving(*args: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*DUELINE, "serve", "--listen", "127.0.0.1:0", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    ) as server:
        try:
            yield server
        finally:
            server.kill()


def heard(server: subprocess.Popen[str], event: str) -> dict[str, Any]:
    """The log line with this event, soon; empty when there is none."""
    assert server.stderr is not None
    said, until_s = b"", time.monotonic() + SOON_S
    while (rest_s := until_s - time.monotonic()) > 0 and select.select([server.stderr], [], [], rest_s)[0]:
        chunk = os.read(server.stderr.fileno(), 65_536)
        said += chunk
        *lines, _ = said.split(b"\n")
        for line in map(json.loads, lines):
            if event in line["event"]:
                return line
        if not chunk:
            break
    return {}


def sent(port: int) -> str:
    """What a send is answered."""
    head = ("POST /v1/topics/t/jobs HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Content-Length: 2")
    with socket.create_connection(("127.0.0.1", port)) as caller:
        caller.sendall("\r\n".join([*head, "", "{}"]).encode())
        return caller.recv(65_536).decode()


def events(text: str) -> list[str]:
    """The events of lines that are all JSON objects of one shape."""
    lines = [json.loads(line) for line in text.splitlines()]
    assert all({"event", "level", "logger", "timestamp"} <= line.keys() for line in lines), lines
    return [line["event"] for line in lines]


# --- a store that is away -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_whose_store_refuses_connections_says_so_and_serves_when_it_is_there(workers: str) -> None:
    valkey, port = PrivateValkey(port=free_port()), free_port()
    store = f"redis://127.0.0.1:{valkey.port}"
    listen = ("--listen", f"127.0.0.1:{port}")
    with serving("--store", store, "--workers", workers, *listen, DUELINE_SERVER__LAME_DUCK_MS="0") as server:
        line = heard(server, "the store is unavailable")
        assert (line.get("level"), line.get("reason")) == ("warning", "store_down")
        assert "refused" in line["detail"]
        why = "nothing was done: the store does not answer: cannot reach the store"
        wait_until(lambda: sent(port), lambda answer: why in answer)  # the other worker may be starting
        with valkey:
            assert server.stdout is not None
            assert " ready on http://" in server.stdout.readline()
            server.terminate()
            assert server.wait(30) == 0


def test_a_server_whose_store_takes_no_connection_says_so() -> None:
    with full_listener() as address, serving("--store", f"redis://{address}") as server:
        assert heard(server, "the store has not answered yet") != {}


# --- one line -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("folder", "workers"), [("/proc/dueline/data", "1"), ("file/data", "2")])
def test_a_folder_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path, folder: str, workers: str) -> None:
    (tmp_path / "file").touch()
    code, words = refused("--data", str(tmp_path / folder), "--workers", workers)
    assert code == 1
    assert re.fullmatch(r"dueline: the data folder \S+/data cannot be used: [A-Z][a-z ]+\n", words), words


@pytest.mark.parametrize(
    ("option", "content"),
    [
        ("--config", b"a = ["),
        ("--config", b"\xff\xfe"),
        ("--config", b"[server]\nworkrs = 2\n"),
        ("--ouqiang-config", b"\xff\xfe"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_exit_2(tmp_path: Path, option: str, content: bytes) -> None:
    file = tmp_path / "a.conf"
    file.write_bytes(content)
    said = typed("serve", option, str(file))
    words = said.stderr
    assert (said.exit_code, words.count("\n"), words.startswith("dueline: ")) == (2, 1, True), words


# --- JSON, every line -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["1", "2"])
def test_in_json_every_line_of_a_server_is_json_the_ready_line_included(tmp_path: Path, workers: str) -> None:
    with serving("--data", str(tmp_path), "--workers", workers, **JSON) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        ready = server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        rest, log = server.communicate(timeout=30)
    assert rest == ""
    events(log)
    line = json.loads(ready)
    assert re.fullmatch(r"dueline \S+ ready on http://127\.0\.0\.1:\d+ \(store embedded, .*\)", line["event"])
    assert {name: line[name] for name in ("level", "logger", "store", "durability", "data")} == {
        "level": "info",
        "logger": "dueline.server",
        "store": "embedded",
        "durability": "fsync",
        "data": str(tmp_path),
    }
    assert (line["url"].startswith("http://127.0.0.1:"), "timestamp" in line) == (True, True)


def test_in_json_every_refusal_is_json(tmp_path: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    listen = f"127.0.0.1:{taken.getsockname()[1]}"
    file = tmp_path / "dueline.toml"
    file.write_text('[log]\nformat = "json"\n[server]\nworkrs = 2\n')
    with taken:
        said = [
            refused("--listen", listen, "--data", str(tmp_path), **JSON),
            refused("--data", "/proc/dueline/data", **JSON),
            refused_settings("--config", str(file)),
            refused_settings("--store", "nonsense", **JSON),
        ]
    assert [code for code, _ in said] == [1, 1, 2, 2]
    assert [len(events(words)) for _, words in said] == [1, 1, 1, 1]
    assert f"cannot listen on {listen}" in said[0][1]
    assert "did you mean server.workers?" in said[2][1]


def test_in_json_the_remarks_about_a_file_of_ouqiang_are_json(tmp_path: Path) -> None:
    file = tmp_path / "delay-queue.conf"
    file.write_text("bind_address = 127.0.0.1:0\nbucket_size = 3\n")
    with serving("--data", str(tmp_path / "data"), "--ouqiang-config", str(file), **JSON) as server:
        assert server.stdout is not None
        json.loads(server.stdout.readline())
        server.terminate()
        _, log = server.communicate(timeout=30)
    assert any("bucket_size" in event for event in events(log))


# --- a token that nobody checks -------------------------------------------------------------------------------------


def test_a_token_given_to_a_server_is_reported_to_have_no_effect(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), DUELINE_TOKEN="secret", **JSON) as server:
        line = heard(server, "DUELINE_TOKEN has no effect")
    assert (line.get("level"), "secret" in json.dumps(line)) == ("warning", False)


def test_a_token_sent_to_a_server_that_checks_none_is_logged_once_a_minute(tmp_path: Path) -> None:
    with serving("--data", str(tmp_path), **JSON) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        host, port = url.removeprefix("http://").split(":")
        for _ in range(3):
            with socket.create_connection((host, int(port))) as caller:
                caller.sendall(b"GET /v1/info HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n\r\n")
                assert caller.recv(65_536).startswith(b"HTTP/1.1 200")
        server.terminate()
        _, log = server.communicate(timeout=30)
    assert [event for event in events(log) if "token" in event] == [
        "a token has no effect: this server does not check tokens"
    ]
    assert "secret" not in log
