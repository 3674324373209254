"""An asyncio program without a framework: parts, signals, and a main of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dueline.integrations.service import serve
from dueline.testing.server import PrivateServer

from .processes import running

PROGRAM = """
import os
from dueline import AsyncClient
from dueline.integrations.service import run
from dueline.worker import Worker

worker = Worker(os.environ["QUEUE"], grace="1h")
client = AsyncClient(os.environ["QUEUE"])

@worker.handles("hello")
async def hello(name: str) -> None:
    print("hello", name)
    await client.send("answers", f"hello {name}")

@worker.handles("hang")
async def hang(name: str) -> None:
    import asyncio
    print("hanging", name)
    await asyncio.sleep(3600)

run(client, worker)
print("ended")
"""


def test_a_program_of_parts_works_until_a_signal(tmp_path: Path, dueline_server: PrivateServer) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with dueline_server.client() as client, running(tmp_path, ["program.py"], QUEUE=dueline_server.url) as program:
        client.send("hello", "ann")
        program.until("hello ann")
        assert [job.json() for job in client.pull("answers", wait="10s")] == ["hello ann"]
        assert program.end() == 0, program.lines
        assert program.lines[-1] == "ended\n"


def until_delivered(pid: int) -> None:
    """Until no signal waits for the process: of two that wait at once it would get one."""
    status = Path(f"/proc/{pid}/status")
    while any(
        line.startswith(("SigPnd", "ShdPnd")) and int(line.split()[1], 16) for line in status.read_text().splitlines()
    ):
        pass


def test_a_second_signal_ends_the_grace_and_the_job_is_given_back(
    tmp_path: Path, dueline_server: PrivateServer
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM + "# twice\n")
    with dueline_server.client() as client, running(tmp_path, ["program.py"], QUEUE=dueline_server.url) as program:
        client.send("hang", "bob", id="a")
        program.until("hanging bob")
        program.process.terminate()
        until_delivered(program.process.pid)
        client.send("hello", "nobody pulls any more")
        program.process.terminate()
        assert program.end() == 0, program.lines
        [job] = client.pull("hang")
        assert (job.attempt, job.delivery) == (1, 2)


async def test_a_signal_ends_a_program_whose_parts_are_still_starting() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def part(name: str, connects: bool = True) -> AsyncGenerator[None]:
        seen.append(f"{name} starts")
        if not connects:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()
        try:
            yield
        finally:
            seen.append(f"{name} ends")

    async def main() -> None:
        seen.append("main")

    async with asyncio.timeout(20):
        await serve(part("first"), part("second", connects=False), part("third"), main=main())
    assert seen == ["first starts", "second starts", "first ends"]


async def test_the_program_ends_with_its_main_and_raises_what_that_raises() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def part(fails: bool = False) -> AsyncGenerator[None]:
        if fails:
            raise ZeroDivisionError
        seen.append("starts")
        try:
            yield
        finally:
            seen.append("ends")

    async def main(error: Exception | None = None) -> None:
        seen.append("main")
        if error is not None:
            raise error

    await serve(part(), main=main())
    assert seen == ["starts", "main", "ends"]
    with pytest.raises(KeyError):
        await serve(part(), main=main(KeyError("x")))
    assert seen[3:] == ["starts", "main", "ends"]
    with pytest.raises(ZeroDivisionError):
        await serve(part(), part(fails=True), main=main())
    assert seen[6:] == ["starts", "ends"]
