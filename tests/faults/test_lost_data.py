"""Data that was on disk is gone: the start is refused, names the missing bytes, and a command accepts the loss.

What is normal must still start: a torn end that nobody was answered for, a rewrite, a kill between two records.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from dueline.store.valkey import embedded_extent as extents
from dueline.store.valkey.embedded import EmbeddedError, EmbeddedStore, StoreState
from tests.kit.log_lines import logged_events
from tests.kit.waiting import until

from .kit import append_only_file, cut

COMMAND = b"*3\r\n$3\r\nSET"


async def opened(data: Path) -> EmbeddedStore:
    store = EmbeddedStore(data)
    await store.start()
    return store


async def fill(store: EmbeddedStore, first: int = 0, count: int = 100) -> None:
    for number in range(first, first + count):
        await store._connection.call("SET", f"key-{number}", "x" * 100)


async def keys_in(data: Path) -> int:
    store = await opened(data)
    try:
        return int(await store._connection.call("DBSIZE"))
    finally:
        await store.stop()


async def filled(data: Path, count: int = 100) -> Path:
    """A stopped store with that many keys; its growing file."""
    store = await opened(data)
    await fill(store, count=count)
    await store.stop()
    return append_only_file(data)


async def kill(store: EmbeddedStore) -> None:
    """End the supervisor without a record, and the store without a chance to write: kill -9 of both."""
    for task in store._tasks:
        task.cancel()
    await asyncio.gather(*store._tasks, return_exceptions=True)
    assert store._child is not None
    store._child.kill()
    store._child.wait()
    await store._connection.close()
    store._lock.free()


async def until_recorded(store: EmbeddedStore, size: int) -> None:
    await until(lambda: max(extents.last_record(store.data).files.values(), default=0) >= size)


async def refusal(data: Path) -> str:
    store = EmbeddedStore(data)
    with pytest.raises(EmbeddedError) as caught:
        await store.start()
    assert store.status.state is StoreState.FAILED
    return str(caught.value)


@pytest.mark.parametrize("between_commands", [True, False], ids=["between commands", "inside a command"])
async def test_a_file_that_became_shorter_is_refused_with_the_number_of_bytes(
    folder: Path, between_commands: bool
) -> None:
    file = await filled(folder / "data")
    content = file.read_bytes()
    at = content.index(COMMAND, len(content) // 2) + (0 if between_commands else 7)
    cut(file, at)
    words = await refusal(folder / "data")
    assert f"{len(content) - at:,} bytes that were on disk are gone" in words
    assert f"dueline store accept --data {folder / 'data'}" in words
    assert file.stat().st_size == at, "a refused start changes nothing"


@pytest.mark.parametrize("gone", ["appendonlydir", f"appendonlydir/{extents.MANIFEST}"])
async def test_a_missing_folder_or_manifest_is_refused_instead_of_starting_empty(folder: Path, gone: str) -> None:
    data = folder / "data"
    await filled(data)
    size = sum(extents.found(data).files.values())
    place = data / gone
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    words = await refusal(data)
    assert "manifest is gone" in words
    assert f"{size:,} bytes that were on disk are gone" in words


async def test_a_missing_file_that_the_manifest_names_is_refused(folder: Path) -> None:
    file = await filled(folder / "data")
    file.unlink()
    assert f"{file.name} has 0 of" in await refusal(folder / "data")


async def test_an_older_copy_of_the_folder_is_refused(folder: Path) -> None:
    """Its files are whole, but their rewrite and all that came after are missing."""

    data = folder / "data"
    await filled(data)
    shutil.copytree(data / "appendonlydir", folder / "old")
    store = await opened(data)
    await rewritten(store)
    await fill(store, 100)
    await store.stop()
    shutil.rmtree(data / "appendonlydir")
    shutil.copytree(folder / "old", data / "appendonlydir")
    assert "bytes that were on disk are gone" in await refusal(data)


async def test_a_record_that_cannot_be_read_is_refused(folder: Path) -> None:
    await filled(folder / "data")
    (folder / "data" / extents.RECORD).write_text('{"base":')
    assert "cannot be read" in await refusal(folder / "data")


async def test_what_is_on_disk_is_written_down_while_the_store_runs(folder: Path) -> None:
    """The cut is found after a kill -9, when nothing was written down at a stop."""

    data = folder / "data"
    store = await opened(data)
    await fill(store)
    size = append_only_file(data).stat().st_size
    await until_recorded(store, size)
    await kill(store)
    cut(append_only_file(data), size - 1)
    assert "1 bytes that were on disk are gone" in await refusal(data)


async def test_a_torn_end_beyond_what_was_written_down_starts(folder: Path) -> None:
    data = folder / "data"
    store = await opened(data)
    await fill(store)
    size = append_only_file(data).stat().st_size
    await until_recorded(store, size)
    await kill(store)
    with append_only_file(data).open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$4\r\nto")
    assert await keys_in(data) == 100
    assert extents.last_record(data).files[append_only_file(data).name] == size


async def rewritten(store: EmbeddedStore) -> None:
    before = extents.found(store.data).base
    await store._connection.call("BGREWRITEAOF")
    await until(lambda: extents.found(store.data).base != before)


async def test_a_rewrite_after_the_last_record_starts_also_after_a_kill(folder: Path) -> None:
    data = folder / "data"
    store = await opened(data)
    await fill(store)
    await until_recorded(store, append_only_file(data).stat().st_size)
    record = (data / extents.RECORD).read_bytes()
    await rewritten(store)
    await fill(store, 100, 10)
    await kill(store)
    (data / extents.RECORD).write_bytes(record)  # the kill came before the next record
    assert await keys_in(data) == 110


async def test_a_store_whose_file_is_gone_when_it_is_restarted_fails_instead_of_serving_nothing(folder: Path) -> None:
    store = await opened(folder / "data")
    try:
        await fill(store)
        await until_recorded(store, append_only_file(store.data).stat().st_size)
        assert store.pid is not None
        os.kill(store.pid, signal.SIGSTOP)
        shutil.rmtree(store.data / "appendonlydir")
        os.kill(store.pid, signal.SIGKILL)
        await asyncio.wait_for(store.failed.wait(), 20)
        assert "bytes that were on disk are gone" in store.status.detail
    finally:
        await store.stop()
    assert "bytes that were on disk are gone" in await refusal(folder / "data"), "the stop kept the record"


async def test_a_file_deleted_under_a_running_store_is_written_anew_from_memory(folder: Path) -> None:
    store = await opened(folder / "data")
    await fill(store)
    await until_recorded(store, append_only_file(store.data).stat().st_size)
    shutil.rmtree(store.data / "appendonlydir")
    seen: list[int] = []
    async with asyncio.timeout(20):
        while not seen or seen[-1]:
            await store._changed.wait()
            seen.append(store.status.missing_bytes)
    assert seen[0] > 5_000
    await store.stop()
    assert await keys_in(folder / "data") == 100


async def test_an_accepted_loss_starts_with_what_is_left_and_is_reported(folder: Path) -> None:
    data = folder / "data"
    file = await filled(data)
    content = file.read_bytes()
    at = content.index(COMMAND, len(content) // 2)
    kept = content[:at].count(COMMAND)
    cut(file, at)
    assert extents.accept(data) is None
    with logged_events() as log:
        store = await opened(data)
    status = store.status
    assert int(await store._connection.call("DBSIZE")) == kept
    await store.stop()
    assert (status.lost_bytes, status.accepted_at_ms is not None) == (len(content) - at, True)
    assert [line["event"] for line in log if f"{len(content) - at:,} bytes" in line["event"]] != []
    assert extents.last_record(data).lost_bytes == len(content) - at, "it is remembered"


async def test_files_without_a_manifest_are_moved_aside_when_their_loss_is_accepted(folder: Path) -> None:
    data = folder / "data"
    content = (await filled(data)).read_bytes()
    (data / "appendonlydir" / extents.MANIFEST).unlink()
    aside = extents.accept(data)
    assert aside is not None
    assert await keys_in(data) == 0
    [saved] = aside.glob("*.incr.aof")
    assert saved.read_bytes() == content
