"""Several server processes behind one address: the parent opens the socket and watches, the workers serve.

    parent   opens the sockets (without SO_REUSEPORT), runs the embedded store, starts workers, restarts dead ones
    worker   a new Python process: inherits the sockets, reads its orders from stdin, reports "ready" or "refused ..."

A worker is executed, not only forked, so it shares no event loop, lock descriptor or memory with the parent. Each
worker has a parent-death signal, so it ends even after kill -9 of the parent. Each has a session of its own, so that
Ctrl-C reaches only the parent.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..config.settings import Settings
from ..event_log import EventLog
from ..parent_death import ends_with_parent
from ..store.valkey.child_exit import exit_of

BACK_OFF_S = (0.1, 5.0)
STEADY_S = 30.0  # a worker that lived longer than this is restarted with the shortest back-off
KILL_AFTER_S = 1.5  # after the time to stop is over


class Orders(msgspec.Struct, frozen=True):
    """Start parameters of a worker. `folder`: of this server alone, with the sockets of the
    processes and the state of the store."""

    settings: Settings
    store_url: str
    index: int
    folder: str


class Worker:
    """One slot for a worker process, refilled when the process ends."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.child: subprocess.Popen[bytes] | None = None
        self.ready = asyncio.Event()
        self.restarts = 0


class Workers:
    """N workers on the same listening sockets. `refused` gets the reason when a worker refuses to start."""

    def __init__(self, settings: Settings, listeners: list[socket.socket], store_url: str, folder: Path) -> None:
        self._settings = settings
        self._listeners = listeners
        self._store_url = store_url
        self._folder = folder
        self._tasks: list[asyncio.Task[None]] = []
        self._log = EventLog("dueline.workers")
        self.workers = [Worker(index) for index in range(settings.server.workers)]
        self.refused: asyncio.Future[str] | None = None

    def start(self) -> None:
        """Start all workers. They are ready when `until_ready` returns."""
        self.refused = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(self._keep(worker)) for worker in self.workers]

    async def until_ready(self) -> None:
        for worker in self.workers:
            await worker.ready.wait()

    def reload(self) -> None:
        """Forward SIGHUP. A starting worker has no handler for it yet, and is about to read the files anyway."""
        for worker in self.workers:
            if worker.ready.is_set() and worker.child is not None and worker.child.poll() is None:
                worker.child.send_signal(signal.SIGHUP)

    async def stop(self, again: asyncio.Event, stop_s: float) -> None:
        """Ask all workers to stop, then kill those that take longer than `stop_s`. `again` is set by each further
        signal, and forwarded."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        living = [worker.child for worker in self.workers if worker.child is not None and worker.child.poll() is None]
        for child in living:
            child.send_signal(signal.SIGTERM)
        ending = asyncio.gather(*(exit_of(child) for child in living))
        forwarding = asyncio.create_task(_forward(again, living))
        try:
            await asyncio.wait_for(ending, stop_s + KILL_AFTER_S)
        except TimeoutError:
            for child in living:
                if child.poll() is None:
                    self._log.warning("a worker did not stop in time and is killed", pid=child.pid)
                    child.kill()
            await asyncio.gather(*(exit_of(child) for child in living))
        finally:
            forwarding.cancel()

    async def _keep(self, worker: Worker) -> None:
        delay_s = BACK_OFF_S[0]
        while True:
            born_s = asyncio.get_running_loop().time()
            last_line = await self._life(worker)
            worker.ready.clear()
            if last_line.startswith("refused ") and self.refused is not None and not self.refused.done():
                self.refused.set_result(last_line.removeprefix("refused "))
                return
            if asyncio.get_running_loop().time() - born_s > STEADY_S:
                delay_s = BACK_OFF_S[0]
            code = worker.child.returncode if worker.child is not None else None
            self._log.warning("a worker ended", worker=worker.index, exit=code, again_in_s=delay_s)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, BACK_OFF_S[1])
            worker.restarts += 1

    def _spawn(self) -> tuple[subprocess.Popen[bytes], int]:
        """A new process, and the pipe on which it reports."""
        reading, writing = os.pipe()
        numbers = (writing, *(listener.fileno() for listener in self._listeners))
        try:
            child = subprocess.Popen(
                [sys.executable, "-c", _MAIN, *map(str, numbers)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=numbers,
                start_new_session=True,
                preexec_fn=ends_with_parent(signal.SIGTERM),
            )
        finally:
            os.close(writing)
        return child, reading

    async def _life(self, worker: Worker) -> str:
        """Run one process to its end. Returns the last line it reported."""
        orders = Orders(self._settings, self._store_url, worker.index, str(self._folder))
        worker.child, reading = self._spawn()
        last_line = ""

        def on_line(line: str) -> None:
            nonlocal last_line
            last_line = line
            if line == "ready":
                worker.ready.set()

        listening = asyncio.create_task(_lines(reading, on_line))
        try:
            assert worker.child.stdin is not None
            try:
                worker.child.stdin.write(msgspec.json.encode(orders))
                worker.child.stdin.close()
            except BrokenPipeError:
                pass
            await exit_of(worker.child)
            await listening
        finally:
            listening.cancel()
        return last_line


# Without garbage collection while modules are loaded: they leave hardly any garbage, and looking for it takes long.
_MAIN = "import gc, sys; gc.disable(); from dueline.server.serve import work; sys.exit(work(*map(int, sys.argv[1:])))"


async def _lines(descriptor: int, on_line: Callable[[str], None]) -> None:
    """Call `on_line` with every line written to a pipe, until its writer closes it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    try:
        while line := await reader.readline():
            on_line(line.decode(errors="replace").rstrip("\n"))
    finally:
        transport.close()


async def _forward(again: asyncio.Event, children: list[subprocess.Popen[bytes]]) -> None:
    """Forward every further signal."""
    while True:
        await again.wait()
        again.clear()
        for child in children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
