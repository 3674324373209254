"""What listeners are told: every change of a job or a topic, gaps where events are missing, and nothing at no cost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from engine_kit import NS, EngineKit, running, settled

from dueline.engine.commands import Patch, Pull, Send, TopicPatch
from dueline.engine.errors import InvalidField, StoreDown
from dueline.engine.event import Event
from dueline.engine.event_feeds import RING_ENTRIES, WRITTEN_ENTRIES, Batch, EventMessage, Feed, Gap
from dueline.engine.event_stream import INTEREST_MS, MAX_ENTRIES
from dueline.engine.job import BodyKind, Partition, Reason
from dueline.engine.policy import TopicPolicy
from dueline.engine.recorder import MAX_BUFFERED
from dueline.engine.store import Merge, Ref, Release
from dueline.store.memory.event_stream import MemoryEventStream
from tests.kit.async_tests import async_fixture


@async_fixture
async def kit() -> AsyncIterator[EngineKit]:
    async with running() as kit:
        await kit.engine.start()
        yield kit


async def taken(kit: EngineKit, feed: Feed) -> list[EventMessage]:
    """What the feed has after everything was flushed."""
    for _ in range(4):
        await kit.advance(60)
    found: list[EventMessage] = []
    while not feed.ended and (some := await feed.next(0.001)):
        found += some
    return found


def said(messages: Sequence[EventMessage]) -> list[Any]:
    """Events in short; gaps by their reason."""
    return [
        one.what.reason if isinstance(one.what, Gap) else (one.what.what, one.what.topic, one.what.id)
        for one in messages
    ]


async def listening(kit: EngineKit, *topics: str) -> Feed:
    feed = await kit.engine.feeds.open(NS, topics)
    assert set(said(await taken(kit, feed))) <= {"new"}
    return feed


async def test_the_whole_life_of_a_job_is_told(kit: EngineKit) -> None:
    feed = await listening(kit)
    await kit.send("a", "one")
    [job] = await kit.pull("a")
    await kit.engine.release(NS, "a", [Release("one", job.lease, delay_ms=5000, error="x" * 300)])
    await kit.engine.fire(NS, "a", "one")
    [job] = await kit.pull("a")
    await kit.engine.ack(NS, "a", [Ref("one", job.lease)])
    messages = await taken(kit, feed)
    assert said(messages) == [
        (what, "a", "one") for what in ("sent", "delivered", "released", "fired", "delivered", "acked")
    ]
    events = [one.what for one in messages if isinstance(one.what, Event)]
    assert [event.attempt for event in events] == [None, 1, None, None, 2, None]
    assert [event.state for event in events] == ["ready", "leased", "scheduled", "ready", "leased", "done"]
    assert events[2].error == "x" * 200
    assert {event.namespace for event in events} == {NS}


async def test_a_delivery_says_to_whom_even_if_one_call_serves_several(kit: EngineKit) -> None:
    feed = await listening(kit)
    shares = (("ann", 2), ("bob", 1), (None, 1))
    pulls = [asyncio.create_task(kit.engine.pull(Pull(NS, ("a",), most, None, 5000, by=by))) for by, most in shares]
    await settled()
    for id in ("one", "two", "three", "four"):
        await kit.send("a", id, 1000)
    await kit.advance(1000)
    got = {job.id: by for pull, (by, _) in zip(pulls, shares, strict=True) for job in await pull}
    events = [one.what for one in await taken(kit, feed) if isinstance(one.what, Event)]
    delivered = {event.id: event.by for event in events if event.what == "delivered"}
    assert (delivered, sorted(map(str, got.values()))) == (got, ["None", "ann", "ann", "bob"])


async def test_edits_ends_and_dead_jobs_are_told(kit: EngineKit) -> None:
    feed = await listening(kit)
    await kit.send("a", "gone", 60_000)
    await kit.engine.patch(NS, "a", Patch("gone", delay_ms=5))
    await kit.engine.cancel(NS, "a", ["gone"])
    assert said(await taken(kit, feed)) == [(what, "a", "gone") for what in ("sent", "edited", "cancelled")]
    await kit.send("a", "once", max_attempts=1)
    for error in ("broken", "again"):
        [job] = await kit.pull("a")
        await kit.engine.release(NS, "a", [Release("once", job.lease, error=error)])
        await (kit.engine.revive if error == "broken" else kit.engine.purge)(NS, "a", ["once"])
    events = [one.what for one in await taken(kit, feed) if isinstance(one.what, Event)]
    whats = ["sent", "delivered", "dead", "revived", "delivered", "dead", "purged"]
    assert [event.what for event in events] == whats
    assert (events[2].reason, events[2].error, events[2].state) == ("exhausted", "broken", "dead")


async def test_a_death_by_time_is_told_when_it_is_recorded(kit: EngineKit) -> None:
    feed = await listening(kit)
    await kit.send("a", "late", ttl_ms=1000)
    await kit.advance(30_000)
    dead = [one.what for one in await taken(kit, feed) if isinstance(one.what, Event) and one.what.what == "dead"]
    assert [(event.id, event.reason) for event in dead] == [("late", "expired")]


async def test_sends_that_replace_or_join_are_told_as_such_and_refused_ones_are_not(kit: EngineKit) -> None:
    feed = await listening(kit)
    await kit.send("a", "one", 60_000)
    await kit.send("a", "one", 60_000)
    for _ in range(2):
        await kit.engine.send(NS, "g", Send(None, b"1", BodyKind.JSON, merge=Merge("key", quiet_ms=1000)))
    messages = said(await taken(kit, feed))
    assert [(what, topic) for what, topic, _ in messages] == [("sent", "a"), ("sent", "g"), ("appended", "g")]
    assert messages[1][2] == messages[2][2], "both name the group"


async def test_changes_of_topics_are_told(kit: EngineKit) -> None:
    feed = await listening(kit)
    await kit.engine.set_topic(NS, "a", TopicPatch(TopicPolicy()))
    await kit.engine.pause(NS, "a", None)
    await kit.engine.resume(NS, "a")
    await kit.engine.set_topic(NS, "a", TopicPatch(TopicPolicy(lease_ms=5)))
    await kit.engine.delete_topic(NS, "a")
    whats = ("created", "paused", "resumed", "policy", "deleted")
    assert said(await taken(kit, feed)) == [(what, "a", None) for what in whats]


async def test_a_feed_has_only_its_namespace_and_its_topics(kit: EngineKit) -> None:
    feed = await listening(kit, "a", "b")
    for namespace, topic in ((NS, "a"), (NS, "c"), ("other", "a"), (NS, "b")):
        await kit.engine.send(namespace, topic, Send("x", b"1", BodyKind.JSON))
    assert said(await taken(kit, feed)) == [("sent", "a", "x"), ("sent", "b", "x")]


async def test_listeners_with_the_same_wishes_share_what_was_written_for_the_first(kit: EngineKit) -> None:
    feeds = [await listening(kit), await listening(kit), await listening(kit, "b")]
    for number in "123":
        await kit.send("a", number)
        await kit.send("b", number)
        for _ in range(2):
            await kit.advance(60)
    written: list[list[str | None]] = []

    def write(batch: Batch) -> bytes:
        written[-1] += [event.id for event in batch.events]
        return b""

    for feed in feeds:
        written.append([])
        for batch in await feed.batches(0.001):
            batch.written(write)
    assert written == [["1", "1", "2", "2", "3", "3"], [], ["1", "2", "3"]]


async def test_old_entries_are_written_for_each_listener_and_not_kept(kit: EngineKit) -> None:
    feeds = [await listening(kit), await listening(kit)]
    for number in range(WRITTEN_ENTRIES + 1):
        await kit.send("a", f"{number}")
        for _ in range(2):
            await kit.advance(60)
    first, second = [await feed.batches(0.001) for feed in feeds]
    assert [one is other for one, other in zip(first, second, strict=True)] == [False] + [True] * WRITTEN_ENTRIES


async def test_nothing_is_recorded_while_nobody_listens(kit: EngineKit) -> None:
    await kit.send("a", "before")
    assert kit.store.hook.outcomes is None
    feed = await listening(kit)
    assert kit.store.hook.outcomes is not None
    await kit.send("a", "one")
    assert said(await taken(kit, feed)) == [("sent", "a", "one")]
    feed.close()
    await kit.advance(INTEREST_MS + 5_000)
    assert kit.store.hook.outcomes is None
    assert (await kit.store.stream.read("0-0")).entries == [], "the stream is empty when nobody listens"


async def test_a_listener_that_comes_back_in_time_misses_nothing(kit: EngineKit) -> None:
    feed = await listening(kit)
    await kit.send("a", "one")
    await kit.send("a", "two")
    first, second = await taken(kit, feed)
    feed.close()
    await kit.send("a", "three")
    again = await kit.engine.feeds.open(NS, (), first.id)
    assert said(await taken(kit, again)) == [("sent", "a", "two"), ("sent", "a", "three")]
    last = await kit.engine.feeds.open(NS, (), second.id)
    assert said(await taken(kit, last)) == [("sent", "a", "three")]


async def test_a_listener_that_comes_back_late_gets_a_gap(kit: EngineKit) -> None:
    feed = await listening(kit)
    await kit.send("a", "one")
    [messages] = await taken(kit, feed)
    feed.close()
    await kit.advance(INTEREST_MS + 5_000)
    await kit.send("a", "missed")
    again = await kit.engine.feeds.open(NS, (), messages.id)
    assert said(await taken(kit, again))[0] == "trimmed"


async def test_a_position_that_the_store_does_not_have_is_a_gap(kit: EngineKit) -> None:
    feed = await listening(kit)
    far = await kit.engine.feeds.open(NS, (), "9999999999999-5")
    assert said(await taken(kit, far)) == ["lost"]
    await kit.send("a", "one")
    assert said(await taken(kit, far)) == [("sent", "a", "one")]
    assert said(await taken(kit, feed)) == [("sent", "a", "one")]


@pytest.mark.parametrize("id", ["", "x", "1", "1-2-3-4", "-1-2", "1-x", "1" * 30 + "-1"])
async def test_an_id_that_is_none_is_refused(kit: EngineKit, id: str) -> None:
    with pytest.raises(InvalidField):
        await kit.engine.feeds.open(NS, (), id)


async def test_a_slow_listener_reads_from_the_store_and_behind_the_limit_gets_a_gap(kit: EngineKit) -> None:
    feed = await listening(kit)
    stream = kit.store.stream
    for number in range(1, RING_ENTRIES + 100, 100):
        await stream.append("other", number, [b"\x90"] * 100)  # no events
    await kit.send("a", "one")
    assert said(await taken(kit, feed)) == [("sent", "a", "one")]
    for number in range(RING_ENTRIES + 101, RING_ENTRIES + 100 + MAX_ENTRIES, 100):
        await stream.append("other", number, [b"\x90"] * 100)
    await kit.send("a", "two")
    assert said(await taken(kit, feed)) == ["trimmed", ("sent", "a", "two")]


async def test_a_missing_entry_of_a_member_is_a_gap(kit: EngineKit) -> None:
    feed = await listening(kit)
    event = b"\x91\x94\xa7default\xa1a\xa4sent\x01"
    await kit.store.stream.append("other", 1, [event])
    await kit.store.stream.append("other", 3, [event])
    assert said(await taken(kit, feed)) == [("sent", "a", None), "lost", ("sent", "a", None)]


async def test_a_full_buffer_and_an_unknown_outcome_are_gaps(kit: EngineKit) -> None:
    feed = await listening(kit)
    recorder = kit.store.hook.outcomes
    assert recorder is not None
    for number in range(MAX_BUFFERED + 5):
        recorder.died(Partition(NS, "a", 0), [(f"{number}", Reason.EXPIRED)])
    messages = said(await taken(kit, feed))
    assert (len(messages), messages.count("lost")) == (MAX_BUFFERED + 1, 1)
    await kit.advance(2_000)
    recorder.lost()
    assert said(await taken(kit, feed)) == ["lost"]


class FailingStream(MemoryEventStream):
    """The reference stream, whose appends take effect and then fail while `failing`."""

    failing = False

    async def append(self, *args: Any, **options: Any) -> int:
        until_ms = await super().append(*args, **options)
        if self.failing:
            raise StoreDown("its answer was lost")
        return until_ms


async def test_an_append_whose_answer_was_lost_is_repeated_without_repeating_events() -> None:
    async with running() as kit:
        kit.store.stream = stream = FailingStream(kit.clock)
        await kit.engine.start()
        feed = await listening(kit)
        stream.failing = True
        await kit.send("a", "one")
        await kit.advance(60)
        await kit.send("a", "two")
        await kit.advance(60)
        stream.failing = False
        await kit.advance(5_000)
        assert said(await taken(kit, feed)) == [("sent", "a", "one"), ("sent", "a", "two")]


async def test_draining_ends_the_feeds(kit: EngineKit) -> None:
    feed = await listening(kit)
    waiting = asyncio.ensure_future(feed.next(60))
    await settled()
    await kit.engine.drain()
    assert await waiting == []
    assert feed.ended
