"""Two processes on a real store: one changes topics, the other learns of it, also when the announcements are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from dueline.engine.commands import Pull, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.job import BodyKind
from dueline.engine.policy import OnDead, TopicPolicy
from dueline.engine.push_target import PushTarget
from dueline.engine.topics import TopicConfig
from dueline.store.valkey.store import ValkeyStore
from tests.kit.valkey import PrivateValkey

NS = "default"
TARGET = PushTarget(url="https://example.test/hook", concurrency=3)
NEVER_S = 3600.0  # nothing is found by looking, only by announcements


def silent(name: str, source: str) -> str:
    """The directory's script without its announcements."""
    return (
        source.replace("redis.call('SPUBLISH', ARGV[6]", "string.format('%s', ARGV[6]")
        if name == "directory"
        else source
    )


class Configs:
    """A listener that keeps the last config of each topic."""

    def __init__(self) -> None:
        self.of: dict[str, TopicConfig | None] = {}
        self._heard = asyncio.Event()

    def topic_changed(self, namespace: str, topic: str, version: int, config: TopicConfig | None) -> None:
        self.of[topic] = config
        self._heard.set()

    async def until(self, is_so: Callable[[dict[str, TopicConfig | None]], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so(self.of):
                self._heard.clear()
                await self._heard.wait()


@asynccontextmanager
async def two_processes(server: PrivateValkey, round_s: float) -> AsyncIterator[tuple[Engine, Engine, Configs]]:
    """One that announces nothing, and one that follows the topics and has read those that exist."""
    async with process(server, NEVER_S, lua_patch=silent) as (one, _):
        await one.set_push(NS, "before", TARGET)
        async with process(server, round_s) as (other, configs):
            await configs.until(lambda of: "before" in of)
            yield one, other, configs


@asynccontextmanager
async def process(server: PrivateValkey, round_s: float, **options: Any) -> AsyncIterator[tuple[Engine, Configs]]:
    store = ValkeyStore(server.url, **options)
    await store.start()
    engine, configs = Engine(store, round_s=round_s), Configs()
    engine.follow_topics(configs)
    try:
        yield engine, configs
    finally:
        await engine.stop()
        await store.stop()


@pytest.fixture
def server() -> Any:
    with PrivateValkey() as server:
        yield server


async def test_changes_of_one_process_reach_the_other_by_announcement(server: PrivateValkey) -> None:
    async with process(server, NEVER_S) as (one, _), process(server, NEVER_S) as (other, configs):
        await one.set_push(NS, "t", TARGET)
        await configs.until(lambda of: (found := of.get("t")) is not None and found.push == TARGET)
        await one.pause_push(NS, "t")
        await configs.until(lambda of: (found := of["t"]) is not None and found.push is not None and found.push.paused)
        await one.set_topic(NS, "mail", TopicPatch(TopicPolicy(on_dead=OnDead("x"), lease_ms=5_000)))
        await configs.until(lambda of: of.get("mail") is not None)
        await one.send(NS, "mail", Send("a", b"1", BodyKind.JSON))
        [job] = await other.pull(Pull(NS, ("mail",), 1))
        assert job.lease_until_ms - other.store.now_ms() < 6_000  # the estimated clock may be a little behind
        await one.delete_topic(NS, "t")
        await configs.until(lambda of: of["t"] is None)


@pytest.mark.parametrize("change", ["target", "on_dead", "deletion"])
async def test_lost_announcements_are_made_up_for_at_the_next_check(change: str, server: PrivateValkey) -> None:
    async with two_processes(server, 0.2) as (one, _, configs):
        await one.set_push(NS, "t", TARGET)
        await configs.until(lambda of: of.get("t") is not None)
        if change == "target":
            await one.remove_push(NS, "t")
            await configs.until(lambda of: (found := of["t"]) is not None and found.push is None)
        elif change == "on_dead":
            await one.set_topic(NS, "t", TopicPatch(TopicPolicy(on_dead=OnDead("x"))))
            await configs.until(lambda of: (found := of["t"]) is not None and found.policy.on_dead == OnDead("x"))
        else:
            await one.delete_topic(NS, "t")
            await configs.until(lambda of: of["t"] is None)


async def test_what_was_announced_while_the_connection_was_cut_is_read_after_it_is_back(server: PrivateValkey) -> None:
    async with two_processes(server, NEVER_S) as (one, _, configs):
        await one.set_push(NS, "t", TARGET)
        with redis.Redis.from_url(server.url) as admin:
            admin.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await configs.until(lambda of: of.get("t") is not None)


async def test_a_pull_learns_of_a_policy_whose_announcement_was_lost(server: PrivateValkey) -> None:
    async with two_processes(server, NEVER_S) as (one, other, _):
        await other.send(NS, "mail", Send(None, b"1", BodyKind.JSON))
        await one.set_topic(NS, "mail", TopicPatch(TopicPolicy(lease_ms=5_000)))
        async with asyncio.timeout(10):
            while True:  # each pull returns the version; the topic is read at most once a second
                [job] = await other.pull(Pull(NS, ("mail",), 1))
                if job.lease_until_ms - other.store.now_ms() <= 5_000:
                    return
                await one.send(NS, "mail", Send(None, b"1", BodyKind.JSON))
