"""Starts the load generator (load.py) in its own process and reads its report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from .broken import Broken

GENERATOR = Path(__file__).with_name("load.py")


WORKS = ("set", "send", "pull", "ack", "life", "chained", "bulk", "topics", "consume", "wait")


class Orders(msgspec.Struct, frozen=True):
    """What the generator does: for `seconds`, or until `count` is done. load.py explains the keys."""

    work: str  # one of WORKS
    protocol: str = "native"  # of the works "send", "pull" and "ack"; see protocols.py
    port: int = 0
    socket: str = ""  # of the store, for the work "set"
    topic: str = "bench"
    topics: int = 0  # of the work "topics": this many in turns; 0: all different
    header: str = ""  # one more line in the head of every request
    connections: int = 64
    seconds: float = 0.0
    warm_s: float = 0.0
    count: int | None = None
    body_bytes: int = 100  # 0: every length in body_range
    body_range: tuple[int, int] = (64, 160)
    id: str = "hex"
    delay_ms: tuple[int, int] = (3_600_000, 3_600_000)
    jobs_per_call: int = 100
    acks: str = ""  # a file: the work "pull" leaves there what the work "ack" asks
    per_s: float = 0.0  # a steady rate of sends; 0: as fast as answers come

    def lasting(self, seconds: float) -> Orders:
        """The same orders for this long."""
        return msgspec.structs.replace(self, seconds=seconds)

    def counting(self, count: int) -> Orders:
        """The same orders for this many jobs."""
        return msgspec.structs.replace(self, count=count)


class Outcome(msgspec.Struct, frozen=True):
    """What it did: `done` in `seconds` after the warm-up; `in_all` includes the warm-up and took `cpu_s` of its CPU
    time."""

    done: int
    seconds: float
    in_all: int
    cpu_s: float
    errors: int
    first_error: str
    notes: dict[str, Any]

    @property
    def per_s(self) -> float:
        return self.done / self.seconds if self.seconds else 0.0


class Load:
    """A running generator."""

    def __init__(self, orders: Orders) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", str(GENERATOR), msgspec.json.encode(orders).decode()], stdout=subprocess.PIPE
        )

    def result(self) -> Outcome:
        """Wait for its end. Raises Broken if it received an unexpected answer."""
        out, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise Broken(f"the load generator ended with {self._process.returncode}")
        done = msgspec.json.decode(out, type=Outcome)
        if done.errors:
            raise Broken(f"{done.errors} unexpected answers, the first: {done.first_error}")
        return done

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def run(orders: Orders) -> Outcome:
    """Start it and wait."""
    load = Load(orders)
    try:
        return load.result()
    finally:
        load.kill()
