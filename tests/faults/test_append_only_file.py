"""The append-only file cut short, overwritten in the middle, and with one bit of a body turned.

Every operation notes how long the file was when it was answered, so that for any cut the exact state is known: that
after the last operation which lies in the file whole. One script is one unit; half of one is never seen.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dueline.engine.job import BodyKind, Partition, Reason, State
from dueline.engine.on_dead import can_forward
from dueline.engine.store import Code, Credit, Outcome, Pull, Query, Ref, Release
from dueline.store.valkey.embedded import EmbeddedError, EmbeddedStore
from dueline.store.valkey.store import ValkeyStore
from tools.faults.store_check import findings_at

from ..kit.store import item
from .kit import append_only_file, cut

CUTS = 24
HOUR_MS = 3_600_000
PARTITION = Partition("default", "cut")
States = dict[str, tuple[str, int]]


@asynccontextmanager
async def opened(data: Path) -> AsyncIterator[tuple[EmbeddedStore, ValkeyStore]]:
    embedded = EmbeddedStore(data)
    await embedded.start()
    store = ValkeyStore(embedded.url)
    try:
        await store.start()
        yield embedded, store
    finally:
        await store.stop()
        await embedded.stop()


async def states_of(store: ValkeyStore) -> States:
    states: States = {}
    cursor: bytes | None = b""
    while cursor is not None:
        page = await store.list(PARTITION, Query(cursor=cursor, limit=500))
        states |= {job.id: (job.state.value, job.attempts) for job in page.jobs}
        cursor = page.cursor
    return states


async def a_busy_morning(store: ValkeyStore, file: Path) -> list[tuple[int, States]]:
    """Random operations one after the other; after each, the file's length and the state that must be found there."""
    dice = random.Random(20)
    states: States = {}
    leased: dict[str, str] = {}
    marks: list[tuple[int, States]] = [(0, {})]
    for turn in range(120):
        deed = dice.choice(("send", "send", "pull", "ack", "release", "cancel"))
        if deed == "send":
            ids = [f"{turn}-{n}" for n in range(dice.choice((1, 1, 5, 30)))]
            later = dice.random() < 0.5
            items = [item(id, body=os.urandom(dice.randrange(200)), delay_ms=HOUR_MS if later else 0) for id in ids]
            await store.send(PARTITION, items)
            states |= dict.fromkeys(ids, ("scheduled" if later else "ready", 0))
        elif deed == "pull":
            pulled = await store.pull(PARTITION, Pull((Credit(dice.randint(1, 9), HOUR_MS),), HOUR_MS))
            for job in pulled.jobs:
                leased[job.id] = job.lease
                states[job.id] = ("leased", job.attempt)
        elif leased and deed in ("ack", "release"):
            ids = dice.sample(sorted(leased), min(len(leased), dice.randint(1, 4)))
            if deed == "ack":
                await store.ack(PARTITION, [Ref(id, leased[id]) for id in ids])
            else:
                await store.release(PARTITION, [Release(id, leased[id], delay_ms=HOUR_MS) for id in ids])
            states |= {id: ("done" if deed == "ack" else "scheduled", states[id][1]) for id in ids}
            for id in ids:
                del leased[id]
        elif deed == "cancel" and (
            live := [id for id, (state, _) in states.items() if state in ("scheduled", "ready")]
        ):
            id = dice.choice(sorted(live))
            await store.cancel(PARTITION, [id])
            states[id] = ("cancelled", states[id][1])
        marks.append((os.stat(file).st_size, dict(states)))
    return marks


async def test_a_file_cut_anywhere_starts_with_exactly_the_operations_that_are_whole_in_it(folder: Path) -> None:
    data = folder / "data"
    async with opened(data) as (_, store):
        file = append_only_file(data)
        marks = await a_busy_morning(store, file)
        assert await states_of(store) == marks[-1][1]
        saved = folder / "saved"
        saved.mkdir(mode=0o700)
        shutil.copytree(data / "appendonlydir", saved / "appendonlydir")
    length = marks[-1][0]
    offsets = [*sorted(random.Random(24).sample(range(1, length), CUTS - 2)), length - 1, length]
    for number, offset in enumerate(offsets):
        copy = folder / str(number)
        shutil.copytree(saved, copy)
        cut(append_only_file(copy), offset)
        async with opened(copy) as (embedded, store):
            expected = [states for size, states in marks if size <= offset][-1]
            assert await states_of(store) == expected, f"cut at {offset} of {length}"
            assert await findings_at(embedded.url) == [], f"cut at {offset} of {length}"
        shutil.rmtree(copy)


async def test_fsck_sees_a_partition_whose_script_was_torn(folder: Path) -> None:
    """The positive control: if a cut could leave half a script behind, the check above would notice."""

    async with opened(folder / "data") as (embedded, store):
        await store.send(PARTITION, [item("a"), item("b")])
        assert await findings_at(embedded.url) == []
        await store._link.call("", "ZPOPMIN", "dueline:{default/cut/0}:s")
        assert await findings_at(embedded.url) != []


async def test_garbage_in_the_middle_is_refused_and_the_message_says_what_to_do(folder: Path) -> None:
    data = folder / "data"
    async with opened(data) as (_, store):
        await store.send(PARTITION, [item(str(n), body=b"x" * 100) for n in range(50)])
        await store.send(PARTITION, [item("last")])
    file = append_only_file(data)
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        stream.write(b"\xfe\xff garbage " * 40)  # longer than any body, so that it meets the file's structure
    before = file.read_bytes()
    with pytest.raises(EmbeddedError, match=r"damaged.*check-aof"):
        await EmbeddedStore(data).start()
    assert file.read_bytes() == before, "a damaged file is left as it is"


async def test_a_body_with_a_turned_bit_is_never_delivered_and_ends_dead_as_corrupt(folder: Path) -> None:
    data = folder / "data"
    body = b"the quick brown fox jumps over the lazy dog"
    async with opened(data) as (_, store):
        await store.send(PARTITION, [item("good", body=b"unharmed"), item("bad", body=body)])
    [path] = [p for p in (data / "appendonlydir").iterdir() if body in p.read_bytes()]
    raw = bytearray(path.read_bytes())
    raw[raw.index(body) + 9] ^= 0x20
    path.write_bytes(raw)
    async with opened(data) as (_, store):
        good, bad = await store.read(PARTITION, ["good", "bad"])
        assert good is not None
        assert bad is not None
        assert [(job.intact, job.kind, can_forward(job)) for job in (good, bad)] == [
            (True, BodyKind.TEXT, True),
            (False, BodyKind.BYTES, False),
        ], "a job that ends before anybody has pulled it is not sent on either"
        pulled = await store.pull(PARTITION, Pull((Credit(10, None),), 30_000))
        assert [(job.id, job.body) for job in pulled.jobs] == [("good", b"unharmed")]
        assert await store.ack(PARTITION, [Ref("good", pulled.jobs[0].lease)]) == [Outcome(Code.OK)]
        [bad] = await store.read(PARTITION, ["bad"])
        assert bad is not None
        assert (bad.state, bad.reason) == (State.DEAD, Reason.CORRUPT)
        assert (await store.pull(PARTITION, Pull((Credit(10, None),), 30_000))).jobs == []
