"""Data is missing, as an operator meets it: the refusal, `dueline store accept`, and what tells of it afterwards."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from dueline.cli.main import build
from dueline.testing.process import NotStarted
from tools.faults.connection import Connection
from tools.faults.server_process import ServerProcess

JOBS = 1000


def run(*arguments: str) -> Result:
    return CliRunner().invoke(build(arguments), arguments, input="", env={"NO_COLOR": "1"})


async def sent(server: ServerProcess, jobs: int = JOBS) -> None:
    connection = Connection(*server.address)
    for first in range(0, jobs, 100):
        items = [{"id": f"job-{n}", "body": {"n": n}, "delay_ms": 3_600_000} for n in range(first, first + 100)]
        answer = await connection.request("POST", "/v1/topics/kept/jobs", msgspec.json.encode(items))
        assert answer.status == 201
    connection.close()


async def read(server: ServerProcess, path: str) -> Any:
    connection = Connection(*server.address)
    answer = await connection.request("GET", path)
    connection.close()
    return answer.status, answer.body.decode() if path == "/metrics" else answer.json()


def halved(data: Path) -> int:
    """Cut half of the append-only file off; how many bytes that took away."""
    [file] = (data / "appendonlydir").glob("*.incr.aof")
    size = file.stat().st_size
    with file.open("r+b") as stream:
        stream.truncate(size // 2)
    return size - size // 2


async def lost_half(server: ServerProcess) -> int:
    await server.start()
    await sent(server)
    assert await server.stop() == 0
    return halved(server.data)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_half_a_file_is_refused_and_once_accepted_everything_tells_of_the_loss(
    tmp_path: Path, workers: str
) -> None:
    server = ServerProcess(tmp_path / "data", args=("--workers", workers))
    missing = await lost_half(server)
    with pytest.raises(NotStarted) as refused:
        await server.start()
    assert f"{missing:,} bytes that were on disk are gone" in str(refused.value)
    command = str(refused.value).rsplit("accept the loss: ", 1)[1].strip()

    accepted = await asyncio.to_thread(run, *shlex.split(command)[1:], "--yes")
    assert (accepted.exit_code, f"{missing:,} bytes" in accepted.stdout) == (0, True)
    await server.start()
    try:
        status, ready = await read(server, "/readyz")
        assert (status, ready["ready"], [one["code"] for one in ready["warnings"]]) == (200, True, ["data_loss"])
        assert f"{missing:,} bytes" in ready["warnings"][0]["message"]
        assert f"dueline_store_lost_bytes_total {missing}" in (await read(server, "/metrics"))[1]
        doctor = await asyncio.to_thread(run, "doctor", "-o", "json", "--url", f"http://127.0.0.1:{server.port}")
        found = msgspec.json.decode(doctor.stdout)["findings"]
        assert [one["level"] for one in found if f"{missing:,} bytes" in one["detail"]] == ["warn"]
        assert any(f"{missing:,} bytes" in line for line in server.output), "the log tells it"
        left = (await read(server, "/v1/topics/kept"))[1]["counts"]["scheduled"]
        assert 0 < left < JOBS
    finally:
        await server.stop()


async def test_accepting_needs_a_yes_and_a_stopped_server_and_changes_nothing_where_nothing_is_missing(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    folder = ("--data", str(data))
    server = ServerProcess(data)
    await server.start()
    await sent(server, 100)
    busy = await asyncio.to_thread(run, "store", "accept", *folder, "--yes")
    assert (busy.exit_code, "stop that server first" in busy.stderr) == (1, True)
    await server.stop()
    whole = await asyncio.to_thread(run, "store", "accept", *folder)
    assert (whole.exit_code, whole.stdout) == (0, "nothing is missing\n")

    missing = halved(data)
    asked = await asyncio.to_thread(run, "store", "accept", *folder)
    assert (asked.exit_code, f"{missing:,} bytes" in asked.stderr, "--yes" in asked.stderr) == (2, True, True)
    with pytest.raises(NotStarted):
        await server.start()
    accepted = await asyncio.to_thread(run, "store", "accept", *folder, "--yes", "-o", "json")
    assert msgspec.json.decode(accepted.stdout) == {"accepted_bytes": missing, "moved_to": None}
    foreign = await asyncio.to_thread(run, "store", "accept", "--data", str(tmp_path), "--yes")
    assert (foreign.exit_code, os.listdir(tmp_path)) == (2, [data.name]), "no lock file is left in a foreign folder"
