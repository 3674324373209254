"""Trouble that a running server logs: refused sends, a store that may delete jobs, push targets that fail."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import redis.asyncio

from dueline.testing.process import free_port
from tests.kit.valkey import PrivateValkey
from tools.faults.connection import Connection
from tools.faults.server_process import ServerProcess

WITHIN_S = 30.0

Heard = Callable[[str], Awaitable[dict[str, Any]]]
Logged = Callable[[], list[dict[str, Any]]]


@asynccontextmanager
async def serving(tmp_path: Path, **env: str) -> AsyncIterator[tuple[Connection, redis.asyncio.Redis, Heard, Logged]]:
    """A server on a store of its own. `heard` waits for an event; `logged` is all that the server has logged."""
    with PrivateValkey() as valkey:
        server = ServerProcess(tmp_path, store_url=valkey.url, env=env)
        store = redis.asyncio.Redis.from_url(valkey.url)
        await server.start()
        connection = Connection(*server.address)

        async def heard(event: str) -> dict[str, Any]:
            [line, *_] = await server.printed(
                lambda line: line.startswith("{") and json.loads(line)["event"] == event, within_s=WITHIN_S
            )
            return json.loads(line)

        try:
            yield connection, store, heard, lambda: logged(server)
        finally:
            connection.close()
            await store.aclose()
            await server.stop()


def logged(server: ServerProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in server.output if line.startswith("{")]


async def send(connection: Connection, topic: str = "t") -> tuple[int, Any]:
    answer = await connection.request("POST", f"/v1/topics/{topic}/jobs", b'{"body":1}')
    return answer.status, answer.json()


async def test_refused_sends_of_a_full_store_are_logged_once_a_minute(tmp_path: Path) -> None:
    async with serving(tmp_path) as (connection, store, heard, logged):
        assert (await send(connection))[0] == 201
        await store.config_set("maxmemory", "1")
        assert [(await send(connection))[0] for _ in range(3)] == [507] * 3
        line = await heard("a send was refused")
        assert (line["level"], line["namespace"], line["topic"], line["code"]) == (
            "warning",
            "default",
            "t",
            "store_full",
        )
    assert len([line for line in logged() if line["event"] == "a send was refused"]) == 1


async def test_a_store_that_may_delete_jobs_is_logged_and_gets_no_sends_until_it_is_mended(tmp_path: Path) -> None:
    async with serving(tmp_path) as (connection, store, heard, _):
        await store.config_set("maxmemory", "100mb")
        await store.config_set("maxmemory-policy", "allkeys-lru")
        line = await heard("the store may delete jobs")
        assert (line["level"], line["guard"], "allkeys-lru" in line["detail"]) == ("warning", "eviction", True)
        status, answer = await send(connection)
        assert (status, "allkeys-lru" in answer["error"]["message"]) == (503, True)
        assert (await heard("a send was refused"))["topic"] == "t"
        await store.config_set("maxmemory-policy", "noeviction")
        await heard("the store does not delete jobs any more")
        assert (await send(connection))[0] == 201


async def test_a_push_target_that_fails_is_logged_with_the_reason(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/hook"

    async with serving(tmp_path, DUELINE_PUSH__ALLOW="127.0.0.0/8") as (connection, _, heard, _):
        target = json.dumps({"url": url, "retry": {"base_ms": 10}}).encode()
        assert (await connection.request("PUT", "/v1/topics/t/push", target)).status == 201
        assert (await send(connection))[0] == 201
        line = await heard("a push failed")
        assert {name: line[name] for name in ("level", "namespace", "topic", "attempt", "failure")} == {
            "level": "warning",
            "namespace": "default",
            "topic": "t",
            "attempt": 1,
            "failure": "connect",
        }
        assert line["error"]


async def test_in_json_every_line_about_trouble_is_json_whatever_process_writes_it(tmp_path: Path) -> None:
    """A worker is killed, the store is full, then it is gone, and the server stops."""
    port = free_port()
    with PrivateValkey(port=port) as valkey:
        env = {"DUELINE_LOG__FORMAT": "json"}
        server = ServerProcess(tmp_path, store_url=valkey.url, env=env, args=("--workers", "2"))
        await server.start()
        try:
            connection = Connection(*server.address)
            assert (await send(connection))[0] == 201
            connection.close()
            os.kill(server.workers()[0], signal.SIGKILL)
            await server.printed(lambda line: "a worker ended" in line)
            valkey.ask("CONFIG", "SET", "maxmemory", "1")
            await server.printed(lambda line: "the store is full" in line)
            valkey.kill()
            await server.printed(lambda line: "the store is unavailable" in line)
        finally:
            await server.stop()
    lines = [json.loads(line) for line in server.output]
    assert [line for line in lines if not {"event", "level", "logger", "timestamp"} <= line.keys()] == []
    assert [line["level"] for line in lines if "ready on http" in line["event"]] == ["info"]
    full = next(line for line in lines if line["event"] == "the store is full")
    assert (full["guard"], full["shard"], full["worker"] in (0, 1)) == ("store_full", f"127.0.0.1:{port}", True)
