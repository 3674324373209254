"""A store that an older version wrote is read as it was meant when it was written.

`data/store_before_default_retry.jsonl`: the commands by which version 0.1.0 of before the default retry filled a store,
each a JSON list, bytes as Latin-1. There a job without a retry of its own was tried again at once, ten times in all.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

from dueline.engine.commands import Patch, Pull, Send
from dueline.engine.engine import Engine
from dueline.engine.errors import IdExists
from dueline.engine.job import BodyKind, State
from dueline.engine.policy import AT_ONCE, DEFAULT_RETRY, Backoff, Ladder, Retry
from dueline.engine.store import Code, Release
from dueline.store.valkey.store import ValkeyStore
from dueline.testing.clock import VirtualClock

from ..kit.valkey import PrivateValkey

COMMANDS = Path(__file__).parent / "data" / "store_before_default_retry.jsonl"
NS = "default"


@pytest.fixture
def old_store() -> Iterator[str]:
    with PrivateValkey() as server:
        client = redis.Redis.from_url(server.url)
        for line in COMMANDS.read_text().splitlines():
            client.execute_command(*[part.encode("latin-1") for part in json.loads(line)])
        client.close()
        yield server.url


@asynccontextmanager
async def engine_on(url: str) -> AsyncIterator[Engine]:
    store = ValkeyStore(url, clock=VirtualClock())
    await store.start()
    engine = Engine(store, namespace_ids=frozenset({"ouqiang"}))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()
        await store.stop()


@pytest.mark.parametrize(
    ("topic", "id", "retry", "max_attempts", "waits_ms"),
    [
        ("plain", "unset", AT_ONCE, 10, [0] * 9),
        ("plain", "null", AT_ONCE, 3, [0, 0]),
        ("policed", "unset", AT_ONCE, 4, [0, 0, 0]),
        ("plain", "ladder", Ladder((1_000, 2_000)), 3, [1_000, 2_000]),
        (
            "plain",
            "backoff",
            Backoff(500, 3.0, 9_000),
            10,
            [500, 1_500, 4_500, 9_000, 9_000, 9_000, 9_000, 9_000, 9_000],
        ),
        ("laddered", "unset", Ladder((60_000, 600_000)), 3, [60_000, 600_000]),
        ("held", "held", AT_ONCE, 10, [0] * 9),
    ],
)
async def test_jobs_of_before_the_default_retry_keep_theirs(
    old_store: str, topic: str, id: str, retry: Retry, max_attempts: int, waits_ms: list[int]
) -> None:
    clock = VirtualClock()
    store = ValkeyStore(old_store, clock=clock)
    await store.start()
    engine = Engine(store)
    policy = (await engine.get(NS, topic, id)).policy
    assert (policy.retry, policy.max_attempts) == (retry, max_attempts)
    if topic == "held":
        clock.advance(1_000)  # its lease is over: at once, and an attempt is used
        waits_ms.pop()
    for wait_ms in waits_ms:
        leased = {job.id: job for job in await engine.pull(Pull(NS, (topic,), 10))}[id]
        [done] = await engine.release(NS, topic, [Release(id, leased.lease)])
        assert (done.code, done.at_ms) == (Code.OK, clock.now_ms + wait_ms)
        clock.advance(wait_ms)
    leased = {job.id: job for job in await engine.pull(Pull(NS, (topic,), 10))}[id]
    [done] = await engine.release(NS, topic, [Release(id, leased.lease)])
    assert (done.code, leased.attempt) == (Code.DEAD, max_attempts)
    await engine.stop()
    await store.stop()


async def test_new_jobs_of_old_topics_have_the_default_retry(old_store: str) -> None:
    async with engine_on(old_store) as engine:
        found: dict[str, tuple[Retry, int | None]] = {}
        for topic in ("plain", "policed", "laddered", "pushed"):
            await engine.send(NS, topic, Send("new", b"1", BodyKind.JSON))
            policy = (await engine.get(NS, topic, "new")).policy
            found[topic] = (policy.retry, policy.max_attempts)
        assert found == {
            "plain": (DEFAULT_RETRY, 20),
            "policed": (DEFAULT_RETRY, 4),
            "laddered": (Ladder((60_000, 600_000)), 3),
            "pushed": (Ladder((5_000,)), 2),
        }
        assert not (await engine.topic(NS, "policed")).policy.by_worker


async def test_the_same_request_again_is_still_the_same_for_a_job_of_an_old_store(old_store: str) -> None:
    async with engine_on(old_store) as engine:
        same = (
            Send("unset", b'"body"', BodyKind.JSON),
            Send("null", b'"body"', BodyKind.JSON, retry=AT_ONCE, max_attempts=3),
        )
        assert [(await engine.send(NS, "plain", job)).result for job in same] == ["kept", "kept"]
        with pytest.raises(IdExists):
            await engine.send(NS, "plain", Send("null", b'"body"', BodyKind.JSON, max_attempts=3))


async def test_groups_and_foreign_jobs_of_an_old_store_are_read_and_can_be_changed(old_store: str) -> None:
    async with engine_on(old_store) as engine:
        [group] = await engine.pull(Pull(NS, ("groups",), 1))
        assert (await engine.get(NS, "groups", group.id)).policy.retry == AT_ONCE
        foreign = await engine.get("ouqiang", "foreign", "foreign")
        assert (foreign.policy.retry, foreign.policy.max_attempts) == (AT_ONCE, None)
        patched = await engine.patch(NS, "plain", Patch("unset", retry=None))
        assert (patched.policy.retry, patched.policy.max_attempts) == (DEFAULT_RETRY, 10)
        assert patched.state is State.READY
