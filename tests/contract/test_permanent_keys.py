"""On a Cluster a partition's keys never go away: a script on a slot that is being moved is refused when one is
missing."""

from __future__ import annotations

from typing import Any

import pytest

from dueline.engine.store import Code
from dueline.store.valkey.keys import LETTERS, partition_keys
from tests.kit.store import StoreKit

# Other stores move no slots and keep no empty keys.
pytestmark = pytest.mark.parametrize("kit", ["cluster"], indirect=True)


async def kept(kit: StoreKit) -> str:
    """The letters of the partition's keys that exist."""
    store: Any = kit.store
    keys = partition_keys(store.prefix, kit.partition).keys
    return "".join([letter for letter, key in zip(LETTERS, keys, strict=True) if await store.plain(key, "EXISTS", key)])


async def test_a_partition_that_was_used_and_emptied_still_has_its_nine_keys(kit: StoreKit) -> None:
    await kit.send("a", retain_ms=0, tags=("tag",), ttl_ms=60_000)
    assert await kept(kit) == LETTERS
    leased = await kit.pull_one()
    assert await kit.ack("a", leased.lease) is Code.OK
    await kit.clean()
    stats = await kit.stats()
    assert (stats.scheduled, stats.ready, stats.leased, stats.done) == (0, 0, 0, 0)
    assert await kept(kit) == LETTERS
