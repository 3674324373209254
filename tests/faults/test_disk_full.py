"""The disk is full. Nothing acknowledged is lost, readiness says so, and it goes on by itself when there is room.

The first line of defence, which refuses sends while little room is left, is switched off here, so that the disk really
fills: then the store ends rather than acknowledge what it cannot keep.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.testing.checker import check
from dueline.testing.history import Outcome, Recorder
from tests.kit.waiting import until
from tools.faults.connection import Connection
from tools.faults.load import Load, Plan
from tools.faults.store_check import findings_of

from .kit import serving

SENDERS = Plan(consumers=0, producers=4, max_delay_ms=0, pause_ms=1.0, body_bytes=4000, wild=False, timeout_s=1.0)


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of 4 MiB. Needs root and mount(8)."""
    path = folder / "disk"
    path.mkdir()
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", path], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a tmpfs here, so no disk can be filled (needs root): {error}")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def grow(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=256m", disk], check=True)


async def until_readiness_says(address: tuple[str, int], words: str) -> None:
    """The store restarts on a full disk, so it may say for a moment that it is loading."""
    http = Connection(*address)
    await until(lambda: http.request("GET", "/readyz"), lambda answer: words in answer.body.decode())
    http.close()


async def until_somebody_gave_up(recorder: Recorder) -> None:
    """Keep the disk full until a client has run out of patience."""
    await until(lambda: any(e.outcome is Outcome.INFO for e in recorder.events[-50:]))


async def test_a_full_disk_loses_nothing_and_heals_when_there_is_room(small_disk: Path) -> None:
    recorder = Recorder()
    data = small_disk / "data"
    async with serving(data, env={"DUELINE_STORE__MIN_FREE_BYTES": "0"}) as server:
        load = Load(SENDERS, [server.address], recorder, seed=8)
        await load.start()
        await until_readiness_says(server.address, "disk_full")
        recorder.fault("disk full", recorder.now_ns())
        await until_somebody_gave_up(recorder)
        grow(small_disk)
        await until_readiness_says(server.address, '"ready":true')
        await load.acknowledged_reaches(load.acknowledged + 20)
        await load.stop_sending()
        drain = Load(Plan(producers=0, wild=False), [server.address], recorder)
        await drain.start()
        assert await drain.drained(20)
        await drain.stop()
        report = check(recorder.events, await load.dump())
        await load.stop()
        assert await server.stop() == 0
    assert report.violations == ()
    assert report.deliveries > 100
    assert report.under_way > 0
    assert await findings_of(data) == []
