"""The keys of a push target in a real store: what they cost, when they go, and what fsck says of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio as redis

from dueline.engine.errors import ClockStep
from dueline.engine.push_log import Attempt, TargetState
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.keys import push_keys
from dueline.store.valkey.store import ValkeyStore
from tests.kit.valkey import PrivateValkey

DAY_MS = 86_400_000
PREFIX = "pushes"
STATE, LOG = push_keys(PREFIX, "ns", "t")


@pytest.fixture
def server() -> Iterator[PrivateValkey]:
    """One per test: fsck reads a whole store."""
    with PrivateValkey() as server:
        yield server


class PushStoreKit:
    """A store, a plain client beside it, and how many script calls were made."""

    def __init__(self, url: str) -> None:
        self.calls: Counter[str] = Counter()
        self.store = ValkeyStore(url, prefix=PREFIX, on_call=lambda name, _: self.calls.update([name]))
        self.client: Any = redis.Redis.from_url(url)

    async def __aenter__(self) -> PushStoreKit:
        await self.store.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.aclose()
        await self.store.stop()

    async def report(self, id: str = "a", ok: bool = True) -> TargetState:
        return await self.store.pushes.report("ns", "t", [Attempt(id, 1, 1, 200, 1, ok)], 3, 1000)

    async def findings(self) -> list[str]:
        return [str(finding) for finding in (await fsck(self.store.url, PREFIX)).findings]


async def test_thousands_of_reports_at_once_are_a_few_calls(server: PrivateValkey) -> None:
    async with PushStoreKit(server.url) as kit:
        await asyncio.gather(*(kit.report(str(number)) for number in range(5_000)))
        assert (kit.calls["push"], await kit.client.llen(LOG)) == (10, 2_000)  # 500 a call


async def test_both_keys_go_thirty_days_after_the_last_report(server: PrivateValkey) -> None:
    async with PushStoreKit(server.url) as kit:
        await kit.report()
        first = [await kit.client.pttl(key) for key in (STATE, LOG)]
        for key in (STATE, LOG):
            await kit.client.persist(key)
        await kit.report()
        same_day = [await kit.client.pttl(key) for key in (STATE, LOG)]
        await kit.client.hincrby(STATE, "x", -DAY_MS)
        await kit.report()
        next_day = [await kit.client.pttl(key) for key in (STATE, LOG)]
        assert same_day == [-1, -1]  # renewed once a day
        assert all(29 * DAY_MS < left <= 30 * DAY_MS for left in first + next_day)


async def test_memories_of_processes_that_are_gone_are_forgotten(server: PrivateValkey) -> None:
    async with PushStoreKit(server.url) as kit:
        await kit.report()
        now_ms = kit.store.now_ms()
        for number in range(100):
            age_ms = 3_700_000 if number < 90 else 0
            memory = b"n" * 8 + (now_ms - age_ms).to_bytes(6, "big")
            await kit.client.hset(STATE, f"c:gone{number}", memory)
        before = await kit.client.hlen(STATE)
        for _ in range(5):
            await kit.report()
        # n f o x and its own memory; then hc too, and the ten young ones
        assert (before, await kit.client.hlen(STATE)) == (105, 16)


async def test_a_clock_that_jumped_counts_nothing(server: PrivateValkey) -> None:
    async with PushStoreKit(server.url) as kit:
        await kit.report(ok=False)
        kit.store.clock.expectation = lambda: (1, 1_000)  # what a process expects of a store whose clock went on
        kit.store.clock.observe = lambda now_ms, asked_ms: False
        with pytest.raises(ClockStep):
            await kit.report(ok=False)
        assert await kit.store.pushes.state("ns", "t") == TargetState(1, 0, None)


DAMAGE: list[tuple[tuple[Any, ...], str]] = [
    (("DEL", STATE), "has a log but no state"),
    (("DEL", LOG), "has a state but no log"),
    (("HSET", STATE, "n", "1"), "the log has 2 attempts, 1 were counted"),
    (("HSET", STATE, "f", "many"), "the state cannot be read"),
    (("LSET", LOG, 0, b"rubbish"), "1 attempts of the log cannot be read"),
    (("RPUSH", LOG, *[b""] * 2_000), "the log has 2002 attempts, 2000 are kept"),
]


@pytest.mark.parametrize(("damage", "fault"), DAMAGE, ids=[" ".join(map(str, each[0][:2])) for each in DAMAGE])
async def test_fsck_finds_nothing_and_then_what_was_damaged(
    server: PrivateValkey, damage: tuple[Any, ...], fault: str
) -> None:
    async with PushStoreKit(server.url) as kit:
        await kit.report("a")
        await kit.report("b", ok=False)
        assert await kit.findings() == []
        await kit.client.execute_command(*damage)
        damaged = await kit.findings()
        assert f"ns/t/0: push: {fault}" in damaged
        assert len(damaged) == len(set(damaged))
