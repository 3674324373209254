"""CPU time per operation: what server, store and load generator spend on a load, each by itself.

It is what the kernel counted as user and system time of each process, so it hardly changes when others use the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from .loading import Orders, run
from .report import middle
from .servers import Server, StoreConnection

PARTS = ("server", "store", "load")


class Usage(msgspec.Struct, frozen=True):
    """What one load used: CPU us and voluntary context switches (wake-ups) per operation, and its rate."""

    cpu_us: dict[str, float]
    wakeups: dict[str, float]
    per_s: float

    @property
    def product_us(self) -> float:
        """Server and store."""
        return self.cpu_us["server"] + self.cpu_us["store"]


class Meter:
    """Measures loads on one server and its store: the embedded one, or that of the connection."""

    def __init__(self, one: Server, store: StoreConnection | None = None) -> None:
        store = store or one.store()
        self.pids = {"server": one.pid, "store": int(store.info("server")["process_id"])}
        self._store = store

    def run(self, orders: Orders) -> Usage:
        """Run a load, once no rewrite of the append-only file is running."""
        self._store.settle()
        before = {name: (cpu_s(pid), wakeups(pid)) for name, pid in self.pids.items()}
        done = run(orders)
        count = max(1, done.in_all)
        cpu_us = {name: 1e6 * (cpu_s(pid) - before[name][0]) / count for name, pid in self.pids.items()}
        woken = {name: (wakeups(pid) - before[name][1]) / count for name, pid in self.pids.items()}
        return Usage({**cpu_us, "load": 1e6 * done.cpu_s / count}, woken, done.per_s)


def median(rounds: Sequence[Usage]) -> Usage:
    """Each figure is the median of its own rounds."""
    cpu_us = {name: middle([one.cpu_us[name] for one in rounds]) for name in rounds[0].cpu_us}
    woken = {name: middle([one.wakeups[name] for one in rounds]) for name in rounds[0].wakeups}
    return Usage(cpu_us, woken, middle([one.per_s for one in rounds]))


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, to the nanosecond, because clock ticks are too coarse for an idle one."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def wakeups(pid: int) -> int:
    """How often its threads have waited for something, and then ran again."""
    found = 0
    for task in Path(f"/proc/{pid}/task").glob("*/status"):
        lines = task.read_text().splitlines()
        found += next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return found
