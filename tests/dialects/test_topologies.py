"""Every dialect on Sentinel and on a Cluster with replicas, at the durability that is the default there.

The core of each protocol runs with the clients of its own tests. DUELINE_TEST_STORE=URL runs all of their cases on a
store: each server gets a prefix of its own there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from dueline.store.valkey.fsck import fsck
from tests.kit.fixtures import SERVERS, private_sentinels, replicated_cluster

from .camellia.kit import Camellia
from .exfe.kit import Exfe, Services, in_s
from .kit import Client, Runner, RunningServer, serve_on
from .ouqiang.kit import Ouqiang
from .youzan.kit import Youzan

__all__ = ["private_sentinels", "replicated_cluster"]

pytestmark = pytest.mark.slow

OPTIONS = {"DUELINE_PUSH__ALLOW": "127.0.0.0/8"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module", params=["cluster with replicas", "sentinel"])
def served(
    request: pytest.FixtureRequest, runner: Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server on such a store. At the end, nothing is wrong with what the tests have left there."""
    url = request.getfixturevalue(SERVERS[request.param]).url
    served = runner.run(serve_on(url, tmp_path_factory.mktemp("topologies"), OPTIONS))
    yield served
    runner.run(served.stop())
    found = runner.run(fsck(url, prefix=served.server.env["DUELINE_STORE__PREFIX"]))
    assert (found.findings, found.partitions > 0) == ([], True)


async def test_ouqiang_and_youzan_share_no_topic_and_no_id(served: RunningServer) -> None:
    """`W` and `m` are topics as any other."""
    q, y = Ouqiang(served), Youzan(served)
    for number, topic in enumerate((served.topic(), "W", "m")):
        for protocol, push in (("ouqiang", q.push), ("youzan", y.add)):
            await push(topic, f"{protocol}-{number}", body=protocol)
        assert await q.pop(topic) == (f"ouqiang-{number}", "ouqiang")
        assert await y.pop(topic, timeout=30) == (f"youzan-{number}", "youzan")
        await q.finish(f"ouqiang-{number}")
        await y.finish(f"youzan-{number}")
        assert await q.get(f"ouqiang-{number}") is None


async def test_camellia_wakes_a_poll_acks_and_deletes(served: RunningServer) -> None:
    q, topic = Camellia(served), served.topic()
    waiting = asyncio.ensure_future(q.another().poll(topic))
    sent = await q.send(topic, "a")
    assert [msg["msgId"] for msg in await waiting] == [sent["msgId"]]
    await q.ack(topic, sent["msgId"])
    later = await q.send(topic, "b", delay=60_000)
    assert (await q.delete(topic, later["msgId"]))[0] == 200


async def test_spring_adds_a_job(served: RunningServer) -> None:
    client: Client = served.client()
    job = {"taskId": "spring-1", "taskType": "task1", "appName": "app", "delayTime": 9_999_999_999_999}
    added = await client.ask("POST", "/job/add", json.dumps(job).encode(), JSON)
    assert (added.status, added.body) == (200, b"")


async def test_exfe_merges_and_calls_back(served: RunningServer) -> None:
    services = Services()
    await services.start()
    try:
        q = Exfe(served, services)
        service, key = q.service(), q.key()
        for body in (b"a", b"b"):
            await q.push(key, service, body, ontime=in_s(1))
        assert [call.body for call in await service.arrived()] == [b"[a,b]"]
    finally:
        await services.stop()
