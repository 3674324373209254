"""How long a call tries while the store cannot be reached, on a clock of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.exceptions import NoScriptError

from dueline.engine.errors import Unavailable, UnknownOutcome
from dueline.engine.job import Partition
from dueline.store.valkey import attempts as module
from dueline.store.valkey.attempts import REFUSED_PATIENCE_S
from dueline.store.valkey.calls import Calls
from dueline.store.valkey.codec import pack_numbers
from dueline.store.valkey.link import Link, LinkLost
from tests.kit.waiting import turns

PATIENCE_S = 4.5


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept_s: list[float] = []

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        self.now_s += delay_s
        self.slept_s.append(delay_s)


class Store:
    """A link whose store answers, or fails with `error`."""

    permanent_keys = False
    replication = None
    guards = None

    def __init__(self, error: LinkLost | None, clock: Clock) -> None:
        self.error = error
        self.tries = 0
        self._clock = clock
        self._refused_at_s: float | None = None
        self.rest = clock.sleep

    async def call(self, key: str, *args: Any) -> Any:
        self.tries += 1
        if self.error is REFUSED:
            self._refused_at_s = self._refused_at_s or self._clock.now_s
            raise LinkLost("refused", False, refused_s=self._clock.now_s - self._refused_at_s)
        self._refused_at_s = None
        if self.error is not None:
            raise self.error
        return b"OK"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


async def attempt(calls: Calls, store: Store, clock: Clock) -> tuple[str, float, int]:
    """(outcome, seconds, tries) of one call."""
    began_s, store.tries = clock.now_s, 0
    try:
        await calls.plain("k", "PING")
    except Unavailable as error:
        return error.code, clock.now_s - began_s, store.tries
    return "ok", clock.now_s - began_s, store.tries


def made(error: LinkLost | None, clock: Clock) -> tuple[Calls, Store]:
    store = Store(error, clock)
    return Calls(store, "p", None, PATIENCE_S, None, None), store  # type: ignore[arg-type]


REFUSED = LinkLost("refused", False, refused_s=0.0)


async def test_a_store_that_refuses_connections_is_down_within_a_second_and_then_at_once(clock: Clock) -> None:
    calls, store = made(REFUSED, clock)
    code, spent_s, tries = await attempt(calls, store, clock)
    assert (code, tries > 3) == ("store_down", True)
    assert spent_s <= REFUSED_PATIENCE_S < 1
    for _ in range(3):
        clock.now_s += 0.2
        assert await attempt(calls, store, clock) == ("store_down", 0.0, 1)


async def test_when_it_answers_again_the_next_refusal_is_borne_as_the_first(clock: Clock) -> None:
    calls, store = made(REFUSED, clock)
    await attempt(calls, store, clock)
    clock.now_s += 60
    store.error = None
    assert await attempt(calls, store, clock) == ("ok", 0.0, 1)
    store.error = REFUSED
    assert (await attempt(calls, store, clock))[2] > 3


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LinkLost("silent", False), "store_down"),
        (LinkLost("broke", True), "unknown_outcome"),
        (LinkLost("loading", False, loading=True), "loading"),
    ],
)
async def test_a_store_that_is_silent_broke_off_or_loads_has_the_whole_patience(
    clock: Clock, error: LinkLost, code: str
) -> None:
    calls, store = made(error, clock)
    answer, spent_s, _ = await attempt(calls, store, clock)
    assert (answer, calls.errors) == (code, {code: 1})
    assert PATIENCE_S - 0.6 < spent_s <= PATIENCE_S


async def test_a_call_that_had_left_is_tried_on_when_the_store_then_refuses(clock: Clock) -> None:
    calls, store = made(LinkLost("broke", True), clock)
    whole = Store.call

    async def call(key: str, *args: Any) -> Any:
        try:
            return await whole(store, key, *args)
        finally:
            store.error = REFUSED

    store.call = call  # type: ignore[method-assign]
    code, spent_s, _ = await attempt(calls, store, clock)
    assert code == "unknown_outcome"
    assert spent_s > REFUSED_PATIENCE_S, "its outcome may still be learned"


async def test_the_time_of_a_try_counts_as_pause(clock: Clock) -> None:
    """A try without a replica takes 0.4 s. A pause after it would only miss the replica's return."""
    calls, store = made(LinkLost("no replica has it", True), clock)
    whole = Store.call

    async def call(key: str, *args: Any) -> Any:
        clock.now_s += 0.4
        return await whole(store, key, *args)

    store.call = call  # type: ignore[method-assign]
    code, spent_s, _ = await attempt(calls, store, clock)
    assert code == "unknown_outcome"
    assert PATIENCE_S - 0.6 < spent_s < PATIENCE_S + 0.5
    assert max(clock.slept_s) < 0.11


async def test_a_try_of_a_call_that_had_left_ends_with_the_patience() -> None:
    store = Store(LinkLost("broke", True), Clock())
    whole = Store.call

    async def call(key: str, *args: Any) -> Any:
        if store.tries:
            await asyncio.Event().wait()  # an answer that never comes
        return await whole(store, key, *args)

    store.call = call  # type: ignore[method-assign]
    calls = Calls(store, "p", None, 0.1, None, None)  # type: ignore[arg-type]
    async with asyncio.timeout(20):
        with pytest.raises(UnknownOutcome):
            await calls.plain("k", "PING")


@pytest.mark.parametrize("url", ["unix:///nowhere/v.sock", "redis://127.0.0.1:1", "redis://localhost:1"])
async def test_the_link_says_that_nobody_takes_connections(url: str) -> None:
    link = Link(url)
    with pytest.raises(LinkLost) as lost:
        await link.call("k", "PING")
    await link.stop()
    lost = lost.value
    assert (lost.refused_s is not None, lost.written) == (True, False)


class Forgetful(Store):
    """A store without scripts. Replies come in the order of the calls, after all of them have left."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(None, clock)
        self.sources = 0
        self.has_script = False

    async def call(self, key: str, *args: Any) -> Any:
        self.tries += 1
        self._clock.now_s += 0.001
        self.sources += args[0] == "EVAL"
        self.has_script = self.has_script or args[0] == "EVAL"
        known = self.has_script
        await turns(3)
        if not known:
            raise NoScriptError
        return bytes(21) + b"\1" + pack_numbers([])  # lua/lib/reply.lua: all zero, and one byte of numbers


async def test_of_many_calls_that_meet_a_store_without_scripts_one_brings_the_source(clock: Clock) -> None:
    store = Forgetful(clock)
    calls = Calls(store, "p", None, PATIENCE_S, None, None)  # type: ignore[arg-type]
    partition = Partition("n", "t")
    await asyncio.gather(*(calls.look("stats", partition, pack_numbers([])) for _ in range(50)))
    assert (store.sources, store.tries) == (1, 100)
    store.has_script = False  # they were flushed
    await calls.look("stats", partition, pack_numbers([]))
    assert (store.sources, store.tries) == (2, 102)
