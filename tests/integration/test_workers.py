"""Several workers behind one address: shared socket, one store, one page of metrics, restarts, no orphans."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.async_tests import async_fixture, one_loop
from tests.kit.waiting import until
from tools.faults.connection import Connection
from tools.faults.server_process import ServerProcess, ended

TWO = ("--workers", "2")


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def number(page: str, series: str) -> float:
    """The value of one series of a metrics page."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


async def ask(server: ServerProcess, method: str, path: str, content: bytes = b"", timeout_s: float = 20) -> Any:
    """One request on a connection of its own, which any worker may take."""
    connection = Connection(*server.address)
    try:
        return await connection.request(method, path, content, timeout_s=timeout_s)
    finally:
        connection.close()


async def spread(server: ServerProcess) -> dict[int, Connection]:
    """One connection to each worker, told apart by the peer that the kernel names."""
    found: dict[int, Connection] = {}
    workers = server.workers()
    async with asyncio.timeout(20):
        while len(found) < len(workers):
            connection = Connection(*server.address)
            await connection.request("GET", "/healthz")
            owner = owner_of(connection.local_port, workers)
            if owner in found:
                connection.close()
            else:
                found[owner] = connection
    return found


def owner_of(client_port: int, workers: list[int]) -> int:
    """Which worker accepted the connection from this port (its socket stands in /proc)."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[2].split(":")[1], 16) == client_port:
            wanted = f"socket:[{fields[9]}]"
            for pid in workers:
                for link in Path(f"/proc/{pid}/fd").iterdir():
                    try:
                        if os.readlink(link) == wanted:
                            return pid
                    except OSError:
                        continue
    raise AssertionError("no worker has this connection")


loop_runner = one_loop  # the tests share servers


@async_fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    """A server for tests that leave it running."""
    server = ServerProcess(tmp_path_factory.mktemp("shared"), args=TWO)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def test_one_scrape_shows_the_sum_over_all_workers_and_store_figures_once(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, args=TWO)
    await server.start()
    try:
        connections = await spread(server)
        for count, connection in enumerate(connections.values(), start=1):
            for _ in range(count):
                answer = await connection.request("POST", "/v1/topics/t/jobs", body(body=1, delay="1h"))
                assert answer.status == 201
        pages = [(await c.request("GET", "/metrics")).body.decode() for c in connections.values()]
        for connection in connections.values():
            connection.close()
        assert [
            (
                number(page, 'dueline_jobs_sent_total{namespace="default",result="created",topic="t"}'),
                number(page, 'dueline_http_requests_total{code="201",method="POST",route="send"}'),
                number(page, 'dueline_http_request_duration_seconds_count{route="send"}'),
                number(page, 'dueline_jobs{namespace="default",state="scheduled",topic="t"}'),
                number(page, "dueline_store_up"),
            )
            for page in pages
        ] == [(3, 3, 3, 3, 1)] * 2
    finally:
        await server.stop()


async def test_a_parked_poll_on_one_worker_is_woken_by_a_send_on_another(shared: ServerProcess) -> None:
    one, other = (await spread(shared)).values()
    parked = asyncio.create_task(one.request("POST", "/v1/topics/polled/pull", body(wait_ms=30_000), timeout_s=40))
    while number((await other.request("GET", "/metrics")).body.decode(), "dueline_longpoll_waiters") < 1:
        pass
    await other.request("POST", "/v1/topics/polled/jobs", body(id="woken", body=1))
    jobs = (await parked).json()["jobs"]
    one.close()
    other.close()
    assert [job["id"] for job in jobs] == ["woken"]


async def test_a_killed_worker_is_replaced_and_the_others_serve_on(shared: ServerProcess) -> None:
    first = shared.workers()
    store = shared.store_pid()
    os.kill(first[0], signal.SIGKILL)
    assert await ended(first[0], 10)
    assert (await ask(shared, "POST", "/v1/topics/t/jobs", body(body=1))).status == 201
    await until(lambda: len(shared.workers()) >= 2)
    connections = await spread(shared)
    for connection in connections.values():
        connection.close()
    assert (len(connections), len(set(connections) & set(first)), shared.store_pid() == store) == (2, 1, True)


async def test_what_a_scrape_has_shown_does_not_fall_when_a_worker_is_killed(shared: ServerProcess) -> None:
    sends = 'dueline_http_requests_total{code="201",method="POST",route="send"}'

    async def shown(connection: Connection) -> float:
        return number((await connection.request("GET", "/metrics")).body.decode(), sends)

    (killed, dying), (_, living) = (await spread(shared)).items()
    for _ in range(5):
        assert (await dying.request("POST", "/v1/topics/t/jobs", body(body=1))).status == 201
    before = await shown(living)
    os.kill(killed, signal.SIGKILL)
    assert await ended(killed, 10)
    without = await shown(living)
    await until(lambda: len(shared.workers()) >= 2)
    connections = await spread(shared)
    replaced = [await shown(connection) for connection in connections.values()]
    for connection in (dying, living, *connections.values()):
        connection.close()
    assert before >= 5
    assert (without, replaced) == (before, [before, before])


async def test_kill_9_of_the_parent_ends_the_workers_and_the_store(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, args=TWO)
    await server.start()
    family = [*server.workers(), server.store_pid() or 0]
    assert len(family) == 3
    await server.kill()
    assert [await ended(pid, 15) for pid in family] == [True, True, True]


async def test_sigterm_drains_every_worker_then_stops_the_store(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, args=TWO)
    await server.start()
    family = [*server.workers(), server.store_pid() or 0]
    connections = (await spread(server)).values()
    parked = [
        asyncio.create_task(c.request("POST", "/v1/topics/t/pull", body(wait_ms=60_000), timeout_s=30))
        for c in connections
    ]
    while number((await ask(server, "GET", "/metrics")).body.decode(), "dueline_longpoll_waiters") < 2:
        pass
    server.signal(signal.SIGTERM)
    answers = [(await task).json() for task in parked]
    code = await server.stop(timeout_s=12)
    for connection in connections:
        connection.close()
    assert (code, answers, [await ended(pid, 0.5) for pid in family]) == (0, [{"jobs": []}] * 2, [True, True, True])


async def test_workers_are_refused_as_one_server_is(shared: ServerProcess) -> None:
    second = await asyncio.create_subprocess_exec(
        *(["dueline", "serve", "--workers", "2", "--listen", "127.0.0.1:0", "--data"]),
        str(shared.data),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    _, words = await second.communicate()
    ready = (await ask(shared, "GET", "/readyz")).status
    assert (second.returncode or 0, ready, f"pid {shared.pid};" in words.decode(), b"Traceback" in words) == (
        1,
        200,
        True,
        False,
    )
