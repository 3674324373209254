"""A real server after SIGTERM: first not ready but serving, then no longer serving, then gone."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.kit.valkey import PrivateValkey
from tests.kit.waiting import until
from tools.faults.connection import Connection
from tools.faults.server_process import ServerProcess

from .test_workers import ask, body, number, spread

LONG = {"DUELINE_SERVER__LAME_DUCK_MS": "600000"}
POLLS = 4


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_lame_duck_is_not_ready_and_serves_until_the_second_signal(tmp_path: Path, workers: str) -> None:
    with PrivateValkey() as valkey:
        server = ServerProcess(tmp_path, args=("--workers", workers), env=LONG, store_url=valkey.url)
        try:
            await server.start()
            parked = [asyncio.create_task(poll(server)) for _ in range(POLLS)]
            await until(lambda: waiters(server), lambda count: count == POLLS)
            connections = await one_each(server, workers)
            server.signal(signal.SIGTERM)
            await asyncio.gather(*(until_not_ready(connection) for connection in connections))
            reasons = (await ask(server, "GET", "/readyz")).json()["reasons"]
            assert [reason["code"] for reason in reasons] == ["draining"]
            assert (await ask(server, "GET", "/healthz")).status == 200
            sent = await ask(server, "POST", "/v1/topics/other/jobs", body(id="a", body=1))
            pulled = await ask(server, "POST", "/v1/topics/other/pull", body(wait_ms=1000))
            assert (sent.status, [job["id"] for job in pulled.json()["jobs"]]) == (201, ["a"])
            assert await waiters(server) == POLLS
            server.signal(signal.SIGTERM)
            assert [await task for task in parked] == [{"jobs": []}] * POLLS
            assert await server.ended(30) == 0
        finally:
            await server.kill()


async def poll(server: ServerProcess) -> object:
    return (await ask(server, "POST", "/v1/topics/t/pull", body(wait_ms=300_000), timeout_s=60)).json()


async def waiters(server: ServerProcess) -> float:
    """How many polls are parked, in all processes of the server."""
    return number((await ask(server, "GET", "/metrics")).body.decode(), "dueline_longpoll_waiters")


async def until_not_ready(connection: Connection) -> None:
    await until(lambda: connection.request("GET", "/readyz"), lambda answer: answer.status == 503)


async def one_each(server: ServerProcess, workers: str) -> list[Connection]:
    """A connection to each process that serves."""
    return list((await spread(server)).values()) if workers != "1" else [Connection(*server.address)]
