"""Power loss. A shim in the store records how much of the append-only file was really synced; after a kill -9 the
file is cut to that length, which is what a disk would hold after the plug was pulled.

With `appendfsync always` (ours) nothing acknowledged is lost. With `everysec` some is, and the test must see it: that
is the proof that it can see a loss at all.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from dueline.store.valkey.embedded import EmbeddedStore
from dueline.store.valkey.embedded_extent import accept
from dueline.testing.checker import Kind, Report, check
from dueline.testing.history import Recorder
from tests.kit.waiting import until
from tools.faults.load import Load, Plan
from tools.faults.server_process import ServerProcess, ended

from .broken_server import Sound, served
from .kit import append_only_file, cut, serving, synced_length

# Producers only, nothing due during the test: every acknowledged job must be found again.
PLAN = Plan(consumers=0, producers=8, max_delay_ms=0, pause_ms=1.0, wild=False)


def shimmed(shim: Path, log: Path) -> dict[str, str]:
    return {"LD_PRELOAD": str(shim), "SYNCED_LOG": str(log)}


async def loaded_until(server: ServerProcess, recorder: Recorder, jobs: int) -> Load:
    load = Load(PLAN, [server.address], recorder, seed=5)
    await load.start()
    await load.acknowledged_reaches(jobs)
    return load


async def judged_after_restart(data: Path, recorder: Recorder) -> Report:
    store = EmbeddedStore(data)
    await store.start()
    async with served(Sound(store.url)) as address:
        final = await Load(PLAN, [address], recorder).dump()
    await store.stop()
    return check(recorder.events, final)


async def next_sync(log: Path) -> None:
    """Return just after the store has synced."""
    seen = os.stat(log).st_size
    await until(lambda: os.stat(log).st_size != seen)


def pull_the_plug(data: Path, log: Path) -> int:
    """Cut the file to what was synced; how many bytes that took away."""
    file = append_only_file(data)
    synced, written = synced_length(log, file), file.stat().st_size
    assert 0 < synced <= written, "the shim saw no sync: this test shows nothing"
    cut(file, synced)
    return written - synced


async def test_no_acknowledged_send_is_lost_by_a_power_loss(folder: Path, shim: Path) -> None:
    data, log, recorder = folder / "data", folder / "synced.log", Recorder()
    async with serving(data, env=shimmed(shim, log)) as server:
        load = await loaded_until(server, recorder, 1500)
        store = server.store_pid()
        assert store is not None
        os.kill(store, signal.SIGSTOP)  # the plug: from here on nothing reaches the disk
        await server.kill()
        os.kill(store, signal.SIGKILL)
        await ended(store)
        await load.stop()
    pull_the_plug(data, log)
    report = await judged_after_restart(data, recorder)
    assert report.violations == ()
    assert report.sends_ok >= 1500


async def test_a_store_that_syncs_once_a_second_is_seen_to_lose_acknowledged_sends(folder: Path, shim: Path) -> None:
    data, log, recorder = folder / "data", folder / "synced.log", Recorder()
    store = EmbeddedStore(data, overrides={"appendfsync": "everysec"}, env=shimmed(shim, log))
    await store.start()
    async with serving(data, store_url=store.url) as server:
        load = await loaded_until(server, recorder, 200)
        await next_sync(log)
        await load.acknowledged_reaches(load.acknowledged + 20)  # well within the second before the next sync
        assert store.pid is not None
        os.kill(store.pid, signal.SIGKILL)
        await server.kill()
        await load.stop()
    await store.stop()
    assert pull_the_plug(data, log) > 0
    accept(data)  # a start might notice it, which is another test (test_lost_data)
    report = await judged_after_restart(data, recorder)
    assert report.count(Kind.LOST) > 0
    assert {violation.kind for violation in report.violations} == {Kind.LOST}
