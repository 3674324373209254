"""A good client beside strangers: 10,000 connections from one address, 100 pipelining clients and 2,000 slow ones.

All of them share the server's two cores, so every latency also depends on the CPU time that is left. The base is the
same good client beside busy loops (spinners) that burn as much CPU as the crowd, including the crowd's cost in server
and store. A ratio above 1 therefore shows what the crowd takes away by other means than CPU time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from ..broken import Broken
from ..report import Line, at_most, percentile
from ..servers import Server, server
from ..sizes import Sizes
from ..usage import cpu_s

COMPANY = Path(__file__).parents[1] / "company.py"
SETTLE_S = 4.0  # until all connections are open and the first answers have arrived
STRANGERS = ("pipelining", "slow", "flood")


class Person:
    """One process of company.py."""

    def __init__(self, role: str, first: float, seconds: float) -> None:
        words = [sys.executable, "-S", "-E", str(COMPANY), role, str(first), str(seconds)]
        self._role = role
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE)

    def cpu_s(self) -> float:
        return cpu_s(self._process.pid)

    def result(self) -> dict[str, Any]:
        out, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise Broken(f"the {self._role} client ended with {self._process.returncode}")
        return msgspec.json.decode(out)


class Measure:
    """One server, and the measurements that take turns on it."""

    def __init__(self, one: Server, seconds: float) -> None:
        self._server = one
        self._seconds = seconds
        self._pids = (one.pid, int(one.store().info("server")["process_id"]))
        self.pipelined: list[float] = []  # answers per second
        self.kept = 0  # of the connections from one address

    def crowd(self) -> tuple[list[float], float, float]:
        """The good client's latencies, and the shares of a core that the crowd, and server and store, have used."""
        people = [Person(role, self._server.port, self._seconds + 2 * SETTLE_S) for role in STRANGERS]
        time.sleep(SETTLE_S)
        before_s, served_s = sum(person.cpu_s() for person in people), self._served_s()
        latencies = self._good()
        own = (sum(person.cpu_s() for person in people) - before_s) / self._seconds
        served = (self._served_s() - served_s) / self._seconds
        self.pipelined.append(people[0].result()["done"] / (self._seconds + 2 * SETTLE_S))
        people[1].result()
        self.kept = people[2].result()["done"]
        return latencies, own, served

    def beside(self, share: float) -> tuple[list[float], float]:
        """The good client's latencies beside spinners, and the share of a core that server and store have used."""
        whole = [Person("spinner", share / 2, self._seconds + 1) for _ in range(2)] if share else []
        time.sleep(0.3)
        served_s = self._served_s()
        latencies = self._good()
        served = (self._served_s() - served_s) / self._seconds
        for person in whole:
            person.result()
        return latencies, served

    def _good(self) -> list[float]:
        return Person("good", self._server.port, self._seconds).result()["latencies_ms"]

    def _served_s(self) -> float:
        return sum(cpu_s(pid) for pid in self._pids)


def crowd(sizes: Sizes) -> list[Line]:
    crowded: list[float] = []
    spun: list[float] = []
    spun_own: list[float] = []
    shares: list[float] = []
    with server() as one:
        measure = Measure(one, sizes.crowd_s)
        alone, quiet = measure.beside(0)
        for _ in range(sizes.rounds):
            latencies, own, served = measure.crowd()
            crowded += latencies
            share = min(1.98, own + served - quiet)
            shares.append(share)
            spun += measure.beside(share)[0]
            spun_own += measure.beside(own)[0]
    p99, base = percentile(crowded, 0.99), percentile(spun, 0.99)
    note = (
        f"p99 alone {percentile(alone, 0.99):.1f} ms, beside a spinner for the clients' CPU only "
        f"{percentile(spun_own, 0.99):.1f}; p50 {percentile(crowded, 0.5):.1f} (base {percentile(spun, 0.5):.1f}, "
        f"alone {percentile(alone, 0.5):.1f}); the crowd took {sum(shares) / len(shares):.2f} cores and was answered "
        f"{sum(measure.pipelined) / len(measure.pipelined):,.0f} /s; {measure.kept:,} of 10,000 connections were kept"
    )
    return [Line("good client's p99 beside a crowd", p99, "ms", base, at_most(1.5), note)]
