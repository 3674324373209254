"""What the usual case of a script leaves to the rest of it, where the model does not look."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from dueline.engine.job import BodyKind, Partition
from dueline.engine.policy import JobPolicy
from dueline.engine.store import Code, Credit, OnConflict, Pull, Ref, SendItem
from dueline.store.valkey.keys import partition_keys
from dueline.store.valkey.scripts import Patch
from dueline.store.valkey.store import ValkeyStore
from tests.kit.valkey import PrivateValkey

PARTITION = Partition("default", "t")


def careless(name: str, source: str) -> str:
    """An ack whose usual case takes jobs with tags too."""
    tagged = " or flags % 32 > 15"
    assert name != "ack" or tagged in source
    return source.replace(tagged, "") if name == "ack" else source


@pytest.mark.parametrize(("patch", "left"), [(None, 0), (careless, 1)], ids=["sound", "careless"])
async def test_an_acked_job_leaves_no_entry_of_its_tags(patch: Patch | None, left: int) -> None:
    with PrivateValkey() as valkey:
        await check_tags_after_an_ack(valkey.url, patch, left)


async def check_tags_after_an_ack(url: str, patch: Patch | None, left: int) -> None:
    store = ValkeyStore(url, lua_patch=patch)
    await store.start()
    try:
        rule = OnConflict.REJECT
        item = SendItem(
            "a", b"1", BodyKind.JSON, 0, None, JobPolicy(None, 20, 60_000, 60_000), None, rule, rule, 1, ("red",)
        )
        await store.send(PARTITION, [item])
        [job] = (await store.pull(PARTITION, Pull((Credit(1, None),), 30_000))).jobs
        [outcome] = await store.ack(PARTITION, [Ref(job.id, job.lease)])
        assert outcome.code is Code.OK
        with redis.from_url(url) as raw:
            assert raw.zcard(partition_keys("dueline", PARTITION).keys[8]) == left
    finally:
        await store.stop()


def forgetful(name: str, source: str) -> str:
    """An ack whose usual case leaves the end of the ttl on the agenda."""
    known = "if exp > 0 or (max > 0"
    assert name != "ack" or known in source
    return source.replace(known, "if (max > 0") if name == "ack" else source


@pytest.mark.parametrize(("patch", "left"), [(None, {b"t"}), (forgetful, {b"t", b"x"})], ids=["sound", "forgetful"])
async def test_an_acked_job_leaves_only_its_retention_on_the_agenda(patch: Patch | None, left: set[bytes]) -> None:
    with PrivateValkey() as valkey:
        store = ValkeyStore(valkey.url, lua_patch=patch)
        await store.start()
        try:
            rule, policy = OnConflict.REJECT, JobPolicy(None, 20, 60_000, 60_000)
            await store.send(PARTITION, [SendItem("a", b"1", BodyKind.JSON, 0, None, policy, 90_000, rule, rule, 1)])
            [job] = (await store.pull(PARTITION, Pull((Credit(1, None),), 30_000))).jobs
            await store.ack(PARTITION, [Ref(job.id, job.lease)])
            with redis.from_url(valkey.url) as raw:
                entries: Any = raw.zrange(partition_keys("dueline", PARTITION).keys[5], 0, -1)
            assert {entry[:1] for entry in entries} == left
        finally:
            await store.stop()
