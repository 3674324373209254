"""A private `dueline serve` for fault tests, with its own data folder and port, that can be killed and restarted.

Only processes started here are ever signalled: the server by the pid from its fork, its children by walking down from
that pid. Waiting for an exit uses the kernel's notification (pidfd), not polling.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dueline.testing.process import DUELINE, READY, NotStarted, free_port


class ServerProcess:
    """One server on one data folder. It may be started and stopped any number of times."""

    def __init__(
        self,
        data: Path,
        port: int | None = None,
        *,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        store_url: str | None = None,
    ) -> None:
        self.data = data
        self.port = port or free_port()
        self.args = tuple(args)
        self.env = {"DUELINE_SERVER__LAME_DUCK_MS": "0", **(env or {})}
        self.store_url = store_url
        self.starts = 0
        self.start_ms: list[float] = []  # how long each start took until the ready line
        self.output: list[str] = []
        self._line = asyncio.Event()  # set, and replaced, by each line of output
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, timeout_s: float = 45.0) -> None:
        """Start the server in its own process group and wait for its ready line."""
        where = ["--store", self.store_url] if self.store_url else ["--data", str(self.data)]
        command = [*DUELINE, "serve", "--listen", f"127.0.0.1:{self.port}", *where, *self.args]
        began = time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **self.env},
        )
        self.starts += 1
        ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read(self._process, ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({waiting, self._reading}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not ready.is_set():
            await self.kill()
            raise NotStarted(f"{' '.join(command)}\n" + "\n".join(self.output[-30:]))
        self.start_ms.append((time.monotonic() - began) * 1000)

    async def stop(self, timeout_s: float = 15.0) -> int:
        """Send SIGTERM, wait, and return the exit code. Does nothing if the server is not running."""
        if self._process is None:
            return 0
        if self.running:
            self._process.terminate()
        return await self.ended(timeout_s)

    async def ended(self, timeout_s: float = 15.0) -> int:
        """Wait for the exit, whatever caused it, and return the exit code. (A second SIGTERM would hurry it.)"""
        if self._process is None:
            return 0
        try:
            async with asyncio.timeout(timeout_s):
                code = await self._process.wait()
        except TimeoutError:
            await self.kill()
            raise
        await self._finish_reading()
        return code

    async def printed(self, count: Callable[[str], bool], times: int = 1, within_s: float = 30.0) -> list[str]:
        """The lines of output that `count` accepts, once there are so many. Await it in the event loop of `start`."""
        async with asyncio.timeout(within_s):
            while len(found := [line for line in self.output if count(line)]) < times:
                await self._line.wait()
        return found

    async def kill(self) -> None:
        """kill -9 the server process only."""
        if self._process is not None:
            if self.running:
                self._process.kill()
            await self._process.wait()
            await self._finish_reading()

    async def kill_group(self) -> None:
        """kill -9 the server's process group, as a terminal or a service manager would."""
        assert self._process is not None
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)
        await self._process.wait()
        await self._finish_reading()

    def signal(self, number: int) -> None:
        """Send a signal to the server process."""
        os.kill(self.pid, number)

    def store_pid(self) -> int | None:
        """The pid of the embedded store, if it is running."""
        return next((pid for pid in descendants(self.pid) if _is_store(pid)), None)

    def workers(self) -> list[int]:
        """The pids of the server's other descendants."""
        return [pid for pid in descendants(self.pid) if not _is_store(pid)]

    async def _read(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            text = line.decode(errors="replace").rstrip()
            self.output.append(text)
            self._line.set()
            self._line = asyncio.Event()
            if READY.search(text):
                ready.set()

    async def _finish_reading(self) -> None:
        """Wait for the end of the output. A store that outlives its server may still hold the pipe."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`, nearest first."""
    found: list[int] = []
    todo = [pid]
    while todo:
        parent = todo.pop(0)
        children: list[int] = []
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                children += [int(word) for word in task.read_text().split()]
            except OSError:
                continue
        children = [child for child in children if _lives(child)]  # a dead one stays until its parent reaps it
        found += children
        todo += children
    return found


def _is_store(pid: int) -> bool:
    try:
        return b"valkey" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


async def ended(pid: int, timeout_s: float = 10.0) -> bool:
    """Wait until process `pid` has exited. False if it is still alive."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(fd, gone.set)
    try:
        async with asyncio.timeout(timeout_s):
            await gone.wait()
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def kill_store(server: ServerProcess) -> int | None:
    """kill -9 the embedded store. Returns its pid, or None if there was none at that moment."""
    pid = server.store_pid()
    if pid is not None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return None
    return pid
