"""A broken network between the servers and a store that never fails itself: nothing is lost, early or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dueline.testing.process import free_port
from tests.kit.async_tests import async_fixture
from tests.kit.fault_suite import FaultSuite
from tests.kit.valkey import PrivateValkey
from tools.faults.proxy import Cut, FaultProxy

from .under_load import PLAN, LoadedServers, loaded

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

LONG_S = 1.5  # longer than a lease of the load, and than the time after which a server suspects a silent store


@pytest.fixture(scope="module")
def store() -> Iterator[PrivateValkey]:
    with PrivateValkey(port=free_port()) as store:
        yield store


@async_fixture
async def proxy(store: PrivateValkey) -> AsyncIterator[FaultProxy]:
    proxy = FaultProxy(("127.0.0.1", store.port))
    await proxy.start()
    yield proxy
    await proxy.stop()


async def delay(proxy: FaultProxy) -> None:
    for way in (proxy.up, proxy.down):
        way.latency_ms, way.jitter_ms = 20, 60
    await asyncio.sleep(LONG_S)


async def trickle(proxy: FaultProxy) -> None:
    for way in (proxy.up, proxy.down):
        way.slice_bytes, way.rate_bytes_per_s = 500, 40_000
    await asyncio.sleep(LONG_S)


async def stall(proxy: FaultProxy) -> None:
    proxy.down.stalled = True
    await asyncio.sleep(LONG_S)


async def half_open(proxy: FaultProxy) -> None:
    """Both sides believe in connections that carry nothing."""
    proxy.up.black_hole = proxy.down.black_hole = True
    await asyncio.sleep(LONG_S)
    proxy.sever(reset=True)


async def drop_replies(proxy: FaultProxy) -> None:
    """The store does what it is told, and nobody hears of it."""
    proxy.down.black_hole = True
    await asyncio.sleep(LONG_S / 3)
    proxy.sever()


async def cut(proxy: FaultProxy) -> None:
    """Three times, the reply of a script is cut off after a few bytes."""
    for after_bytes in (0, 1, 9):
        armed = proxy.arm(Cut(b"EVALSHA", after_bytes, reset=True))
        async with asyncio.timeout(30):
            await armed.fired.wait()


async def refuse(proxy: FaultProxy) -> None:
    proxy.refusing = True
    proxy.sever(reset=True)
    await asyncio.sleep(LONG_S)


FAULTS = (delay, trickle, stall, half_open, drop_replies, cut, refuse)


async def test_a_broken_network_to_the_store_loses_nothing(
    suite: FaultSuite, store: PrivateValkey, proxy: FaultProxy, folder: Path
) -> None:
    assert isinstance(proxy.address, tuple)
    url = f"redis://127.0.0.1:{proxy.address[1]}"
    async with loaded(folder, url, suite.seed, plan=PLAN, durability="standard") as running:
        for _ in range(suite.rounds(1, 5)):
            for fault in running.dice.sample(FAULTS, len(FAULTS)):
                await inject(running, proxy, fault)
        suite.report(await running.finished("One node: network broken in 7 ways"))


async def inject(running: LoadedServers, proxy: FaultProxy, fault) -> None:
    began_ns = running.recorder.now_ns()
    try:
        await fault(proxy)
    finally:
        proxy.heal()
    running.recorder.fault(fault.__name__, began_ns)
    await running.serves()
