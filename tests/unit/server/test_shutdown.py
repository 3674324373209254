"""The phases in which a server stops, and the signals that end them."""

from __future__ import annotations

import asyncio

import pytest

from dueline.config.settings import Server, Settings, Store
from dueline.server.shutdown import Signals, lame_duck_s
from tests.kit.waiting import turns


@pytest.mark.parametrize(
    ("lame_duck_ms", "url", "seconds"),
    [(None, None, 0.0), (None, "redis://s", 3.0), (0, "redis://s", 0.0), (1500, None, 1.5), (1500, "redis://s", 1.5)],
)
def test_a_server_whose_store_others_serve_too_is_a_lame_duck_first(
    lame_duck_ms: int | None, url: str | None, seconds: float
) -> None:
    settings = Settings(server=Server(lame_duck_ms=lame_duck_ms), store=Store(url=url))
    assert lame_duck_s(settings) == seconds


async def test_each_further_signal_ends_the_phase_of_its_time() -> None:
    signals = Signals()
    signals.received()
    assert (signals.stop.is_set(), signals.again.is_set(), signals.hasten.is_set()) == (True, False, False)
    lame_duck = asyncio.create_task(signals.lame_duck(600))
    await turns(3)
    assert not lame_duck.done()
    signals.received()
    await lame_duck
    assert (signals.again.is_set(), signals.hasten.is_set()) == (True, False)
    signals.received()
    assert signals.hasten.is_set()


async def test_without_a_lame_duck_the_second_signal_hastens_the_drain() -> None:
    signals = Signals()
    signals.received()
    signals.received()
    assert signals.hasten.is_set()


async def test_a_lame_duck_ends_by_itself() -> None:
    signals = Signals()
    await signals.lame_duck(0.001)
    assert not signals.hasten.is_set()
