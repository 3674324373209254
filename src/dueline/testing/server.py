"""A real, private `dueline serve` for a test: its own data folder and port, and an embedded store with fsync.

    with PrivateServer(tmp_path / "data") as server:
        with server.client() as client: ...
        server.kill()                    # kill -9
        server.start()                   # the same data, the same port

It needs `dueline[server]`. It stops when the test process ends, however that ends.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from ..client.client import Client
from .process import DUELINE, READY, NotStarted, free_port

START_WITHIN_S = 45.0
STOP_WITHIN_S = 15.0


class PrivateServer:
    """One server on one folder. It may be started and stopped any number of times.

    `args` are added to the command, `env` to its environment; the test's own DUELINE_ variables are not passed on."""

    def __init__(
        self,
        data: Path | str,
        *,
        port: int | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.data = Path(data)
        self.port = port or free_port()
        self.output: list[str] = []
        self._args = tuple(args)
        self._env = dict(env or {})
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process.pid

    def client(self, namespace: str | None = None) -> Client:
        """A new client of this server."""
        return Client(self.url, namespace)

    def __enter__(self) -> PrivateServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, within_s: float = START_WITHIN_S) -> None:
        """Start it and wait until it is ready. Raises NotStarted, with the end of the output."""
        if self.running:
            return
        from ..parent_death import ends_with_parent

        command = [*DUELINE, "serve", "--listen", f"127.0.0.1:{self.port}", "--data", str(self.data), *self._args]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DUELINE_")}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**kept, **self._env},
            start_new_session=True,  # Ctrl-C must reach only the test, which then stops the server
            preexec_fn=ends_with_parent(any_thread=True),
        )
        ready: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=(self._process, ready), daemon=True)
        self._reader.start()
        try:
            is_ready = ready.get(timeout=within_s)
        except queue.Empty:
            is_ready = False
        if not is_ready:
            self.kill()
            raise NotStarted(f"{' '.join(command)}\n" + "\n".join(self.output[-30:]))

    def stop(self) -> int:
        """Send SIGTERM, wait, and return the exit code; 0 if it was never started."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> int:
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            code = self._process.wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if self._reader is not None:
            self._reader.join(1.0)  # a killed server's store may hold the pipe a little longer
        return code

    def _read(self, process: subprocess.Popen[str], ready: queue.SimpleQueue[bool]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.output.append(line.rstrip())
                if READY.search(line):
                    ready.put(True)
        ready.put(False)
