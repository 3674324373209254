"""Private servers for one row, each with its own folder and port, stopped by pid when the row is over."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from dueline.client.connection import Connection
from dueline.http1.messages import BadResponse, request_bytes
from dueline.parent_death import ends_with_parent
from dueline.testing.process import DUELINE, free_port
from tools.faults.server_process import descendants

from .broken import Broken

READY_S = 120.0
STOP_S = 20.0
CALL_S = 120.0
PRODUCT = "BENCH_PRODUCT"
"""Names the checkout whose `dueline` all rows start."""


class StoreConnection:
    """A plain connection to the store, for statistics and settings. One command at a time."""

    def __init__(self, path: Path) -> None:
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.settimeout(60)
        self._sock.connect(str(path))
        self._file = self._sock.makefile("rb")

    def ask(self, *words: str) -> Any:
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        self._sock.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        return self._reply()

    def info(self, section: str = "everything") -> dict[str, str]:
        text = cast(bytes, self.ask("INFO", section)).decode()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def number(self, name: str) -> int:
        return int(self.info()[name])

    def rewrite(self) -> None:
        """Compact the append-only file and wait until it is done."""
        self.settle()
        self.ask("BGREWRITEAOF")
        self.settle()

    def settle(self) -> None:
        """Wait until no rewrite is running, because its fork would be measured too."""
        while self.number("aof_rewrite_in_progress") or self.number("aof_rewrite_scheduled"):
            time.sleep(0.1)

    def close(self) -> None:
        self._file.close()
        self._sock.close()

    def _reply(self) -> Any:
        line = self._file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-" or not line:
            raise Broken(f"the store said {line!r}")
        if kind == b"$":
            return None if rest == b"-1" else self._file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest


class Client:
    """Calls that are not the load, on one of the SDK's connections. A call may be started now and finished later."""

    def __init__(self, port: int) -> None:
        self._connection = Connection("127.0.0.1", port, CALL_S)

    def start(self, method: str, path: str, value: object = None) -> None:
        """Write a request."""
        body = b"" if value is None else msgspec.json.encode(value)
        headers = {"Host": "127.0.0.1", "Content-Type": "application/json"}
        self._connection.send(request_bytes(method, path, headers, body), time.monotonic() + CALL_S)

    def finish(self) -> tuple[int, Any]:
        """Read its answer: status and value. Raises ConnectionError when the server closes first."""
        response = self._connection.receive(time.monotonic() + CALL_S)
        return response.status, msgspec.json.decode(response.body) if response.body else None

    def call(self, method: str, path: str, value: object = None) -> Any:
        """A whole call that has to succeed."""
        self.start(method, path, value)
        status, answer = self.finish()
        if status >= 300:
            raise Broken(f"{method} {path} answered {status}: {answer}")
        return answer

    def fetch(self, path: str) -> bytes:
        """The answer to a GET that has to succeed, as it is."""
        self.start("GET", path)
        response = self._connection.receive(time.monotonic() + CALL_S)
        if response.status >= 300:
            raise Broken(f"GET {path} answered {response.status}: {response.body[:500]!r}")
        return response.body

    def close(self) -> None:
        self._connection.close()


class Server:
    """One process that serves HTTP: `dueline serve`, or another command that listens on `port`."""

    def __init__(
        self,
        data: Path,
        *,
        store: str | None = None,
        command: Sequence[str] | None = None,
        port: int | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] = {},
        product: str = "",
    ) -> None:
        self.data = data
        lame_duck = {"DUELINE_SERVER__LAME_DUCK_MS": "0"} if store else {}  # older checkouts do not know it
        self._environment = {**lame_duck, **environment, **dueline_path(product)}
        self.port = port or free_port()
        where = ["--store", store] if store else ["--data", str(data)]
        self._command = command or (
            *dueline(product),
            "serve",
            "--listen",
            f"127.0.0.1:{self.port}",
            *where,
            *arguments,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._store_connections: list[StoreConnection] = []
        self._output = data.with_name(f"{data.name}.out")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def socket_path(self) -> Path:
        """The embedded store's socket."""
        return self.data / "store.sock"

    @property
    def store_url(self) -> str:
        return f"unix://{self.socket_path}"

    def start(self) -> None:
        """Start it and wait until it reports ready."""
        self.launch()
        deadline_s = time.monotonic() + READY_S
        while not self.is_ready():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline_s:
                self.stop()
                raise Broken(f"{' '.join(self._command)} did not start:\n{self.log()[-2000:]}")
            time.sleep(0.05)

    def launch(self) -> None:
        """Start it in its own process group, without waiting. It ends with this process, even if that is killed."""
        with self._output.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=ends_with_parent(signal.SIGTERM),
                env={**os.environ, **self._environment},
            )

    def is_ready(self) -> bool:
        try:
            client = Client(self.port)
        except OSError:
            return False
        try:
            client.start("GET", "/readyz")
            return client.finish()[0] == 200
        except (OSError, ValueError, BadResponse):
            return False
        finally:
            client.close()

    def stop(self) -> None:
        """Send SIGTERM, and after a while SIGKILL to its process group. Safe at any time."""
        for connection in self._store_connections:
            connection.close()
        self._store_connections.clear()
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def kill(self) -> None:
        """kill -9 the server and its store; nothing is cleaned up."""
        process, self._process = self._process, None
        assert process is not None
        for pid in [process.pid, *descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def open_store_port(self) -> int:
        """Let the embedded store listen on a loopback TCP port, too."""
        port, store = free_port(), self.store()
        store.ask("CONFIG", "SET", "bind", "127.0.0.1")
        store.ask("CONFIG", "SET", "port", str(port))
        return port

    def store(self) -> StoreConnection:
        connection = StoreConnection(self.socket_path)
        self._store_connections.append(connection)
        return connection

    def client(self) -> Client:
        return Client(self.port)

    def log(self) -> str:
        return self._output.read_text(errors="replace")


@contextlib.contextmanager
def folder() -> Generator[Path]:
    """A folder for one row, on a real disk (BENCH_DIR, else the system's), with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="dueline-bench-", dir=os.environ.get("BENCH_DIR")) as name:
        yield Path(name)


def dueline(product: str = "") -> tuple[str, ...]:
    """The command `dueline` of a checkout, else of BENCH_PRODUCT, else ours. A checkout without an environment of its
    own uses our Python and packages."""
    product = product or os.environ.get(PRODUCT, "")
    own = Path(product) / ".venv/bin/python"
    return (str(own) if product and own.exists() else sys.executable, *DUELINE[1:])


def dueline_path(product: str = "") -> dict[str, str]:
    """The environment of that command."""
    product = product or os.environ.get(PRODUCT, "")
    return {"PYTHONPATH": str(Path(product).resolve() / "src")} if product else {}


@contextlib.contextmanager
def server(
    data: Path | None = None, *, store: str | None = None, environment: Mapping[str, str] = {}, product: str = ""
) -> Generator[Server]:
    """A running `dueline serve`. `product`: a checkout whose code is run instead of ours."""
    with contextlib.ExitStack() as stack:
        place = data or stack.enter_context(folder()) / "data"
        one = Server(place, store=store, environment=environment, product=product)
        stack.callback(one.stop)
        one.start()
        yield one
