"""Guards on real stores. Each is known from the call that shows it, named with its shard, logged once when it begins
and once when it ends, and ends without a restart."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from dueline.engine.errors import ClockStep, StoreDown, StoreFull, Unavailable, UnknownOutcome
from dueline.engine.guards import RULES, Guard
from dueline.engine.job import Partition
from dueline.engine.store import Code, Credit, Pull, Ref
from dueline.integrations.mounted import MountedServer
from dueline.runtime.guards import Guards, Reason
from dueline.server.app import App
from dueline.store.valkey.clock import StoreClock
from dueline.store.valkey.store import ValkeyStore
from dueline.testing.process import free_port
from tests.kit.fixtures import private_cluster, private_sentinels
from tests.kit.log_lines import Line, logged_events
from tests.kit.store import item
from tests.kit.topologies import partitions_on
from tests.kit.valkey import PrivateCluster, PrivateSentinels, PrivateValkey
from tests.kit.waiting import until

from .serve_kit import served, typed

__all__ = ["private_cluster", "private_sentinels"]

Codes = list[tuple[str, str | None]]


@dataclass
class Guarded:
    """A server on a store of the test, and what it logs about guards."""

    app: App
    lines: list[Line]

    @property
    def reasons(self) -> Codes:
        return codes(self.app.health.reasons())

    @property
    def warnings(self) -> Codes:
        return codes(self.app.health.warnings())

    @property
    def logged(self) -> list[tuple[str, str, str]]:
        """(event, guard, shard) of each line about a guard."""
        return [(line["event"], line["guard"], line["shard"]) for line in self.lines if "guard" in line]

    @property
    def metric(self) -> set[tuple[str, ...]]:
        [found] = [one for one in self.app.snapshot() if one.metric.name == "dueline_store_guard"]
        return {labels for labels, value in found.numbers.items() if value}

    async def send(self, partition: Partition, id: str) -> Code:
        [sent] = await self.app.store.send(partition, [item(id)])
        return sent.code

    async def works(self, partition: Partition) -> bool:
        """Whether a job can be pulled and acked."""
        pulled = await self.app.store.pull(partition, Pull((Credit(1, None),), 30_000))
        acked = await self.app.store.ack(partition, [Ref(job.id, job.lease) for job in pulled.jobs])
        return [one.code for one in acked] == [Code.OK]


def codes(reasons: list[Reason]) -> Codes:
    return [(reason.code, reason.shard) for reason in reasons]


def both_lines(guard: Guard, shard: str) -> list[tuple[str, str, str]]:
    return [(text, guard, shard) for text in (RULES[guard].entered, RULES[guard].left)]


def fresh() -> Partition:
    return Partition("default", uuid.uuid4().hex)


@asynccontextmanager
async def guarded(url: str, **variables: str) -> AsyncIterator[Guarded]:
    with logged_events() as lines:
        server = MountedServer(store=url, env=variables, insecure=True)
        await server.start()
        try:
            assert server._app is not None
            yield Guarded(server._app, lines)
        finally:
            await server.stop()


@pytest.fixture(scope="module")
def node() -> Iterator[PrivateValkey]:
    """A node of these tests, whose settings they change and restore."""
    with PrivateValkey(port=free_port(), options=("--enable-protected-configs", "yes")) as valkey:
        yield valkey


def address(node: PrivateValkey) -> str:
    return f"127.0.0.1:{node.port}"


async def test_a_full_store_refuses_sends_and_stays_ready_and_is_named_from_the_first_refusal(
    node: PrivateValkey,
) -> None:
    partition, shard = fresh(), address(node)
    async with guarded(node.url) as server:
        assert await server.send(partition, "a") is Code.CREATED
        node.ask("CONFIG", "SET", "maxmemory", "1")
        try:
            with pytest.raises(StoreFull):
                await server.send(partition, "b")
            assert (server.reasons, server.warnings) == ([], [("store_full", shard)])
            assert server.metric == {("store_full", shard)}
            assert await server.works(partition)
        finally:
            node.ask("CONFIG", "SET", "maxmemory", "0")
        await until(lambda: not server.warnings)
        assert await server.send(partition, "b") is Code.CREATED
        assert server.logged == both_lines(Guard.STORE_FULL, shard)
        assert server.metric == set()


@pytest.mark.parametrize("by", ["server", "store"])
async def test_the_doctor_names_a_guard_with_and_without_a_server(node: PrivateValkey, by: str, tmp_path: Path) -> None:
    async with guarded(node.url) as server:
        await server.send(fresh(), "a")
    node.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        with served(tmp_path / "data", "--store", node.url) if by == "server" else nullcontext(node.url) as url:
            report = await asyncio.to_thread(typed, "doctor", "--url", url, "-o", "json")
    finally:
        node.ask("CONFIG", "SET", "maxmemory", "0")
    found = [one for one in json.loads(report.stdout)["findings"] if one["what"] == "warning"]
    assert [(one["level"], one["detail"].split(":")[0]) for one in found] == [("warn", "store_full")], report.output
    assert report.exit_code == 1


async def test_a_store_that_may_evict_gets_no_sends(node: PrivateValkey) -> None:
    partition, shard = fresh(), address(node)
    async with guarded(node.url) as server:
        await server.send(partition, "a")
        node.ask("CONFIG", "SET", "maxmemory", "100mb")
        node.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        try:
            await until(lambda: server.reasons)
            assert (server.reasons, server.metric) == ([("eviction", shard)], {("eviction", shard)})
            with pytest.raises(StoreDown, match=r"allkeys-lru.*Set maxmemory-policy to noeviction"):
                await server.send(partition, "b")
            assert await server.works(partition)
        finally:
            node.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await until(lambda: not server.reasons)
        assert await server.send(partition, "b") is Code.CREATED
        assert server.logged == both_lines(Guard.EVICTION, shard)
        left = [line for line in server.lines if line["event"] == RULES[Guard.EVICTION].left]
        assert [line["refused_calls"] for line in left] == [1]
        node.ask("CONFIG", "SET", "maxmemory", "0")


async def test_a_node_that_becomes_a_replica_is_read_only_until_it_is_a_primary_again(node: PrivateValkey) -> None:
    partition, shard = fresh(), address(node)
    async with guarded(node.url) as server:
        await server.send(partition, "a")
        node.ask("REPLICAOF", "127.0.0.1", str(free_port()))
        try:
            with pytest.raises(Unavailable, match=r"replica|slave"):
                await server.send(partition, "b")
            assert (server.reasons, server.metric) == ([("read_only", shard)], {("read_only", shard)})
        finally:
            node.ask("REPLICAOF", "NO", "ONE")
        await until(lambda: not server.reasons)
        assert await server.send(partition, "b") is Code.CREATED
        assert server.logged == both_lines(Guard.READ_ONLY, shard)


async def test_a_store_that_cannot_write_to_its_disk_refuses_changes_and_says_why(node: PrivateValkey) -> None:
    """A snapshot fails, so the store answers MISCONF to every change, acks too."""
    partition, shard = fresh(), address(node)

    def snapshot() -> dict[str, Any]:
        with suppress(redis.ResponseError):  # one is still being written
            node.ask("BGSAVE")
        return dict(node.ask("INFO", "persistence"))

    async with guarded(node.url) as server:
        await server.send(partition, "a")
        [leased] = (await server.app.store.pull(partition, Pull((Credit(1, None),), 30_000))).jobs
        [(_, folder)] = node.ask("CONFIG", "GET", "dir").items()
        node.ask("CONFIG", "SET", "save", "3600 1")
        node.ask("CONFIG", "SET", "dir", "/proc")
        try:
            await until(snapshot, lambda info: info["rdb_last_bgsave_status"] == "err")
            for change in (
                server.app.store.send(partition, [item("b")]),
                server.app.store.ack(partition, [Ref(leased.id, leased.lease)]),
            ):
                with pytest.raises(StoreFull, match="MISCONF"):
                    await change
            assert (server.reasons, server.metric) == ([("disk_full", shard)], {("disk_full", shard)})
        finally:
            node.ask("CONFIG", "SET", "dir", folder)
        await until(snapshot, lambda info: info["rdb_last_bgsave_status"] == "ok")
        node.ask("CONFIG", "SET", "save", "")
        await until(lambda: not server.reasons)
        assert [one.code for one in await server.app.store.ack(partition, [Ref(leased.id, leased.lease)])] == [Code.OK]
        assert server.logged == both_lines(Guard.DISK_FULL, shard)


async def test_a_store_that_is_lost_is_logged_once_and_once_when_it_is_back(node: PrivateValkey) -> None:
    async with guarded(node.url) as server:
        await server.send(fresh(), "a")
        node.kill()
        try:
            with pytest.raises(Unavailable):
                await server.send(fresh(), "b")
            await until(lambda: server.reasons)
            assert server.reasons == [("store_down", None)]
        finally:
            node.start()
        await until(lambda: server.app.health.up)  # not ready: this store has forgotten everything
        events = [line["event"] for line in server.lines if line["event"].startswith("the store is")]
        assert events == ["the store is unavailable", "the store is available again"]


async def test_a_clock_step_is_known_from_the_call_that_shows_it(node: PrivateValkey) -> None:
    ahead_s, guards = 0.0, Guards()
    real = StoreClock()
    clock = StoreClock(monotonic=lambda: real._monotonic() + ahead_s)
    store = ValkeyStore(node.url, store_clock=clock, guards=guards)
    await store.start()
    partition = fresh()
    await store.send(partition, [item("a")])
    ahead_s = 3600.0  # this process's time goes on; the store's seems to jump back
    with pytest.raises(ClockStep):
        await store.send(partition, [item("b")])
    assert codes(guards.reasons()[0]) == [("clock_step", address(node))]
    await store.stop()


async def test_a_replica_that_does_not_answer_is_noticed_by_the_call(private_sentinels: PrivateSentinels) -> None:
    url, _, _ = private_sentinels.url.partition("?")
    primary = private_sentinels.primary()
    replicas = [one for one in private_sentinels.nodes if one is not primary]
    env = {"DUELINE_STORE__SENTINEL_PASSWORD": "theirs", "DUELINE_STORE__DURABILITY": "replicated"}
    partition, shard = fresh(), address(primary)
    async with guarded(url, **env) as server:
        assert await server.send(partition, "a") is Code.CREATED
        assert (server.reasons, server.warnings) == ([], [])
        for replica in replicas:
            replica.pause()
        try:
            with pytest.raises(UnknownOutcome, match="no replica has it"):
                await server.send(partition, "b")
            assert (server.reasons, server.metric) == ([("not_replicated", shard)], {("not_replicated", shard)})
        finally:
            for replica in replicas:
                replica.resume()
        await until(lambda: not server.reasons)
        assert await server.send(partition, "b") is Code.KEPT
        assert server.logged == both_lines(Guard.NOT_REPLICATED, shard)


async def test_a_full_store_can_be_emptied_with_a_replica() -> None:
    """What proves replication needs no room in the store."""
    with (
        PrivateValkey(port=free_port(), options=("--repl-diskless-sync-delay", "0")) as primary,
        PrivateValkey(port=free_port(), options=("--replicaof", f"127.0.0.1 {primary.port}")),
    ):
        async with guarded(primary.url, DUELINE_STORE__DURABILITY="replicated") as server:
            await until(lambda: not server.reasons)
            partition = fresh()
            await server.send(partition, "a")
            primary.ask("CONFIG", "SET", "maxmemory", "1")
            with pytest.raises(StoreFull):
                await server.send(partition, "b")
            assert await server.works(partition)


@pytest.mark.parametrize("guard", [Guard.EVICTION, pytest.param(Guard.STORE_FULL, marks=pytest.mark.slow)])
async def test_a_guard_of_one_shard_leaves_the_others_alone(private_cluster: PrivateCluster, guard: Guard) -> None:
    home = private_cluster.primary_of("dueline:{directory}:topics")
    hurt = next(one for one in private_cluster.nodes if one is not home)
    [on_hurt], [on_home] = partitions_on(private_cluster, hurt, 1), partitions_on(private_cluster, home, 1)
    changed = (
        {"maxmemory": "1"} if guard is Guard.STORE_FULL else {"maxmemory": "1gb", "maxmemory-policy": "volatile-lru"}
    )
    async with guarded(private_cluster.url, DUELINE_STORE__DURABILITY="standard") as server:
        await server.send(on_hurt, "a")
        for name, value in changed.items():
            hurt.ask("CONFIG", "SET", name, value)
        try:
            await until(lambda: server.warnings)
            assert (server.reasons, server.warnings) == ([], [(guard, address(hurt))])
            with pytest.raises((StoreDown, StoreFull)):
                await server.send(on_hurt, "b")
            assert await server.send(on_home, "b") is Code.CREATED
            assert await server.works(on_hurt)
        finally:
            hurt.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
            hurt.ask("CONFIG", "SET", "maxmemory", "0")
        await until(lambda: not server.warnings)
        assert await server.send(on_hurt, "b") is Code.CREATED
        assert server.logged == both_lines(guard, address(hurt))
