"""Whether ids are unique in their topic or over a namespace is kept in the store: settings cannot hide its jobs."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dueline.testing.process import NotStarted
from tests.kit.valkey import PrivateValkey
from tests.kit.waiting import until
from tools.faults.connection import Connection
from tools.faults.server_process import ServerProcess

pytestmark = pytest.mark.slow

PLAIN = {"DUELINE_DIALECTS__OUQIANG__ENABLED": "false", "DUELINE_DIALECTS__YOUZAN__ENABLED": "false"}
NAMESPACE_IDS = {"DUELINE_DIALECTS__OUQIANG__NAMESPACE": "default"}
NEEDS_TOPIC = (
    'dueline: the namespace "default" holds jobs (topic "mail") whose ids are unique in their topic only, and a '
    "dialect with this namespace needs ids that are unique over all its topics: change dialects.*.namespace to another "
    "namespace, or disable the dialect until all jobs of the namespace have ended and are no longer retained"
)
NEEDS_NAMESPACE = (
    'dueline: the namespace "default" holds jobs (topic "mail") whose ids are unique over all its topics, and these '
    "settings would not find them: set dialects.*.namespace as before, at least until all jobs of the namespace have "
    "ended and are no longer retained. Programs and commands that open the store themselves have no such setting: give "
    "them the URL of a server"
)


async def call(connection: Connection, method: str, path: str, **fields: Any) -> Any:
    answer = await connection.request(method, path, json.dumps(fields).encode() if fields else b"")
    assert answer.status < 300, (answer.status, answer.body)
    return answer.json() if answer.body else None


async def served(server: ServerProcess, work: Callable[[Connection], Awaitable[Any]]) -> Any:
    """Start it, do this, stop it."""
    await server.start()
    connection = Connection(*server.address)
    try:
        return await work(connection)
    finally:
        connection.close()
        await server.stop()


async def send(connection: Connection) -> None:
    """A job that leaves nothing behind when it is done."""
    await call(connection, "PUT", "/v1/topics/mail", retain_ms=0)
    await call(connection, "POST", "/v1/topics/mail/jobs", id="a", body=1)


async def pull(connection: Connection) -> list[str]:
    pulled = await call(connection, "POST", "/v1/topics/mail/pull", max=5)
    return [job["id"] for job in pulled["jobs"]]


async def drain(connection: Connection) -> None:
    pulled = await call(connection, "POST", "/v1/topics/mail/pull", max=5)
    assert [job["id"] for job in pulled["jobs"]] == ["a"]
    await call(connection, "POST", "/v1/topics/mail/ack", jobs=[{"id": "a", "lease": pulled["jobs"][0]["lease"]}])


async def refused(server: ServerProcess) -> str:
    """The last line of a server that does not start."""
    with pytest.raises(NotStarted):
        await server.start()
    return server.output[-1]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        pytest.param(PLAIN, NAMESPACE_IDS, NEEDS_TOPIC, id="widened"),
        pytest.param(NAMESPACE_IDS, PLAIN, NEEDS_NAMESPACE, id="narrowed"),
    ],
)
async def test_settings_that_would_hide_jobs_are_refused_and_the_jobs_are_there_when_they_are_taken_back(
    tmp_path: Path, before: dict[str, str], after: dict[str, str], words: str
) -> None:
    first, second = ServerProcess(tmp_path, env=before), ServerProcess(tmp_path, env=after)
    await served(first, send)
    said = await refused(second)
    assert (said, await served(first, pull)) == (words, ["a"])


async def test_a_server_of_several_workers_refuses_them_too(tmp_path: Path) -> None:
    await served(ServerProcess(tmp_path, env=PLAIN), send)
    assert await refused(ServerProcess(tmp_path, env=NAMESPACE_IDS, args=("--workers", "2"))) == NEEDS_TOPIC


async def test_a_topic_of_several_partitions_forbids_it_even_when_it_is_empty(tmp_path: Path) -> None:
    divide = lambda connection: call(connection, "PUT", "/v1/topics/mail", partitions=2)  # noqa: E731
    await served(ServerProcess(tmp_path, env=PLAIN), divide)
    assert await refused(ServerProcess(tmp_path, env=NAMESPACE_IDS)) == (
        'dueline: the topic "mail" of the namespace "default" has 2 partitions of its own, and a dialect with this '
        "namespace needs ids that are unique over all its topics, so its topics must share theirs: change "
        "dialects.*.namespace to another namespace"
    )


async def test_a_drained_namespace_may_change_its_scope_and_change_it_back(tmp_path: Path) -> None:
    plain, namespace_ids = ServerProcess(tmp_path, env=PLAIN), ServerProcess(tmp_path, env=NAMESPACE_IDS)
    for server in (plain, namespace_ids, plain):
        await served(server, send)
        await served(server, drain)
    await served(namespace_ids, send)
    assert await served(namespace_ids, pull) == ["a"]


async def test_of_two_servers_that_disagree_the_one_that_cannot_see_the_jobs_is_not_ready(tmp_path: Path) -> None:
    """Both start, since the namespace is empty; the first job tells them apart at the next look at the store."""

    store = PrivateValkey()
    store.start()
    namespace_ids = ServerProcess(tmp_path, env=NAMESPACE_IDS, store_url=store.url)
    plain = ServerProcess(tmp_path, env=PLAIN, store_url=store.url)
    try:
        await namespace_ids.start()
        await plain.start()
        sender, other = Connection(*namespace_ids.address), Connection(*plain.address)
        await send(sender)
        answer = await until(lambda: other.request("GET", "/readyz"), lambda answer: answer.status != 200)
        assert (await sender.request("GET", "/readyz")).status == 200
        sender.close()
        other.close()
        reasons = [reason["message"] for reason in answer.json()["reasons"]]
        assert reasons == [NEEDS_NAMESPACE.removeprefix("dueline: ")]
    finally:
        await namespace_ids.stop()
        await plain.stop()
        store.stop()
