"""The connection to the store is cut at every byte between a script's request and the end of its reply.

The script ran (or did not), nobody knows; the store layer asks again. Nothing of that may be visible: the answer and
the whole state of the partition must be those of a run in which nothing broke.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from dueline.engine.bands import ForecastPart
from dueline.engine.chart_store import MINUTE_MS, ChartRow
from dueline.engine.directory import Hint
from dueline.engine.job import Partition
from dueline.store.valkey.scripts import load_scripts
from tools.faults.proxy import Cut, FaultProxy

from ..kit.store import StoreKit, valkey_kit
from ..kit.valkey import PrivateValkey

Act = Callable[[StoreKit, Any], Awaitable[Any]]


async def two_leased(kit: StoreKit) -> Any:
    await kit.send("a", max_attempts=3)
    await kit.send("b", max_attempts=3)
    return {leased.id: leased.lease for leased in await kit.pull()}


async def two_sent(kit: StoreKit) -> Any:
    await kit.send("a", tags=("red",))
    await kit.send("b", delay_ms=50)


async def first_sent(kit: StoreKit, _: Any) -> Any:
    """A send that opens its partition, because the topic was not listed a moment ago."""
    assert await kit.store.directory.topic(kit.partition.namespace, kit.partition.topic) is None
    return await kit.send("a", delay_ms=7)


async def nothing(kit: StoreKit) -> None:
    return None


async def one_dead(kit: StoreKit) -> Any:
    await kit.make_dead("a")


async def one_exhausted_by_time(kit: StoreKit) -> Any:
    await kit.send("a", max_attempts=1)
    await kit.pull(lease_ms=10)
    kit.clock.advance(20)


async def pulled(kit: StoreKit, _: Any) -> Any:
    return [(h.id, h.attempt, h.delivery, h.body) for h in (await kit.pulled(10)).jobs]


async def noted(kit: StoreKit, _: Any) -> Any:
    """What may be repeated in the directory: register and note."""
    directory = kit.store.directory
    await directory.register([(kit.partition.namespace, kit.partition.topic)])
    await directory.note([Hint(kit.partition, kit.clock() - 1)])
    entry = await directory.topic(kit.partition.namespace, kit.partition.topic)
    return entry is not None


async def charted(kit: StoreKit, _: Any) -> Any:
    """One minute's counts, in a namespace of its own, because a store has one set of charts."""
    name, minute = kit.partition.topic, kit.clock() // MINUTE_MS
    asked = await kit.store.charts.add([ChartRow(name, minute, (1, 2))])
    return asked, [row.counts for row in (await kit.store.charts.read(name, minute, 1))[1]]


async def beaten(kit: StoreKit, _: Any) -> Any:
    """A worker's report, in a namespace of its own."""
    workers, name = kit.store.workers, kit.partition.topic
    done = await workers.beat(name, "w", b"report")
    return done, [(one.name, one.stopped, one.data) for one in (await workers.page(name, 0))[0]]


async def one_worker(kit: StoreKit) -> Any:
    await kit.store.workers.beat(kit.partition.topic, "w", b"report")


async def stopped(kit: StoreKit, _: Any) -> Any:
    workers, name = kit.store.workers, kit.partition.topic
    return await workers.leave(name, "w"), [one.stopped for one in (await workers.page(name, 0))[0]]


async def a_listener(kit: StoreKit) -> Any:
    await kit.store.stream.join(kit.partition.topic)
    return (await kit.store.stream.listen()).last


async def appended(kit: StoreKit, after: str) -> Any:
    """Two entries of a member of its own; a repeated call must not add them again."""
    await kit.store.stream.append(kit.partition.topic, 1, [b"one", b"two"])
    page = await kit.store.stream.read(after)
    return [(one.kind, one.number, one.data) for one in page.entries]


async def one_retry(kit: StoreKit) -> Any:
    await kit.send("b", delay_ms=50)
    await kit.send("a", max_attempts=3)
    await kit.release("a", (await kit.pull_one()).lease, delay_ms=30)


async def forecast(kit: StoreKit, _: Any) -> Any:
    return await kit.store.forecast([ForecastPart(kit.partition)], [kit.clock(), kit.clock() + 40, kit.clock() + 80])


OPERATIONS: dict[str, tuple[str, Callable[[StoreKit], Awaitable[Any]], Act]] = {
    "a usual send": ("send", two_sent, lambda kit, _: kit.send("c", body=b"third", delay_ms=7)),
    "a first send": ("send", nothing, first_sent),
    "an opening": ("epochs", nothing, first_sent),
    "a send with a tag": ("send", two_sent, lambda kit, _: kit.send("c", body=b"third", delay_ms=7, tags=("red",))),
    "a send with replace": ("send", two_leased, lambda kit, _: kit.send("a", body=b"new", on_live=2)),
    "a pull": ("pull", two_sent, pulled),
    "an ack": ("ack", two_leased, lambda kit, tokens: kit.ack("a", tokens["a"])),
    "an ack that keeps no tombstone": (
        "ack",
        lambda kit: two_leased_without_tombstone(kit),
        lambda kit, tokens: kit.ack("a", tokens["a"]),
    ),
    "a release": ("release", two_leased, lambda kit, tokens: kit.release("a", tokens["a"], delay_ms=30)),
    "an uncounted release": ("release", two_leased, lambda kit, tokens: kit.release("a", tokens["a"], count=False)),
    "an extend": ("extend", two_leased, lambda kit, tokens: kit.extend("a", tokens["a"], 90_000)),
    "a cancel": ("cancel", two_sent, lambda kit, _: kit.cancel("a")),
    "an edit": ("edit", two_sent, lambda kit, _: kit.edit("b", delay_ms=500, body=b"edited")),
    "a read": ("read", two_sent, lambda kit, _: kit.state("a")),
    "a history": ("read", two_leased, lambda kit, _: kit.history("a")),
    "a list": ("list", two_sent, lambda kit, _: kit.listed_ids(tag="red")),
    "a pause": ("control", two_sent, lambda kit, _: kit.control(pause_until_ms=kit.clock() + 1000)),
    "a revive": ("dead", one_dead, lambda kit, _: revived(kit)),
    "a clean-up": ("clean", one_exhausted_by_time, lambda kit, _: kit.clean()),
    "charts": ("charts", two_sent, charted),
    "directory hints": ("directory", two_sent, noted),
    "a forecast": ("forecast", one_retry, forecast),
    "a worker's beat": ("workers", two_sent, beaten),
    "a worker's end": ("workers", one_worker, stopped),
    "appended events": ("events", a_listener, appended),
}


async def two_leased_without_tombstone(kit: StoreKit) -> Any:
    await kit.send("a", retain_ms=0)
    await kit.send("b", retain_ms=0)
    return {leased.id: leased.lease for leased in await kit.pull()}


async def revived(kit: StoreKit) -> Any:
    return [(id, done.code, done.at_ms) for id, done in await kit.revive("a")]


async def whole_state(kit: StoreKit) -> Any:
    """Everything a caller can see of the partition, but for its name."""
    jobs = [msgspec.structs.replace(job, topic="") for job in await kit.listed(body=True)]
    return await kit.stats(), sorted(jobs, key=lambda job: job.id)


class ProxyKit:
    """One real store, the proxy before it, and a kit that reaches it only through the proxy."""

    def __init__(self, server: PrivateValkey, folder: Path) -> None:
        self.proxy = FaultProxy(Path(server.url.removeprefix("unix://")), folder / "p.sock")
        self.store_kit = valkey_kit("valkey", f"unix://{folder / 'p.sock'}")
        self.turn = 0

    async def __aenter__(self) -> ProxyKit:
        await self.proxy.start()
        await self.store_kit.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.store_kit.__aexit__(None, None, None)
        await self.proxy.stop()

    async def play(self, prepare: Callable[[StoreKit], Awaitable[Any]], act: Act, cut: Cut | None) -> tuple[Any, Any]:
        """Prepare a fresh partition, do the act with the cut armed, and look at all of it."""
        self.turn += 1
        start_ms = self.store_kit.clock()
        self.store_kit.partition = Partition("ns", f"{uuid.uuid4().hex}-{self.turn}")
        prepared = await prepare(self.store_kit)
        if cut is not None:
            self.proxy.arm(cut)
        answer = await asyncio.wait_for(act(self.store_kit, prepared), 20)
        self.proxy.disarm()
        state = await whole_state(self.store_kit)
        assert self.store_kit.clock() >= start_ms
        self.store_kit.clock.step(start_ms - self.store_kit.clock())
        return answer, state


def points(length: int) -> list[int]:
    """The first and the last bytes of a reply, and an even choice between."""
    return sorted(
        {n for n in (*range(4), *range(4, length, max(1, length // 12)), *range(length - 4, length)) if n >= 0}
    )


@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_reply_cut_at_any_byte_changes_nothing_that_anybody_can_see(
    name: str, private_valkey: PrivateValkey, folder: Path
) -> None:
    operation, prepare, act = OPERATIONS[name]
    marker = load_scripts()[operation].sha.encode()

    async with ProxyKit(private_valkey, folder) as kit:
        await kit.play(prepare, act, None)  # from now on the store knows every script of this play
        probe = Cut(marker, 1 << 30)
        expected = await kit.play(prepare, act, probe)
        assert probe.answered_bytes > 0, "the script's reply was not seen: this test shows nothing"
        for after in points(probe.answered_bytes):
            cut = Cut(marker, after)
            seen = await kit.play(prepare, act, cut)
            assert cut.fired.is_set(), after
            assert seen == expected, f"cut after {after} of {probe.answered_bytes} bytes of the reply"
        for after in (0, 1, 40, 120):
            cut = Cut(marker, after, up=True)
            seen = await kit.play(prepare, act, cut)
            assert seen == expected, f"cut after {after} bytes of the request"
        for after in (0, 3, 60):
            redis.from_url(private_valkey.url).script_flush()
            seen = await kit.play(prepare, act, Cut(marker, after))
            assert seen == expected, f"scripts flushed, then cut after {after} bytes"


async def test_hints_whose_taker_never_heard_of_them_come_back(private_valkey: PrivateValkey, folder: Path) -> None:
    """Taking is not repeatable and need not be: a hint is only moved ahead, so a lost answer costs its hold."""

    async with ProxyKit(private_valkey, folder) as kit:
        directory = kit.store_kit.store.directory
        await directory.note([Hint(kit.store_kit.partition, kit.store_kit.clock() - 1)])
        kit.proxy.arm(Cut(load_scripts()["directory"].sha.encode(), 0))
        first, _ = await directory.take(100, 1000)
        kit.store_kit.clock.advance(1001)
        again, _ = await directory.take(100, 1000)
        assert kit.store_kit.partition in {hint.partition for hint in (*first, *again)}


async def test_a_store_that_forgets_its_last_reply_is_noticed(private_valkey: PrivateValkey, folder: Path) -> None:
    """The positive control: without the memory of calls a repeated pull leases a second set."""

    def forgetful(name: str, source: str) -> str:
        return source.replace("sub(V[1], 1, 8) == nonce", "false") if name == "lib/head" else source

    async with ProxyKit(private_valkey, folder) as kit:
        kit.store_kit = valkey_kit("valkey", f"unix://{folder / 'p.sock'}", lua_patch=forgetful)
        await kit.store_kit.__aenter__()
        marker = load_scripts(forgetful)["pull"].sha.encode()
        expected = await kit.play(two_sent, pulled, None)
        assert await kit.play(two_sent, pulled, Cut(marker, 0)) != expected
