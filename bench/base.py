"""The base of the throughput rows: plain `SET` from 64 connections, on the same store and in the same run.

Over TCP, because that is what callers of a store use, and over the unix socket. It is measured by redis-benchmark or
valkey-benchmark if one of them is on the PATH, otherwise by our own generator. That one is written in Python and takes
more of the two cores, so the base is lower and the ratios look a little better than they are. The table says which one
was used.
"""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

from . import machine
from .broken import Broken
from .loading import Orders, run

CONNECTIONS = 64
PROBE_REQUESTS = 20_000


class Base:
    """Measures the base at a TCP port or a socket. `per_s` measures once, for about `seconds`."""

    def __init__(self, seconds: float, *, port: int = 0, socket: Path | None = None) -> None:
        self._port = port
        self._socket = str(socket or "")
        self._seconds = seconds
        self._program = machine.set_program()
        self._requests = 0

    @property
    def name(self) -> str:
        return Path(self._program).name if self._program else "own loader"

    def per_s(self) -> float:
        if self._program is None:
            where = Orders("set", port=self._port, socket=self._socket, connections=CONNECTIONS, warm_s=0.3)
            return run(where.lasting(self._seconds)).per_s
        if not self._requests:  # the program takes a number of requests, not a time
            self._requests = max(PROBE_REQUESTS, int(self._run(self._program, PROBE_REQUESTS) * self._seconds))
        return self._run(self._program, self._requests)

    def _run(self, program: str, requests: int) -> float:
        where = ("-s", self._socket) if self._socket else ("-h", "127.0.0.1", "-p", str(self._port))
        words = [program, *where, "-t", "set", "-c", str(CONNECTIONS), "-n", str(requests), "--csv"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        for row in csv.reader(done.stdout.splitlines()):
            if row and row[0] == "SET":
                return float(row[1])
        raise Broken(f"{' '.join(words)} said: {done.stdout}{done.stderr}")
