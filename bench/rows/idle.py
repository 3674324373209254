"""The cost of many topics with pending jobs while nobody waits for them. It should be nothing."""

from __future__ import annotations

import time

import msgspec

from ..loading import Orders, run
from ..report import Line, below
from ..servers import Server, StoreConnection, descendants, server
from ..sizes import Sizes
from ..usage import cpu_s

CALM_PER_S = 20
CALM_WITHIN_S = 60.0
AFTER_MINUTE_S = 5.0


class Cost(msgspec.Struct, frozen=True):
    """What a server and its store did while nobody asked anything. CPU in percent of one core."""

    seconds: float
    commands_per_s: float
    server_cpu: float
    store_cpu: float
    calm_after_s: float


def idle(sizes: Sizes) -> list[Line]:
    with server() as one:
        done = run(
            Orders("topics", port=one.port, topic="idle", connections=64, count=sizes.idle_topics)
        )  # each job is due in an hour
        cost = idle_cost(one, sizes.quiet_s)
    note = f"{sizes.idle_topics:,} topics, {cost.seconds:.0f} s"
    details = {"topics": sizes.idle_topics, "made_per_s": done.per_s, "calm_after_s": cost.calm_after_s}
    return [
        Line("idle topics: store commands", cost.commands_per_s, "/s", None, below(5), note, details),
        Line("idle topics: server CPU", cost.server_cpu, "%", None, below(1), note),
        Line("idle topics: store CPU", cost.store_cpu, "%", None, None, note),
    ]


def idle_cost(one: Server, quiet_s: float) -> Cost:
    """Measure for this long, once the work caused by earlier calls is done."""
    store = one.store()
    calm_s = _until_calm(store)
    store_pid = int(store.info("server")["process_id"])
    server_pids = [one.pid, *(pid for pid in descendants(one.pid) if pid != store_pid)]
    commands, cpu, store_cpu = store.number("total_commands_processed"), _cpu(server_pids), cpu_s(store_pid)
    begun_s = time.monotonic()
    time.sleep(quiet_s)
    cpu, store_cpu = _cpu(server_pids) - cpu, cpu_s(store_pid) - store_cpu
    seconds = time.monotonic() - begun_s
    commands = store.number("total_commands_processed") - commands - 1  # the first look was one
    return Cost(seconds, commands / seconds, 100 * cpu / seconds, 100 * store_cpu / seconds, calm_s)


def _until_calm(store: StoreConnection) -> float:
    """Wait until the work caused by the sends is done. A store that does not become idle is measured as it is. The
    charts count the pending jobs once more after the last minute in which something happened."""
    time.sleep(60 - time.time() % 60 + AFTER_MINUTE_S)
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < CALM_WITHIN_S:
        store.settle()
        before = store.number("total_commands_processed")
        time.sleep(1)
        if store.number("total_commands_processed") - before <= CALM_PER_S:
            break
    return time.monotonic() - begun_s


def _cpu(pids: list[int]) -> float:
    return sum(cpu_s(pid) for pid in pids)
