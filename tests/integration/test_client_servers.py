"""Clients with several servers, on real sockets: both clients, the worker's queue and the command line."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from dueline import Client, Patience
from dueline.client import errors
from dueline.testing.process import DUELINE, free_port
from dueline.worker.http import HttpQueue

from .scripted_server import CUT, ScriptedServer, answer
from .shells import Shell, both

SENT = answer(201, b'{"id":"a","topic":"t","result":"created","state":"ready","due_at_ms":5,"version":1}')
DRAINING = answer(503, b'{"error":{"code":"draining","message":"m","field":null}}', "Retry-After: 1")
EMPTY = answer(200, b'{"jobs":[]}')
PATIENT = Patience(first_s=0.1, jitter=0)


def ids(*servers: ScriptedServer) -> set[str]:
    """The ids of all sends that these servers got."""
    bodies = [request.partition(b"\r\n\r\n")[2] for server in servers for request in server.requests]
    return {msgspec.json.decode(body)["id"] for body in bodies}


@contextmanager
def pair(first: list[bytes], second: list[bytes]) -> Iterator[tuple[ScriptedServer, ScriptedServer, str]]:
    """Two servers with their scripts, and the URL of both."""
    with ScriptedServer(first) as one, ScriptedServer(second) as two:
        yield one, two, f"{one.url},{two.url}"


@both
@pytest.mark.parametrize("trouble", [DRAINING, CUT], ids=["draining", "cut"])
def test_a_send_that_one_server_does_not_serve_goes_to_the_other_at_once_with_the_same_id(
    kind: type[Any], trouble: bytes
) -> None:
    # Whichever server comes first in the client's order, it fails once.
    with (
        pair([trouble, SENT], [trouble, SENT]) as (one, two, url),
        Shell(kind, url, sleeping=False, patience=PATIENT) as client,
    ):
        assert client.send("t", 1).result == "created"
        assert (client.waits, len(ids(one, two))) == ([0.1] if trouble is CUT else [1.1], 1)
    assert len(one.requests) + len(two.requests) == 3


@both
def test_a_server_that_is_gone_is_left_and_the_other_is_kept(kind: type[Any]) -> None:
    with ScriptedServer([SENT]) as living:
        gone = f"http://127.0.0.1:{free_port()}"
        with Shell(kind, f"{gone},{living.url}", sleeping=False, patience=PATIENT) as client:
            for _ in range(5):
                client.send("t", 1)
            assert (client.waits, living.connections, len(living.requests)) == ([], 1, 5)


@both
def test_a_server_that_fails_costs_one_try_and_not_one_per_call(kind: type[Any]) -> None:
    with (
        pair([CUT], [SENT]) as (failing, serving, url),
        Shell(kind, url, sleeping=False, patience=PATIENT) as client,
    ):
        for _ in range(5):
            client.send("t", 1)
    assert len(failing.requests) <= 1
    assert len(serving.requests) == 5


@both
def test_when_all_servers_are_gone_the_error_names_the_last_one_and_the_tries(kind: type[Any]) -> None:
    urls = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
    with Shell(kind, ",".join(urls), sleeping=False, patience=Patience(deadline_s=0.05)) as client:
        with pytest.raises(errors.Unreachable) as caught:
            client.send("t", 1)
        assert "after 2 tries" in caught.value.message
        assert client.waits == []


async def test_a_waiting_pull_goes_on_at_another_server() -> None:
    with pair([CUT, EMPTY], [CUT, EMPTY]) as (one, two, url):
        queue = HttpQueue(url, patience=Patience(first_s=0.01))
        assert await queue.pull(["t"], wait_ms=1000) == ()
        assert (len(one.requests), len(two.requests)) in ((2, 1), (1, 2))
        assert queue.url == url
        await queue.close()


def test_the_command_line_takes_several_servers_and_checks_each() -> None:
    with ScriptedServer([SENT]) as living:
        gone = f"http://127.0.0.1:{free_port()}"
        url = f"{gone},{living.url}"
        sent = run("send", "t", "1", "--url", url)
        assert (sent.returncode, len(living.requests)) == (0, 1), sent.stderr
        checked = run("doctor", "-o", "json", "--url", url)
        found = [finding["detail"] for finding in msgspec.json.decode(checked.stdout)["findings"]]
        assert [detail.partition(":")[0] for detail in found] == [
            "no server answers at http",
            "the answer is not this API's",
        ]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*DUELINE, *words], capture_output=True, text=True, timeout=60)


def test_a_wrong_list_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="put a comma between"):
        Client("http://127.0.0.1:1,127.0.0.1:2")
