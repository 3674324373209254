"""The disk is full. Nothing acknowledged is lost, readiness says so, and it goes on by itself when there is room.

The first line of defence refuses sends while little room is left. It is switched off in the first test, so that the
disk really fills: then the store ends rather than acknowledge what it cannot keep. A store with `everysec` does not
end; it refuses every change.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueline.testing.checker import check
from dueline.testing.history import Outcome, Recorder
from dueline.testing.process import free_port
from tests.kit.valkey import PrivateValkey
from tests.kit.waiting import until
from tools.faults.connection import Answer, Connection
from tools.faults.load import Load, Plan
from tools.faults.server_process import ServerProcess
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


def logged(server: ServerProcess, guard: str) -> list[str]:
    """The events of the lines about a guard."""
    lines = [json.loads(line) for line in server.output if line.startswith("{")]
    return [line["event"] for line in lines if line.get("guard") == guard]


async def asked(server: ServerProcess, path: str, body: bytes = b"") -> Answer:
    http = Connection(*server.address)
    try:
        return await http.request("POST" if body else "GET", path, body)
    finally:
        http.close()


@pytest.mark.slow
async def test_little_room_refuses_sends_and_the_rest_works(small_disk: Path) -> None:
    grow(small_disk)
    async with serving(small_disk / "data", env={"DUELINE_STORE__MIN_FREE_BYTES": str(64 << 20)}) as server:
        assert (await asked(server, "/v1/topics/t/jobs", b'{"body":1}')).status == 201
        filler = small_disk / "filler"
        filler.write_bytes(bytes(200 << 20))
        await until_readiness_says(server.address, '"code":"disk_low"')
        ready = (await asked(server, "/readyz")).json()
        assert (ready["ready"], [one["shard"] for one in ready["warnings"]]) == (True, ["embedded"])
        refused = await until(
            lambda: asked(server, "/v1/topics/t/jobs", b'{"body":2}'), lambda answer: answer.status != 201
        )
        assert (refused.status, refused.json()["error"]["code"]) == (507, "store_full")
        [job] = (await asked(server, "/v1/topics/t/pull", b"{}")).json()["jobs"]
        ack = json.dumps({"jobs": [{"id": job["id"], "lease": job["lease"]}]}).encode()
        assert (await asked(server, "/v1/topics/t/ack", ack)).status == 200
        filler.unlink()
        await until(lambda: asked(server, "/readyz"), lambda answer: "warnings" not in answer.json())
        assert (await asked(server, "/v1/topics/t/jobs", b'{"body":3}')).status == 201
        assert logged(server, "disk_low") == ["the disk is nearly full", "the disk has room again"]
        assert logged(server, "store_full") == []


@pytest.mark.slow
async def test_a_store_with_everysec_refuses_every_change_and_the_cause_is_named(small_disk: Path) -> None:
    options = ("--appendonly", "yes", "--appendfsync", "everysec", "--dir", str(small_disk))
    with PrivateValkey(port=free_port(), options=options) as store:
        async with serving(small_disk, store_url=store.url) as server:
            assert (await asked(server, "/v1/topics/t/jobs", b'{"body":1}')).status == 201
            [job] = (await asked(server, "/v1/topics/t/pull", b"{}")).json()["jobs"]
            body = json.dumps({"body": "x" * 200_000}).encode()
            refused = await until(lambda: asked(server, "/v1/topics/t/jobs", body), lambda answer: answer.status != 201)
            assert (refused.status, "No space left on device" in refused.json()["error"]["message"]) == (507, True)
            ack = json.dumps({"jobs": [{"id": job["id"], "lease": job["lease"]}]}).encode()
            answer = await asked(server, "/v1/topics/t/ack", ack)
            assert (answer.status, "No space left on device" in answer.body.decode()) == (507, True)
            ready = await asked(server, "/readyz")
            assert (ready.status, [one["code"] for one in ready.json()["reasons"]]) == (503, ["disk_full"])
            assert [one["shard"] for one in ready.json()["reasons"]] == [f"127.0.0.1:{store.port}"]
            grow(small_disk)
            await until_readiness_says(server.address, '"ready":true')
            acked = await until(lambda: asked(server, "/v1/topics/t/ack", ack), lambda one: one.status == 200)
            assert acked.json()["results"][0]["result"] == "acked"
            assert logged(server, "disk_full") == [
                "the store cannot write to its disk",
                "the store writes to its disk again",
            ]
