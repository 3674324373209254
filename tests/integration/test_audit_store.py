"""The keys of the audit log in a real store: what a batch costs, and what fsck says of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis.asyncio as redis

from dueline.engine.audit_log import AuditEntry, AuditFilter
from dueline.store.valkey.fsck import fsck
from dueline.store.valkey.keys import audit_keys
from dueline.store.valkey.store import ValkeyStore
from tests.kit.async_tests import async_fixture
from tests.kit.valkey import PrivateValkey

PREFIX = "audited"
STATE, LOG = audit_keys(PREFIX)


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateValkey]:
    with PrivateValkey() as server:
        yield server


class AuditStoreKit:
    """A store, a plain client beside it, and how many script calls were made."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.calls: Counter[str] = Counter()
        self.store = ValkeyStore(url, prefix=PREFIX, on_call=lambda name, _: self.calls.update([name]))
        self.client: Any = redis.Redis.from_url(url)

    async def append(self, count: int, max_entries: int = 0) -> None:
        await asyncio.gather(*(self.store.audit.append([entry(str(n))], max_entries) for n in range(count)))

    async def faults(self) -> list[str]:
        return [str(finding) for finding in (await fsck(self.url, PREFIX)).findings]


@async_fixture
async def kit(server: PrivateValkey) -> AsyncIterator[AuditStoreKit]:
    kit = AuditStoreKit(server.url)
    await kit.client.flushall()
    await kit.store.start()
    yield kit
    await kit.store.stop()
    await kit.client.aclose()


def entry(id: str) -> AuditEntry:
    return AuditEntry(id, "", "", "127.0.0.1", "default", "pause", "t", {}, 200, "", "host:1")


async def test_entries_of_one_moment_cost_two_calls(kit: AuditStoreKit) -> None:
    await kit.append(300)
    assert kit.calls["audit"] <= 2
    assert await kit.client.llen(LOG) == 300


async def test_fsck_finds_nothing_in_a_good_log(kit: AuditStoreKit) -> None:
    assert await kit.faults() == []
    await kit.append(7, max_entries=5)
    assert await kit.faults() == []


async def test_fsck_names_what_is_wrong_with_a_log(kit: AuditStoreKit) -> None:
    await kit.append(3, max_entries=3)
    await kit.client.lpush(LOG, b"\0" * 6 + b"\xff\xffshort")
    assert await kit.faults() == [
        "store: audit: the log has 4 entries, 3 are kept",
        "store: audit: the log has 4 entries, 3 were counted",
        "store: audit: 1 entries of the log cannot be read",
    ]
    await kit.client.hset(STATE, "n", "many")
    assert await kit.faults() == ["store: audit: the state cannot be read"]
    await kit.client.delete(STATE)
    assert await kit.faults() == ["store: audit: has a log but no state"]


async def test_what_gone_processes_left_in_the_state_is_removed(kit: AuditStoreKit) -> None:
    await kit.client.hset(STATE, mapping={f"c:{number}": b"nonce678" + b"\0" * 6 for number in range(60)})
    await kit.append(1)
    await kit.append(1)
    assert await kit.client.hlen(STATE) < 10
    assert [one.id for one in (await kit.store.audit.page(AuditFilter(), b"", 9))[0]] == ["0", "0"]
