"""A private redis-server of the system that speaks only TLS, with certificates of a private authority. The embedded
Valkey has no TLS.

Its certificate is for `localhost` and `store.test`, not for 127.0.0.1. Operators of the store use the unix socket.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from datetime import datetime
from functools import cache
from pathlib import Path

import redis
import trustme

from dueline.parent_death import ends_with_parent
from dueline.store.valkey.tls import StoreTls
from dueline.testing.process import free_port

from .valkey import SYSTEM_REDIS


@cache
def missing() -> str | None:
    """Why the tests with this store are skipped. None: they can run."""
    if SYSTEM_REDIS is None:
        return "there is no redis-server here (Debian: apt-get install redis-tools)"
    command = ["redis-server", "--port", "0", "--tls-port", "1"]
    asked = subprocess.run(command, executable=SYSTEM_REDIS, capture_output=True, text=True, timeout=20)
    return None if "No tls-cert-file" in asked.stdout else "this redis-server has no TLS"  # it ends, with or without


class Pair:
    """A certificate and its key as files, replaced by `issue`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.cert, self.key = folder / f"{name}.pem", folder / f"{name}.key"

    def issue(self, authority: trustme.CA, *names: str, not_after: datetime | None = None) -> None:
        issued = authority.issue_cert(*names, not_after=not_after)
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())
        self.key.chmod(0o600)


class TlsRedis:
    """`tls` are the settings that reach it. `ca` and `client` are the files of its authority and of a client.
    `watched`: the port of a primary; the process is its sentinel then, and calls the service `jobs`."""

    def __init__(self, folder: Path, *, options: tuple[str, ...] = (), watched: int = 0) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"rediss://localhost:{self.port}"
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.server, self.client = Pair(folder, "server"), Pair(folder, "client")
        self.tls = StoreTls(ca=str(self.ca))
        self._options = options
        self._watched = watched
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it with a new certificate and return when it takes connections. Its jobs survive a restart."""
        self.trust(self.authority)
        self.server.issue(self.authority, "localhost", "store.test")
        self.client.issue(self.authority, "client.test")
        if self._watched:
            config = self.folder / "sentinel.conf"
            config.write_text(f"sentinel monitor jobs 127.0.0.1 {self._watched} 1\n")
            kind = (str(config), "--sentinel")
        else:
            kind = ("--unixsocket", str(self.folder / "r.sock"), "--dir", str(self.folder), "--save", "")
            kind += ("--appendonly", "yes", "--appendfsync", "no")
        self._process = subprocess.Popen(
            [
                *("redis-server", *kind, "--port", "0", "--tls-port", str(self.port), "--bind", "127.0.0.1"),
                *("--tls-cert-file", str(self.server.cert), "--tls-key-file", str(self.server.key)),
                *("--tls-ca-cert-file", str(self.ca), "--tls-auth-clients", "no", *self._options),
            ],
            executable=SYSTEM_REDIS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=ends_with_parent(signal.SIGKILL, any_thread=True),
        )
        assert self._process.stdout is not None
        log: list[str] = []
        for text in self._process.stdout:
            log.append(text)
            if "Ready to accept connections" in text or "Sentinel ID is" in text:
                break
        else:
            raise RuntimeError("the private redis did not start:\n" + "".join(log))
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def trust(self, *authorities: trustme.CA) -> None:
        """Write the file of authorities that clients, and the store, trust."""
        self.ca.write_bytes(b"".join(one.cert_pem.bytes() for one in authorities))

    def command(self, *words: str) -> object:
        """One command of an operator, past TLS."""
        with redis.Redis(unix_socket_path=str(self.folder / "r.sock"), decode_responses=True) as client:
            return client.execute_command(*words)

    def show(self, pair: Pair) -> None:
        """Use this certificate for new connections."""
        self.command("CONFIG", "SET", "tls-cert-file", str(pair.cert), "tls-key-file", str(pair.key))

    @property
    def env(self) -> dict[str, str]:
        """The variables of a program that may connect."""
        return {"DUELINE_STORE__TLS__CA": str(self.ca)}
