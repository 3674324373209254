"""A server with durability `replicated` on a store without a replica: it says so, and heals when one comes.

What happens to jobs is in tests/integration/test_failover.py and tests/unit/store/test_witness.py."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dueline.client import calls
from dueline.client.in_process import InProcessClient
from dueline.engine.errors import UnknownOutcome
from dueline.engine.guards import RULES, Guard
from dueline.engine.job import Partition
from dueline.engine.store import Code
from dueline.engine.token_store import TokenEntry
from dueline.integrations.mounted import MountedServer
from dueline.server.app import App
from dueline.store.valkey.store import ValkeyStore
from dueline.store.valkey.witness import Replication
from dueline.testing.process import free_port
from dueline.worker.direct import DirectQueue
from tests.kit.fixtures import private_cluster
from tests.kit.log_lines import logged_events
from tests.kit.store import item
from tests.kit.valkey import PrivateCluster, PrivateValkey
from tests.kit.waiting import until

__all__ = ["private_cluster"]


@asynccontextmanager
async def serving(store: PrivateValkey, **variables: str) -> AsyncIterator[App]:
    env = {"DUELINE_STORE__DURABILITY": "replicated", **variables}
    server = MountedServer(store=store.url, env=env, insecure=True)
    await server.start()
    try:
        assert server._app is not None
        yield server._app
    finally:
        await server.stop()


def unreplicated(app: App) -> float:
    [found] = [one for one in app.snapshot() if one.metric.name == "dueline_store_unreplicated_total"]
    return sum(found.numbers.values())


async def test_a_server_without_a_replica_is_not_ready_until_one_comes() -> None:
    with PrivateValkey(port=free_port()) as primary:
        async with serving(primary) as app:
            [reason] = app.health.reasons()
            assert (reason.code, str(primary.port) in reason.message) == ("not_replicated", True)
            assert app.info().durability == "replicated"
            with PrivateValkey(port=free_port(), options=("--replicaof", f"127.0.0.1 {primary.port}")):
                await until(lambda: not app.health.reasons())
                [sent] = await app.store.send(Partition("default", "t"), [item("a")])
                assert (sent.code, unreplicated(app)) == (Code.CREATED, 0)


async def test_a_server_that_may_go_on_without_a_replica_warns_and_counts() -> None:
    with PrivateValkey(port=free_port()) as primary:
        async with serving(primary, DUELINE_STORE__DEGRADED="accept") as app:
            before = unreplicated(app)
            await app.store.send(Partition("default", "t"), [item("a")])
            assert unreplicated(app) > before
            assert app.health.reasons() == []
            assert [warning.code for warning in app.health.warnings()] == ["not_replicated"]


@pytest.mark.parametrize("how", ["server", "direct"])
async def test_a_cluster_without_replicas_says_at_the_start_which_setting_it_needs(
    private_cluster: PrivateCluster, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the default is `replicated`, for servers and for programs that open the store themselves."""

    async def ready() -> tuple[str, Any]:
        if how == "direct":
            queue = DirectQueue(private_cluster.url)
            await queue.start()
            client = InProcessClient(queue.answer)
            try:
                readiness = (await client.call(calls.ready())).value
                return (await client.call(calls.info())).value.durability, list(readiness.reasons)
            finally:
                await queue.close()
        server = MountedServer(store=private_cluster.url, env=dict(os.environ), insecure=True)
        async with server:
            assert server._app is not None
            return server._app.info().durability, msgspec.to_builtins(server._app.health.reasons())

    with logged_events() as lines:
        durability, reasons = await ready()
    said = [line["advice"] for line in lines if line.get("guard") == "not_replicated"]
    assert (durability, said) == ("replicated", [RULES[Guard.NOT_REPLICATED].heals] * 3)
    assert 'set store.durability = "standard"' in said[0]
    assert {reason["code"] for reason in reasons} == {"not_replicated"}
    assert len({reason["shard"] for reason in reasons}) == 3
    monkeypatch.setenv("DUELINE_STORE__DURABILITY", "standard")
    assert await ready() == ("standard", [])


@asynccontextmanager
async def replicated(store: PrivateValkey, patience_s: float) -> AsyncIterator[ValkeyStore]:
    made = ValkeyStore(store.url, replication=Replication(), patience_s=patience_s)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


async def test_a_token_is_changed_and_believed_only_with_a_replica() -> None:
    """A server that renewed its lease at a primary that was replaced would not hear of a revocation. A revocation that
    is repeated writes nothing: what it asks last must not be answered before a replica has the first one."""
    entry = TokenEntry("0123456789ab", 0, 0, b"data")
    with PrivateValkey(port=free_port()) as primary:
        async with replicated(primary, patience_s=0.5) as store:
            tokens = store.tokens
            for change in (tokens.put(entry), tokens.beat("s", 1), tokens.behind(1), tokens.leave("s")):
                with pytest.raises(UnknownOutcome, match="no replica has it"):
                    await change
            assert await tokens.get(entry.id) is not None  # reading works
            assert [one.id for one in (await tokens.changed(0)).entries] == [entry.id]
        replica = PrivateValkey(port=free_port(), options=("--replicaof", f"127.0.0.1 {primary.port}"))
        async with replicated(primary, patience_s=30) as store:
            with replica:
                assert await store.tokens.beat("s", 0) == 1
