"""The base of the throughput rows: plain `SET` from 64 connections, on the same store and in the same run.

It is measured by redis-benchmark or valkey-benchmark if one of them is on the PATH, otherwise by our own generator.
That one is written in Python and takes more of the two cores, so the base is lower and the ratios look a little better
than they are. The table says which one was used.
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
    """Measures the base. `per_s` measures once, for about `seconds`."""

    def __init__(self, socket_path: Path, seconds: float) -> None:
        self._socket = str(socket_path)
        self._seconds = seconds
        self._program = machine.set_program()
        self._requests = 0

    @property
    def name(self) -> str:
        return Path(self._program).name if self._program else "own loader"

    def per_s(self) -> float:
        if self._program is None:
            return run(
                Orders("set", socket=self._socket, connections=CONNECTIONS, seconds=self._seconds, warm_s=0.3)
            ).per_s
        if not self._requests:  # the program takes a number of requests, not a time
            self._requests = max(PROBE_REQUESTS, int(self._run(self._program, PROBE_REQUESTS) * self._seconds))
        return self._run(self._program, self._requests)

    def _run(self, program: str, requests: int) -> float:
        words = [program, "-s", self._socket, "-t", "set", "-c", str(CONNECTIONS), "-n", str(requests), "--csv"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        for row in csv.reader(done.stdout.splitlines()):
            if row and row[0] == "SET":
                return float(row[1])
        raise Broken(f"{' '.join(words)} said: {done.stdout}{done.stderr}")
