"""A server with durability `replicated` on a store without a replica: it says so, and heals when one comes.

What happens to jobs is in tests/integration/test_failover.py and tests/unit/store/test_witness.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dueline.engine.job import Partition
from dueline.engine.store import Code
from dueline.integrations.mounted import MountedServer
from dueline.server.app import App
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
