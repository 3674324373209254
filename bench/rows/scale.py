"""What Cluster and replication cost: CPU time per job of the server and of the store, in turns within one run.

    one node and Cluster     the same work on one node and on three primaries without replicas, durability standard:
                             single sends, and whole lives (send, pull, ack), one job each; in a topic with one
                             partition, and in a topic whose six partitions lie on all three primaries
    standard and replicated  single sends on a primary with two replicas and three sentinels: two servers on one store;
                             the store's time is that of all three nodes
    due storm                jobs that are due are pulled and acked, 100 per call, on one node; `bench.due_storm` uses
                             the store's time per job

No store writes to disk, so that the figures are of links and scripts. All stores listen on TCP. The results are medians
of rounds that follow one another. The note of the last line says what the rate is bounded by: how busy each process
was, as a share of one core.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec

from dueline.testing.process import free_port
from tests.kit.valkey import PrivateCluster, PrivateSentinels, PrivateValkey, running_stores

from ..loading import Orders, run
from ..report import Line, at_most, middle
from ..servers import Server, folder
from ..sizes import Sizes
from ..usage import cpu_s

WARM_S = 0.3
PARTITIONS = 6
STORM_JOBS = 50_000
STORM_CONSUMERS = 16


class _Side:
    """One server and the nodes of its store. Lists have one value per round."""

    def __init__(self, name: str, place: Path, url: str, nodes: Sequence[PrivateValkey], durability: str) -> None:
        config = place / f"{name}.toml"
        config.write_text(f'[store]\ndurability = "{durability}"\n')
        self.server = Server(place / name, store=url, arguments=("--config", str(config)))
        self.per_s: dict[str, list[float]] = {}
        self.server_us: dict[str, list[float]] = {}
        self.store_us: dict[str, list[float]] = {}
        self.shares: dict[str, list[float]] = {"server": [], "primary": [], "replicas": [], "load": []}
        self._pids = [node.pid for node in nodes if node.pid is not None]

    def open(self, topic: str, partitions: int) -> None:
        client = self.server.client()
        client.call("PUT", f"/v1/topics/{topic}", {"partitions": partitions})
        client.close()

    def measure(self, work: str, topic: str, kind: str, seconds: float, count: int | None = None) -> None:
        """Do the work for some seconds, or on this many jobs."""
        before_s = [cpu_s(pid) for pid in (self.server.pid, *self._pids)]
        warm_s = WARM_S if count is None else 0.0
        connections = 64 if count is None else STORM_CONSUMERS
        orders = Orders(work, port=self.server.port, topic=topic, connections=connections, count=count)
        done = run(msgspec.structs.replace(orders, warm_s=warm_s, seconds=seconds))
        server_s, *store_s = [cpu_s(pid) - before for pid, before in zip(self._all, before_s, strict=True)]
        self.per_s.setdefault(kind, []).append(done.per_s)
        self.server_us.setdefault(kind, []).append(1e6 * server_s / done.in_all)
        self.store_us.setdefault(kind, []).append(1e6 * sum(store_s) / done.in_all)
        took_s = done.seconds + warm_s
        spent_s = (server_s, store_s[0], sum(store_s[1:]), done.cpu_s)
        for name, spent in zip(self.shares, spent_s, strict=True):
            self.shares[name].append(spent / took_s)

    @property
    def _all(self) -> tuple[int, ...]:
        return (self.server.pid, *self._pids)


def scale(sizes: Sizes) -> list[Line]:
    return [*_cluster(sizes), *_replicated(sizes), *_storm(sizes)]


def _cluster(sizes: Sizes) -> list[Line]:
    with folder() as place, PrivateValkey(port=free_port()) as node, running_stores(PrivateCluster()) as cluster:
        sides = [
            _Side("one", place, node.url, [node], "standard"),
            _Side("cluster", place, cluster.url, cluster.nodes, "standard"),
        ]
        with _started(sides):
            for number in range(sizes.rounds * 2):
                for work in ("send", "life"):
                    for partitions in (1, PARTITIONS):
                        for side in sides:
                            topic, kind = f"{work}-{partitions}-{number}", f"{work}, {partitions} partitions"
                            side.open(topic, partitions)
                            side.measure(work, topic, kind, sizes.round_s / 3)
    one, three = sides
    lines: list[Line] = []
    for kind in one.server_us:
        is_judged = kind == "life, 1 partitions"
        note = _costs("one node", one, kind) + "; " + _costs("Cluster", three, kind)
        measured, base = middle(three.server_us[kind]), middle(one.server_us[kind])
        what = f"server CPU on Cluster against one node: {kind}"
        target = at_most(1.15) if is_judged else None
        details = {"one": one.server_us[kind], "cluster": three.server_us[kind]}
        lines.append(Line(what, measured, "us", base, target, note, details))
    return lines


def _replicated(sizes: Sizes) -> list[Line]:
    with folder() as place, running_stores(PrivateSentinels()) as sentinels:
        primary = sentinels.primary()
        nodes = [primary, *(node for node in sentinels.nodes if node is not primary)]
        sides = [_Side(level, place, sentinels.url, nodes, level) for level in ("standard", "replicated")]
        with _started(sides):
            for number in range(sizes.rounds * 2):
                for side, level in zip(sides, ("standard", "replicated"), strict=True):
                    side.measure("send", f"{level}-{number}", "send", sizes.round_s / 3)
    standard, replicated = sides
    note = _costs("standard", standard, "send") + "; " + _costs("replicated", replicated, "send")
    measured, base = middle(replicated.server_us["send"]), middle(standard.server_us["send"])
    busy = ", ".join(f"{name} {middle(values):.0%}" for name, values in replicated.shares.items())
    rate, base_rate = middle(replicated.per_s["send"]), middle(standard.per_s["send"])
    return [
        Line("server CPU per replicated send against standard", measured, "us", base, None, note),
        Line("replicated sends, 64 connections, against standard", rate, "/s", base_rate, None, f"of a core: {busy}"),
    ]


def _storm(sizes: Sizes) -> list[Line]:
    with folder() as place, PrivateValkey(port=free_port()) as node:
        side = _Side("storm", place, node.url, [node], "standard")
        with _started([side]):
            for number in range(sizes.rounds):
                topic = f"storm-{number}"
                orders = Orders("bulk", port=side.server.port, topic=topic, connections=4, count=STORM_JOBS)
                run(msgspec.structs.replace(orders, delay_ms=(0, 0)))
                side.measure("consume", topic, "storm", 0.0, STORM_JOBS)
    note = f"store {middle(side.store_us['storm']):.1f} us; {middle(side.per_s['storm']):,.0f} jobs/s"
    return [Line("server CPU per due job, pulled and acked by 100", middle(side.server_us["storm"]), "us", note=note)]


def _costs(name: str, side: _Side, kind: str) -> str:
    return f"{name}: server {middle(side.server_us[kind]):.1f}, store {middle(side.store_us[kind]):.1f} us"


@contextlib.contextmanager
def _started(sides: Sequence[_Side]) -> Generator[None]:
    try:
        for side in sides:
            side.server.start()
            side.measure("life", "warm", "warm", 0.5)
            side.server_us.clear()
            side.per_s.clear()
            for shares in side.shares.values():
                shares.clear()
        yield
    finally:
        for side in sides:
            side.server.stop()
