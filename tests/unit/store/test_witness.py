"""Durability `replicated`, against a node that says exactly what the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dueline.engine.job import Partition
from dueline.store.valkey.keys import partition_keys
from dueline.store.valkey.link import Link, LinkLost
from dueline.store.valkey.witness import Replication
from tests.kit.fake_node import FakeNode
from tests.kit.waiting import until


@asynccontextmanager
async def replicated(accept: bool = False) -> AsyncIterator[tuple[Link, FakeNode]]:
    """A node with one replica, and a link that wants it."""
    node = FakeNode()
    await node.start()
    node.answers["INFO"] = lambda *_: b"# Server\r\nrun_id:one\r\n"
    node.answers["WAIT"] = lambda *_: 1
    link = Link(f"redis://127.0.0.1:{node.port}", replication=Replication(accept))
    try:
        yield link, node
    finally:
        await link.stop()
        await node.stop()


async def test_a_change_is_answered_after_a_marker_in_its_slot_reached_a_replica() -> None:
    async with replicated() as (link, node):
        assert await link.change("p:{t}:m", "EVALSHA", "x") == b"OK"
        commands = [words for words in node.log if words[0] in ("EVALSHA", "EVAL", "WAIT")]
        assert [words[0] for words in commands] == ["EVALSHA", "EVAL", "WAIT"]
        assert (commands[1][2:], commands[2][1]) == (("1", "p:{t}:W", "60000"), "1")


@pytest.mark.parametrize("namespace_ids", [False, True])
async def test_a_marker_is_no_key_of_a_partition(namespace_ids: bool) -> None:
    """Where topics share their ids, a key ends with the name of its topic: a marker must not be one of topic W."""
    async with replicated() as (link, node):
        await link.change(partition_keys("p", Partition("ns", "t", 0, namespace_ids)).keys[0], "EVALSHA", "x")
        [marker] = [words[3] for words in node.log if words[0] == "EVAL"]
        assert marker == ("p:{ns//0}:W" if namespace_ids else "p:{ns/t/0}:W")
        assert marker not in partition_keys("p", Partition("ns", "W", 0, namespace_ids)).keys


async def test_what_only_reads_waits_for_nobody() -> None:
    async with replicated() as (link, node):
        node.answers["WAIT"] = lambda *_: 0
        assert await link.call("p:{t}:m", "GET") == b"OK"
        assert node.asked("WAIT") == 0


async def test_one_marker_covers_all_answers_that_came_before_it() -> None:
    async with replicated() as (link, node):
        await link.change("p:{t}:m", "EVALSHA")
        before = node.asked("WAIT")
        await asyncio.gather(*(link.change("p:{t}:m", "EVALSHA") for _ in range(64)))
        assert node.asked("WAIT") - before <= 2
        assert node.asked("WAIT") == node.asked("EVAL")


@pytest.mark.parametrize("fault", ["no replica", "no marker"])
async def test_a_change_that_no_replica_is_known_to_have_is_not_answered(fault: str) -> None:
    async with replicated() as (link, node):
        if fault == "no replica":
            node.answers["WAIT"] = lambda *_: 0
        else:  # the count would speak of an older write
            node.answers["EVAL"] = lambda *_: Exception("ASK 1 127.0.0.1:1")
        with pytest.raises(LinkLost, match="replica") as lost:
            await link.change("p:{t}:m", "EVALSHA")
        assert lost.value.written


async def test_a_change_without_a_replica_is_answered_and_counted_if_that_is_accepted() -> None:
    async with replicated(accept=True) as (link, node):
        node.answers["WAIT"] = lambda *_: 0
        assert await link.change("p:{t}:m", "EVALSHA") == b"OK"
        assert link.replication == Replication(accept=True, uncovered=1)


async def test_a_lost_witness_takes_the_connection_beside_it_along() -> None:
    """A new witness may be at another process, whose replicas know nothing of older answers."""
    async with replicated() as (link, node):
        await link.change("p:{t}:m", "EVALSHA")
        assert len(node.connections) == 2
        node.answers["WAIT"] = lambda *_: node.connections[1].close() or 1
        with pytest.raises(LinkLost):
            await link.change("p:{t}:m", "EVALSHA")
        node.answers["WAIT"] = lambda *_: 1
        await link.change("p:{t}:m", "EVALSHA")
        assert len(node.connections) == 4


async def test_a_witness_at_another_process_is_not_used() -> None:
    async with replicated() as (link, node):
        names = iter([b"run_id:one\r\n", b"run_id:two\r\n"] * 5)
        node.answers["INFO"] = lambda *_: next(names)
        with pytest.raises(LinkLost, match="moved to another process"):
            await link.change("p:{t}:m", "EVALSHA")
        assert node.asked("EVALSHA") == 0


async def test_a_call_that_rests_goes_on_when_a_replica_confirms_again() -> None:
    async with replicated() as (link, node):
        node.answers["WAIT"] = lambda *_: 0
        with pytest.raises(LinkLost):
            await link.change("p:{t}:m", "EVALSHA")
        resting = asyncio.create_task(link.rest(3600.0))
        await until(lambda: link._recovery is not None)  # it has begun to wait
        node.answers["WAIT"] = lambda *_: 1
        await link.change("p:{t}:m", "EVALSHA")
        async with asyncio.timeout(60):
            await resting
