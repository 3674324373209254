"""Without a URL everything means one queue, and each part says which server or store it uses."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dueline import AsyncClient, Client
from dueline.cli.main import build
from dueline.worker import SyncQueue, Worker, connect
from dueline.worker.queue import resolved
from tests.kit.valkey import PrivateValkey

from .scripted_server import ScriptedServer, answer
from .serve_kit import environment

DEFAULT = "http://127.0.0.1:9277"

PROGRAM = """
from dueline.worker import Worker
worker = Worker()
@worker.handles("t")
async def handle(body): ...
worker.run()
"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DUELINE_URL", "DUELINE_NAMESPACE", "DUELINE_TOKEN", "DUELINE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_client_worker_and_command_line_without_a_url_mean_the_same_server() -> None:
    assert (Client().url, AsyncClient().url, connect().url, resolved(None)) == (DEFAULT,) * 4
    for command in (("topics",), ("work", "t", "--", "true")):
        shown = CliRunner().invoke(build(command), [command[0], "--help"], env={"COLUMNS": "200"}).stdout
        assert DEFAULT in shown, command


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_a_client_logs_its_server(make: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dueline"):
        make()
        make("http://queue.example:1")
    assert [(record.name, record.levelno, record.getMessage()) for record in caplog.records] == [
        ("dueline.client", logging.INFO, f"using the server {DEFAULT} (the default; DUELINE_URL names another)"),
        ("dueline.client", logging.INFO, "using the server http://queue.example:1"),
    ]


def test_a_queue_on_a_store_logs_it_without_its_password(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "dueline"):
        connect("redis://user:hunter2@127.0.0.1:1")
        connect("embedded:./folder")
    assert [record.getMessage() for record in caplog.records] == [
        "using the store redis://***@127.0.0.1:1",
        "using the store embedded:./folder",
    ]


def test_a_worker_program_without_any_logging_says_on_stderr_what_it_uses(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with (
        PrivateValkey() as valkey,
        subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=environment(valkey.url),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        try:
            assert program.stderr is not None
            assert program.stdout is not None
            said = [program.stderr.readline(), program.stderr.readline()]
            program.terminate()
            assert program.stdout.read() == ""
        finally:
            program.kill()
    assert said[0].endswith(f"INFO dueline.worker: using the store {valkey.url}\n")
    assert said[1].endswith("INFO dueline.worker: working on t\n")


def test_a_command_says_its_server_on_stderr_and_programs_that_want_json_hear_nothing() -> None:
    topics = b'{"topics":[],"next_cursor":null}'
    with ScriptedServer([answer(200, topics)]) as server:
        for_people = CliRunner().invoke(build(["topics"]), ["topics", "--url", server.url])
        for_programs = CliRunner().invoke(build(["topics"]), ["topics", "--url", server.url, "-o", "json"])
    assert (for_people.stderr, server.url in for_people.stdout) == (f"using the server {server.url}\n", False)
    assert (for_programs.stderr, for_programs.stdout_bytes) == ("", topics + b"\n")


def test_workers_and_sync_queues_use_an_embedded_store_only_when_it_is_named(tmp_path: Path) -> None:
    assert (tmp_path / "dueline-data").exists() is False
    assert SyncQueue()._url == DEFAULT
    assert Worker("embedded:./folder")._url == "embedded:./folder"


def test_a_token_that_a_store_cannot_check_is_reported(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect("http://127.0.0.1:1", token="secret")
    connect("redis://127.0.0.1:1")
    assert caplog.messages == []
    connect("redis://127.0.0.1:1", token="secret")
    monkeypatch.setenv("DUELINE_TOKEN", "secret")
    connect("redis://127.0.0.1:1")
    text = "the token has no effect: redis://127.0.0.1:1 is a store, and only a server checks tokens"
    assert caplog.messages == [text, text]
