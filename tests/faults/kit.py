"""Shared pieces of the fault tests: short folders, the sync shim, cut files, servers that always end."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tools.faults.server_process import ServerProcess

SHIM_SOURCE = Path(__file__).with_name("shims") / "synced.c"


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for a unix socket; pytest's own often is not."""
    folder = Path(tempfile.mkdtemp(prefix="dlf-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def serving(data: Path, **options: Any) -> AsyncIterator[ServerProcess]:
    """A `dueline serve` that is started here and gone afterwards, whatever happens."""
    server = ServerProcess(data, **options)
    try:
        await server.start()
        yield server
    finally:
        await server.kill()


@dataclass(frozen=True)
class ServersKit:
    """Servers that several tests share. They live in one event loop, in which the tests run one after the other."""

    servers: list[ServerProcess]


@contextmanager
def shared_servers(number: int, store_url: str, runner: asyncio.Runner) -> Iterator[ServersKit]:
    """That many servers on one store."""
    with short_folder() as folder:
        servers = [ServerProcess(folder / str(n), store_url=store_url) for n in range(number)]

        async def start() -> None:
            await asyncio.gather(*(server.start() for server in servers))

        async def kill() -> None:
            await asyncio.gather(*(server.kill() for server in servers))

        try:
            runner.run(start())
            yield ServersKit(servers)
        finally:
            runner.run(kill())


def build_shim(folder: Path) -> Path:
    """Compile the shim that records how much of a file was synced. Skips, with the reason, where that is impossible."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) on this machine: power loss cannot be simulated without the shim")
    built = folder / "synced.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(built), str(SHIM_SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return built


def append_only_file(data: Path) -> Path:
    """The file that grows with every write."""
    [path] = (data / "appendonlydir").glob("*.incr.aof")
    return path


def synced_length(log: Path, path: Path) -> int:
    """How much of `path` was on disk for certain, by the shim's log."""
    lengths = [line.split("\t") for line in log.read_text().splitlines()]
    return max((int(length) for length, name in lengths if Path(name).name == path.name), default=0)


def cut(path: Path, length: int) -> None:
    with path.open("r+b") as file:
        file.truncate(length)
