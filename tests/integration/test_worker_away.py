"""A worker whose server or store is away: it warns at once, goes on trying, and works when the other is back."""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dueline import Client
from dueline.testing.process import DUELINE, free_port
from dueline.worker import SyncQueue
from tests.kit.full_listener import full_listener
from tests.kit.valkey import PrivateValkey
from tools.faults.server_process import ServerProcess

from .scripted_server import ScriptedServer, answer
from .serve_kit import environment

SOON_S = 15.0  # well before the patience of a call is over: the warning is not that of its end


@contextmanager
def working(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """`dueline work` on the topic "t" there; its programs print the body."""
    with subprocess.Popen(
        [*DUELINE, "work", "t", "--", "cat"],
        env=environment(url, PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as worker:
        try:
            yield worker
        finally:
            worker.kill()


def warned(worker: subprocess.Popen[bytes]) -> str:
    """The first warning that it logs, soon; what it logged instead when there is none."""
    assert worker.stderr is not None
    said, until_s = b"", time.monotonic() + SOON_S
    while (rest_s := until_s - time.monotonic()) > 0 and select.select([worker.stderr], [], [], rest_s)[0]:
        chunk = os.read(worker.stderr.fileno(), 65_536)
        said += chunk
        for line in said.decode().splitlines(keepends=True):
            if " WARNING " in line and line.endswith("\n"):
                return line
        if not chunk:
            break
    return said.decode()


async def test_a_worker_without_a_server_warns_and_works_when_the_server_is_there(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", free_port())
    url = f"http://127.0.0.1:{server.port}"

    with working(url) as worker:
        assert f"WARNING no server answers at {url}: " in warned(worker)
        await server.start()
        try:
            with Client(url) as client:
                client.send("t", "hello")
            assert worker.stdout is not None
            assert await asyncio.to_thread(worker.stdout.read, 5) == b"hello"
        finally:
            await server.stop()


def test_a_worker_without_a_store_warns_and_works_when_the_store_is_there() -> None:
    valkey = PrivateValkey(port=free_port())
    url = f"redis://127.0.0.1:{valkey.port}"
    with working(url) as worker:
        said = warned(worker)  # whichever comes first: the refusal, or that there was no answer yet
        assert f"127.0.0.1:{valkey.port}" in said
        assert "cannot reach the store" in said or "has not answered yet: still trying" in said
        with valkey, SyncQueue(url) as queue:
            queue.send("t", "hello")
            assert worker.stdout is not None
            assert worker.stdout.read(5) == b"hello"


def test_a_worker_whose_server_takes_no_connection_warns() -> None:
    with full_listener() as address, working(f"http://{address}") as worker:
        assert f"WARNING http://{address} has not accepted a connection yet: still trying" in warned(worker)


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_command_that_tries_again_says_so_to_people_only(output: str) -> None:
    down = b'{"error":{"code":"store_down","message":"gone","field":null}}'
    with ScriptedServer([answer(503, down), answer(200, b'{"topics":[],"next_cursor":null}')]) as server:
        done = subprocess.run(
            [sys.executable, "-m", "dueline.cli.main", "topics", "-o", output],
            env=environment(server.url),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.returncode, "gone (store_down); trying again" in done.stderr) == (0, output == "table")
