"""The way of a call to the primary of its key, against nodes that say exactly what the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dueline.store.valkey.link import CONNECT_TIMEOUT_S, LEAST_REST_S, Link, LinkLost, NotNow, WrongKind
from dueline.store.valkey.topology import SLOTS
from dueline.store.valkey.wakeups import Wakeups
from tests.kit.fake_node import Answer, FakeNode
from tests.kit.waiting import until

WITHIN_S = 10.0


def give(owner: FakeNode, *others: FakeNode, epoch: int) -> None:
    """All slots belong to one node, the others are its replicas, and all of these say so."""
    row = [0, SLOTS - 1, *([b"127.0.0.1", node.port, b"id"] for node in (owner, *others))]
    for node in (owner, *others):
        node.slots, node.epoch = [row], epoch


def says(text: str) -> Answer:
    return lambda *_: Exception(text)


@asynccontextmanager
async def cluster(reply_timeout_s: float = 5.0) -> AsyncIterator[tuple[Link, FakeNode, FakeNode]]:
    """A Cluster of two nodes; the first has all slots."""
    first, second = FakeNode(), FakeNode()
    await first.start()
    await second.start()
    give(first, second, epoch=1)
    link = Link(f"redis+cluster://127.0.0.1:{first.port}", reply_timeout_s)
    await link.start()
    try:
        yield link, first, second
    finally:
        await link.stop()
        await first.stop()
        await second.stop()


async def test_a_call_goes_to_the_primary_of_its_slot() -> None:
    async with cluster() as (link, first, second):
        half = SLOTS // 2
        for node in (first, second):
            node.slots = [
                [0, half - 1, [b"127.0.0.1", first.port, b"a"]],
                [half, SLOTS - 1, [b"", second.port, b"b"]],  # without a host: on the host that was asked
            ]
        for number in range(20):
            await link.call(f"k{number}", "GET", f"k{number}")
        assert first.asked("GET") + second.asked("GET") == 20
        assert min(first.asked("GET"), second.asked("GET")) > 0
        assert await link.primaries() == (("127.0.0.1", first.port), ("127.0.0.1", second.port))


async def test_moved_is_followed_at_once_and_the_next_calls_go_to_the_new_node() -> None:
    async with cluster() as (link, first, second):
        await link.call("k", "PING")
        first.answers["GET"] = lambda *_: Exception(f"MOVED 7629 127.0.0.1:{second.port}")
        give(second, first, epoch=2)
        changes: list[object] = []
        link.watch(lambda: changes.append(link.owner_now("k")))
        assert [await link.call("k", "GET", "k") for _ in range(3)] == [b"OK"] * 3
        assert first.asked("GET") == 1
        await link.find()
        assert changes == [("127.0.0.1", second.port)]


async def test_a_subscription_follows_its_slot_before_the_layout_shows_the_move() -> None:
    async with cluster() as (link, first, second):
        first.answers["SSUBSCRIBE"] = lambda *_: Exception(f"MOVED 7629 127.0.0.1:{second.port}")
        second.answers["SSUBSCRIBE"] = lambda channel: [b"ssubscribe", channel.encode(), 1]
        wakeups, heard = Wakeups(link), asyncio.Event()
        async with asyncio.timeout(WITHIN_S):
            await wakeups.watch("k", lambda _: heard.set())
            await heard.wait()  # it may have missed something
        await wakeups.stop()
        assert second.asked("SSUBSCRIBE") > 0


async def test_ask_is_followed_for_one_call_only() -> None:
    async with cluster() as (link, first, second):
        first.answers["GET"] = lambda *_: Exception(f"ASK 7629 127.0.0.1:{second.port}")
        assert [await link.call("k", "GET", "k") for _ in range(2)] == [b"OK"] * 2
        assert first.asked("GET") == 2
        commands = [words for words in second.log if words[0] in ("ASKING", "GET")]
        assert commands == [("ASKING",), ("GET", "k")] * 2


async def test_a_slot_that_two_nodes_send_away_is_given_up_soon() -> None:
    async with cluster() as (link, first, second):
        first.answers["GET"] = lambda *_: Exception(f"MOVED 7629 127.0.0.1:{second.port}")
        second.answers["GET"] = lambda *_: Exception(f"MOVED 7629 127.0.0.1:{first.port}")
        with pytest.raises(NotNow, match="keeps moving"):
            await link.call("k", "GET", "k")


async def test_a_node_that_only_a_redirection_names_is_not_cut_by_an_older_layout() -> None:
    async with cluster() as (link, first, second):
        first.answers["GET"] = lambda *_: Exception(f"MOVED 7629 127.0.0.1:{second.port}")
        assert await link.call("k", "GET", "k") == b"OK"
        second.silent = True
        call = asyncio.ensure_future(link.call("k", "GET", "k"))
        await second.next_command()
        await link.find()  # the first node still says that all slots are its own
        assert link.owner_now("k") == ("127.0.0.1", first.port)
        assert not (await asyncio.wait([call], timeout=0.05))[0]
        call.cancel()


@pytest.mark.parametrize(
    ("text", "loading"),
    [
        ("TRYAGAIN Multiple keys request during rehashing of slot", False),
        ("CLUSTERDOWN Hash slot not served", False),
        ("MASTERDOWN Link with MASTER is down", False),
        ("NOREPLICAS Not enough good replicas to write.", False),
        ("READONLY You can't write against a read only replica.", False),
        ("LOADING it is loading", True),
        ("BUSY it is busy", False),
    ],
)
async def test_an_answer_of_a_failover_or_a_move_is_no_error_of_the_call(text: str, loading: bool) -> None:
    async with cluster() as (link, first, _):
        first.answers["GET"] = says(text)
        with pytest.raises(NotNow) as refused:
            await link.call("k", "GET", "k")
        assert (refused.value.loading, refused.value.written) == (loading, False)
        del first.answers["GET"]
        assert await link.call("k", "GET", "k") == b"OK"


async def test_calls_behind_a_readonly_answer_keep_their_own_answers() -> None:
    async with cluster() as (link, first, _):
        await link.call("k", "PING")
        first.answers["SET"] = says("READONLY You can't write against a read only replica.")
        outcomes = await asyncio.gather(
            *(link.call("k", name, "k") for name in ("SET", "GET", "GET")), return_exceptions=True
        )
        assert [type(one) if isinstance(one, Exception) else one for one in outcomes] == [NotNow, b"OK", b"OK"]
        roles = first.asked("ROLE")
        await link.call("k", "GET", "k")
        assert first.asked("ROLE") == roles + 1, "the next connection asks for the role again"


async def test_a_node_that_is_not_a_primary_gets_no_calls() -> None:
    async with cluster() as (link, first, second):
        first.role = [b"slave", b"127.0.0.1", second.port, b"connected", 0]
        with pytest.raises(LinkLost, match="is not a primary") as lost:
            await link.call("k", "GET", "k")
        assert (lost.value.written, first.asked("GET")) == (False, 0)
        give(second, first, epoch=2)
        await link.find()
        assert await link.call("k", "GET", "k") == b"OK"


async def test_the_answer_with_the_highest_epoch_counts() -> None:
    async with cluster() as (link, first, second):
        await link.call("k", "PING")
        assert link.owner_now("k") == ("127.0.0.1", first.port)
        # The first node was cut off and knows only its old view.
        second.slots, second.epoch = [[0, SLOTS - 1, [b"127.0.0.1", second.port, b"id"]]], 5
        first.slots = [[0, 9, [b"127.0.0.1", second.port, b"b"]], [10, SLOTS - 1, [b"127.0.0.1", first.port, b"a"]]]
        await link.find()  # learns of the second node
        await link.find()
        assert link.owner_now("k") == ("127.0.0.1", second.port)


async def test_a_silent_primary_that_was_replaced_is_cut_long_before_its_timeout() -> None:
    async with cluster(reply_timeout_s=60.0) as (link, first, second):
        await link.call("k", "PING")
        first.silent = True
        call = asyncio.ensure_future(link.call("k", "GET", "k"))
        await first.next_command()
        give(second, epoch=2)
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(LinkLost, match="not a primary any more") as lost:
                await call
        assert lost.value.written
        assert await link.call("k", "GET", "k") == b"OK"


async def test_a_connect_to_a_primary_that_was_replaced_is_cut_too() -> None:
    async with cluster() as (link, first, second):
        await link.find()
        first.silent = True
        call = asyncio.ensure_future(link.call("k", "GET", "k"))
        await first.next_command()
        give(second, epoch=2)
        async with asyncio.timeout(CONNECT_TIMEOUT_S - 1):  # it does not wait for the end of the connect
            with pytest.raises(LinkLost, match="not a primary any more") as lost:
                await call
        assert not lost.value.written


async def test_a_node_that_is_no_cluster_says_how_to_write_its_address() -> None:
    async with cluster() as (link, first, _):
        first.answers["CLUSTER"] = says("ERR This instance has cluster support disabled")
        with pytest.raises(WrongKind, match="redis://"):
            await link.call("k", "GET", "k")


@asynccontextmanager
async def sentinels(count: int = 3) -> AsyncIterator[tuple[Link, list[FakeNode], FakeNode, FakeNode]]:
    """Sentinels that all name the first of two nodes."""
    nodes = [FakeNode() for _ in range(count + 2)]
    for node in nodes:
        await node.start()
    *watchers, first, second = nodes
    for watcher in watchers:
        name(watcher, first, epoch=1)
    hosts = ",".join(f"127.0.0.1:{watcher.port}" for watcher in watchers)
    link = Link(f"redis+sentinel://{hosts}/jobs")
    try:
        yield link, watchers, first, second
    finally:
        await link.stop()
        for node in nodes:
            await node.stop()


def name(watcher: FakeNode, primary: FakeNode, epoch: int) -> None:
    def answer(command: str, service: str) -> Any:
        if service != "jobs":
            return None if command == "GET-MASTER-ADDR-BY-NAME" else Exception("ERR No such master with that name")
        if command == "GET-MASTER-ADDR-BY-NAME":
            return [b"127.0.0.1", b"%d" % primary.port]
        return [b"name", b"jobs", b"config-epoch", b"%d" % epoch]

    watcher.answers["SENTINEL"] = answer


async def test_the_sentinel_with_the_newest_failover_is_believed() -> None:
    async with sentinels() as (link, watchers, first, second):
        name(watchers[2], second, epoch=2)
        await link.call("k", "GET", "k")
        assert (first.asked("GET"), second.asked("GET")) == (0, 1)


async def test_one_sentinel_is_enough() -> None:
    async with sentinels() as (link, watchers, first, _):
        await watchers[0].stop()
        watchers[1].silent = True
        await link.call("k", "GET", "k")
        assert first.asked("GET") == 1


async def test_a_new_primary_is_found_when_the_old_one_breaks_off() -> None:
    async with sentinels() as (link, watchers, first, second):
        await link.call("k", "GET", "k")
        for watcher in watchers:
            name(watcher, second, epoch=2)
        await first.stop()
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    await link.call("k", "SET", "k")
                    break
                except LinkLost:
                    await asyncio.sleep(0.01)
        assert second.asked("SET") == 1


async def test_sentinels_that_do_not_know_the_service_say_so() -> None:
    async with sentinels() as (_, watchers, *_):
        hosts = ",".join(f"127.0.0.1:{watcher.port}" for watcher in watchers)
        other = Link(f"redis+sentinel://{hosts}/others")
        with pytest.raises(LinkLost, match='do not know the service "others"'):
            await other.call("k", "GET", "k")
        await other.stop()


async def test_the_sentinels_get_their_own_password_and_the_nodes_theirs() -> None:
    async with sentinels() as (_, watchers, first, __):
        url = f"redis+sentinel://ann:nodes@127.0.0.1:{watchers[0].port}/jobs?sentinel_password=theirs"
        link = Link(url)
        await link.call("k", "GET", "k")
        await link.stop()
        assert ("AUTH", "ann", "nodes") in first.log
        assert ("AUTH", "theirs") in watchers[0].log


async def test_a_call_that_rests_goes_on_when_the_layout_changes() -> None:
    async with cluster() as (link, first, second):
        await link.call("k", "GET", "k")
        resting = asyncio.create_task(link.rest(3600.0))
        await until(lambda: link._recovery is not None)  # it has begun to wait
        give(second, first, epoch=2)
        await asyncio.shield(link.find())
        async with asyncio.timeout(60):
            await resting


async def test_a_rest_is_never_shorter_than_a_moment_and_ends_by_itself() -> None:
    async with cluster() as (link, _, _):
        async with asyncio.timeout(60):
            await link.rest(0.0)
            await link.rest(3 * LEAST_REST_S)
