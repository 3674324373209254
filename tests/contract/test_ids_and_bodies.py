"""Any id of up to 512 bytes and any body come back as they were, and no two ids are confused."""

from __future__ import annotations

import uuid

import pytest

from dueline.engine.job import BodyKind, State
from dueline.engine.store import Code
from tests.kit.store import StoreKit, item

HEX = "0123456789abcdef0123456789abcdef"
RAW = "0123456789abcdef"

# Ids that a packed form could mix up: the same 16 bytes as hex of either case, as a UUID, as text, and near misses.
TRICKY_IDS = [
    "",
    "a",
    "A",
    "\0",
    "\0a",
    "a\0",
    "x" * 15,
    "x" * 16,
    "x" * 17,
    "\0" + "x" * 15,
    "\0" * 15,
    RAW,
    RAW[:-1],
    HEX,
    HEX.upper(),
    HEX[:-1],
    HEX + "0",
    HEX[:-1] + "g",
    bytes.fromhex(HEX).decode("latin-1"),
    str(uuid.UUID(HEX)),
    str(uuid.UUID(HEX)).upper(),
    "{" + str(uuid.UUID(HEX)) + "}",
    "00000000000000000000000000000000",
    "00000000-0000-0000-0000-000000000000",
    "\0" * 16,
    "\0" * 17,
    "\x01" + "\0" * 16,
    "ffffffffffffffffffffffffffffffff",
    "30313233343536373839616263646566",
    "zażółć gęślą jaźń",
    "👩‍🚀" * 3,
    "a{b}c",
    "x:y/z%2F",
    "b",
    "xa",
    "ta",
    "ea",
    "ba",
    "x" * 512,
    "é" * 256,
    "١" * 32,
    "0x" + HEX[:30],
    " " + HEX[:31],
]


async def test_no_two_ids_are_confused(kit: StoreKit) -> None:
    assert len(set(TRICKY_IDS)) == len(TRICKY_IDS)
    sent = await kit.send_many([item(id, body=f"{n}".encode(), tags=("t",)) for n, id in enumerate(TRICKY_IDS)])
    assert [result.code for result in sent] == [Code.CREATED] * len(TRICKY_IDS)
    jobs = await kit.store.read(kit.partition, TRICKY_IDS)
    assert [job and (job.id, job.body) for job in jobs] == [(id, f"{n}".encode()) for n, id in enumerate(TRICKY_IDS)]
    assert await kit.listed_ids(state=State.READY, limit=10) == TRICKY_IDS
    assert sorted(await kit.listed_ids(tag="t", limit=10)) == sorted(TRICKY_IDS)
    assert await kit.pull_ids() == TRICKY_IDS


@pytest.mark.parametrize("id", TRICKY_IDS, ids=lambda id: ascii(id)[:30])
async def test_every_id_lives_a_whole_life(kit: StoreKit, id: str) -> None:
    await kit.send(id, max_attempts=2, ttl_ms=1_000, tags=("t",))
    await kit.fire(id)
    leased = await kit.pull_one()
    assert leased.id == id
    await kit.extend(id, leased.lease, 40_000)
    await kit.release(id, leased.lease)
    leased = await kit.pull_one()
    assert (await kit.release(id, leased.lease)).code is Code.DEAD
    assert [(key, done.code) for key, done in await kit.revive(id)] == [(id, Code.OK)]
    leased = await kit.pull_one()
    assert await kit.ack(id, leased.lease) is Code.OK
    assert [job.id for job in await kit.listed(state=State.DONE)] == [id]
    assert await kit.purge(id) == [(id, Code.OK)]
    assert await kit.read(id) is None


@pytest.mark.parametrize("topic", ["a/1", "x}y", "{x}", "%7B", "a b", "ü", "*", "a\nb", "t:1", "", "x" * 255])
async def test_odd_topic_names_are_partitions_of_their_own(kit: StoreKit, topic: str) -> None:
    partition = type(kit.partition)(kit.partition.namespace + kit.partition.topic, topic)
    near = type(kit.partition)(kit.partition.namespace + kit.partition.topic, topic + "}")
    await kit.store.send(partition, [item("a", body=b"1")])
    await kit.store.send(near, [item("a", body=b"2")])
    (job,) = await kit.store.read(partition, ["a"])
    assert job is not None
    assert (job.topic, job.body) == (topic, b"1")


EVERY_BYTE = bytes(range(256))


@pytest.mark.parametrize("kind", list(BodyKind))
@pytest.mark.parametrize("body", [b"", b"\0", EVERY_BYTE, EVERY_BYTE[::-1] * 3, "né".encode(), b"{}"], ids=repr)
async def test_every_body_comes_back_byte_for_byte(kit: StoreKit, kind: BodyKind, body: bytes) -> None:
    await kit.send("a", body=body, kind=kind, headers=EVERY_BYTE, max_attempts=1)
    job = await kit.job("a")
    assert (job.body, job.kind, job.headers) == (body, kind, EVERY_BYTE)
    leased = await kit.pull_one()
    assert (leased.body, leased.kind, leased.headers) == (body, kind, EVERY_BYTE)
    await kit.release("a", leased.lease)
    dead = await kit.job("a")
    assert (dead.state, dead.body) == (State.DEAD, body)


async def test_a_body_of_a_mebibyte_travels(kit: StoreKit) -> None:
    body = EVERY_BYTE * 4_096
    assert len(body) == 1 << 20
    await kit.send_many([item("small"), item("big", body=body), item("last")])
    leased = await kit.pull()
    assert [one.id for one in leased] == ["small", "big", "last"]
    assert leased[1].body == body
    assert (await kit.job("big")).body == body


async def test_a_read_without_bodies_has_none(kit: StoreKit) -> None:
    await kit.send("a", headers=b"h")
    job = await kit.read("a", body=False)
    assert job is not None
    assert (job.body, job.headers) == (None, b"h")


async def test_many_tags_of_odd_text_come_back_in_order(kit: StoreKit) -> None:
    tags = ("z", "a", "ü" * 32, "with space", "{brace}", "1")
    await kit.send("a", tags=tags)
    assert (await kit.job("a")).tags == tags
    for tag in tags:
        assert await kit.listed_ids(tag=tag) == ["a"]


async def test_errors_of_odd_text_come_back(kit: StoreKit) -> None:
    await kit.send("a")
    leased = await kit.pull_one()
    await kit.release("a", leased.lease, error="naïve\n\0 👩‍🚀")
    assert (await kit.job("a")).last_error == "naïve\n\0 👩‍🚀"
