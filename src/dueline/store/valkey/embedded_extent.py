"""How much of the append-only file is on disk, written down beside it, so that a start notices when some is gone.

    every second and at a clean stop   the size of each file that the manifest names goes into `extent.json`
    before every start of the store    each file is compared with that; one that is shorter or gone raises DataLost

The store itself would not notice: it drops a torn end, and without its folder or manifest it starts empty.

A size is written down only after the store has answered a command that was sent after the size was read. Before an
answer the store syncs what it wrote (`appendfsync always`), so the noted bytes survive a loss of power. Bytes beyond
them may be torn: nobody got an answer for those. A rewrite replaces files; it also raises the number of the base file,
and a manifest with a higher number needs none of the old files.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from .embedded_link import Link, Loading, NotThere

APPEND_FOLDER = "appendonlydir"
MANIFEST = "appendonly.aof.manifest"
RECORD = "extent.json"
ASIDE = "appendonlydir.aside"


class Extent(msgspec.Struct, frozen=True):
    """The files of the append-only log with their sizes, and what an operator has accepted as lost.

    `base`: number of the base file, which every rewrite raises. 0: there is no manifest.
    """

    base: int = 0
    files: dict[str, int] = msgspec.field(default_factory=dict)
    lost_bytes: int = 0  # accepted so far, in all
    accepted_at_ms: int | None = None  # the last time


class DataLost(Exception):
    """Data that was on disk is missing. The text names it, and the command that accepts the loss."""

    def __init__(self, data: Path, what: str, missing_bytes: int) -> None:
        self.what = what
        self.missing_bytes = missing_bytes
        command = f"dueline store accept --data {shlex.quote(str(data))}"
        super().__init__(
            f"data is missing in {data}: {what}. The store would start without the jobs in it, so it is not started. "
            f"Restore the folder if there is a copy. To start with what is left, accept the loss: {command}"
        )


class ExtentKeeper:
    """Keeps the record of one running store. `missing_bytes`: noted, and gone while the store runs."""

    def __init__(self, data: Path, link: Link, log: Any) -> None:
        self.noted = Extent()
        self.missing_bytes = 0
        self._data = data
        self._link = link
        self._log = log

    def check(self) -> None:
        """To be called before the store is started. Raises DataLost."""
        self.noted = check(self._data)

    async def note_loaded(self) -> None:
        """The store has read its files and cut off a torn end: what is left is the new measure."""
        self.noted = msgspec.structs.replace(self.noted, files={})
        await self.note_synced()

    async def note_synced(self) -> None:
        """Write down what has grown, once an answer of the store shows that it is synced.

        If noted bytes are gone, the store writes its files anew: it still has everything in memory.
        """
        now = found(self._data)
        gone = sum(missing(self.noted, now).values())
        if gone and not self.missing_bytes:
            self._log.error(
                "bytes of the append-only file are gone while the store runs; it is written anew from memory",
                missing_bytes=gone,
            )
        self.missing_bytes = gone
        try:
            if gone:
                (self._data / APPEND_FOLDER).mkdir(mode=0o700, exist_ok=True)
                await self._link.call("BGREWRITEAOF")
            elif (now.base, now.files) != (self.noted.base, self.noted.files):
                await self._link.call("PING")
                await self._write(now)
        except (Loading, NotThere, OSError):
            pass  # the next turn tries again

    async def note_stopped(self) -> None:
        """The store has ended cleanly: all that is there is synced. If some is gone, the next start must see that."""
        now = found(self._data)
        if not missing(self.noted, now):
            await self._write(now)

    async def _write(self, now: Extent) -> None:
        now = msgspec.structs.replace(now, lost_bytes=self.noted.lost_bytes, accepted_at_ms=self.noted.accepted_at_ms)
        writing = asyncio.ensure_future(asyncio.to_thread(note, self._data, now))
        try:
            await asyncio.shield(writing)
            self.noted = now
        except asyncio.CancelledError:
            await asyncio.gather(writing, return_exceptions=True)  # two threads must not write at once
            raise
        except OSError as error:
            self._log.warning("the size of the append-only file was not written down", error=str(error))


def found(data: Path) -> Extent:
    """What is there now. A file that the manifest names and the disk does not have counts 0 bytes."""
    folder = data / APPEND_FOLDER
    try:
        manifest = (folder / MANIFEST).read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return Extent()
    base, files = 0, dict[str, int]()
    for line in manifest.splitlines():
        words = line.split()
        fields = dict(zip(words[::2], words[1::2], strict=False))  # file NAME seq NUMBER type b|i|h
        name, kind, number = fields.get("file"), fields.get("type"), fields.get("seq", "")
        if name is None or kind not in ("b", "i"):  # h: replaced by a rewrite, to be deleted
            continue
        if kind == "b" and number.isdigit():
            base = int(number)
        files[name] = _size(folder / name)
    return Extent(base, files)


def noted(data: Path) -> Extent:
    """What was written down last. Raises DataLost when that cannot be read."""
    try:
        return msgspec.json.decode((data / RECORD).read_bytes(), type=Extent)
    except FileNotFoundError:
        return Extent()
    except (OSError, msgspec.DecodeError) as error:
        raise DataLost(data, f"nobody knows how much, because {RECORD} cannot be read ({error})", 0) from None


def note(data: Path, extent: Extent) -> None:
    """Write it down as a whole: a crash at any instant leaves the old record or the new one."""
    fresh = data / f"{RECORD}.new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(extent))
        file.flush()
        os.fsync(fd)
    fresh.replace(data / RECORD)
    _sync_folder(data)


def missing(before: Extent, now: Extent) -> dict[str, int]:
    """How many noted bytes of each file are gone."""
    rewritten = now.base > before.base
    gone = {
        name: size - now.files.get(name, 0) for name, size in before.files.items() if name in now.files or not rewritten
    }
    return {name: bytes for name, bytes in gone.items() if bytes > 0}


def check(data: Path) -> Extent:
    """Compare the folder with what was written down, and return that. Raises DataLost."""
    before, now = noted(data), found(data)
    gone = missing(before, now)
    if gone:
        raise DataLost(data, _in_words(before, now, gone), sum(gone.values()))
    return before


def accept(data: Path) -> Path | None:
    """Take what is left for the whole. Returns where files were moved that the store cannot read without a manifest.

    The folder's lock must be held.
    """
    try:
        before = noted(data)
        gone = sum(missing(before, found(data)).values())
    except DataLost:
        before, gone = Extent(), 0
    folder, aside = data / APPEND_FOLDER, None
    if folder.exists() and not (folder / MANIFEST).exists():
        aside = _free_name(data / ASIDE)
        folder.rename(aside)
    now = found(data)
    note(data, Extent(now.base, now.files, before.lost_bytes + gone, time.time_ns() // 1_000_000))
    return aside


def accepted_loss(lost_bytes: int, accepted_at_ms: int) -> str:
    """An accepted loss in words."""
    when = datetime.fromtimestamp(accepted_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"data was lost: {lost_bytes:,} bytes of the append-only file, accepted at {when}"


def _in_words(before: Extent, now: Extent, gone: dict[str, int]) -> str:
    each = ", ".join(f"{name} has {now.files.get(name, 0):,} of {before.files[name]:,} bytes" for name in sorted(gone))
    where = f"{APPEND_FOLDER}/{MANIFEST} is gone; " if not now.files else ""
    return f"{where}{each}: {sum(gone.values()):,} bytes that were on disk are gone"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _free_name(path: Path) -> Path:
    number = 1
    while (tried := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return tried


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
