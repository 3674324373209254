"""A server with durability `replicated` on a store without a replica: it says so, and heals when one comes.

What happens to jobs is in tests/integration/test_failover.py and tests/unit/store/test_witness.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dueline.engine.errors import UnknownOutcome
from dueline.engine.job import Partition
from dueline.engine.store import Code
from dueline.engine.token_store import TokenEntry
from dueline.integrations.mounted import MountedServer
from dueline.server.app import App
from dueline.store.valkey.store import ValkeyStore
from dueline.store.valkey.witness import Replication
from dueline.testing.process import free_port
from tests.kit.store import item
from tests.kit.topologies import until
from tests.kit.valkey import PrivateValkey


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
