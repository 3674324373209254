"""Records how much of the append-only file is on disk, so that the next start notices missing data.

    every second and at a clean stop   the size of each file in the manifest is written to `extent.json`
    before every start of the store    the sizes are compared; a file that is shorter or missing raises DataLost

The store itself would not notice: it drops a torn end, and without its folder or manifest it starts empty.

A size is recorded only after the store has answered a command that was sent after the size was read. The store syncs
its writes before it answers (`appendfsync always`), so the recorded bytes survive a power failure. Bytes beyond them
may be torn, but those writes were never acknowledged. A rewrite replaces the files and increases the number of the base
file; a manifest with a higher number needs none of the old files.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ...event_log import EventLog
from .embedded_connection import Loading, NotThere, SupervisorConnection

APPEND_FOLDER = "appendonlydir"
MANIFEST = "appendonly.aof.manifest"
RECORD = "extent.json"
ASIDE = "appendonlydir.aside"


class Extent(msgspec.Struct, frozen=True):
    """The files of the append-only log with their sizes, and the losses that an operator has accepted.

    `base`: number of the base file, which every rewrite increases. 0: there is no manifest.
    """

    base: int = 0
    files: dict[str, int] = msgspec.field(default_factory=dict)
    lost_bytes: int = 0  # total of all accepted losses
    accepted_at_ms: int | None = None  # when the last loss was accepted


class DataLost(Exception):
    """Data that was on disk is missing. The message says what is missing and which command accepts the loss."""

    def __init__(self, data: Path, what: str, missing_bytes: int) -> None:
        self.what = what
        self.missing_bytes = missing_bytes
        command = f"dueline store accept --data {shlex.quote(str(data))}"
        super().__init__(
            f"data is missing in {data}: {what}. The store would start without the jobs in it, so it is not started. "
            f"Restore the folder if there is a copy. To start with what is left, accept the loss: {command}"
        )


class ExtentRecord:
    """Keeps the record of one running store. `missing_bytes`: recorded bytes that vanished while the store runs."""

    def __init__(self, data: Path, connection: SupervisorConnection, log: EventLog) -> None:
        self.recorded = Extent()
        self.missing_bytes = 0
        self._data = data
        self._connection = connection
        self._log = log

    def check(self) -> None:
        """Call this before the store is started. Raises DataLost."""
        self.recorded = check(self._data)

    async def note_loaded(self) -> None:
        """Record the new sizes after the store has loaded its files and cut off a torn end."""
        self.recorded = msgspec.structs.replace(self.recorded, files={})
        await self.note_synced()

    async def note_synced(self) -> None:
        """Record the new sizes, once an answer of the store proves that they are synced.

        If recorded bytes are missing, make the store rewrite its files, because it still has all data in memory.
        """
        now = found(self._data)
        gone = sum(missing(self.recorded, now).values())
        if gone and not self.missing_bytes:
            self._log.error(
                "the append-only file lost bytes while the store was running; rewriting it from memory",
                missing_bytes=gone,
            )
        self.missing_bytes = gone
        try:
            if gone:
                (self._data / APPEND_FOLDER).mkdir(mode=0o700, exist_ok=True)
                await self._connection.call("BGREWRITEAOF")
            elif (now.base, now.files) != (self.recorded.base, self.recorded.files):
                await self._connection.call("PING")
                await self._write(now)
        except (Loading, NotThere, OSError):
            pass  # the next round tries again

    async def note_stopped(self) -> None:
        """Record the sizes after a clean stop, when everything is synced. If bytes are missing, keep the old record, so
        that the next start notices."""
        now = found(self._data)
        if not missing(self.recorded, now):
            await self._write(now)

    async def _write(self, now: Extent) -> None:
        now = msgspec.structs.replace(
            now, lost_bytes=self.recorded.lost_bytes, accepted_at_ms=self.recorded.accepted_at_ms
        )
        writing = asyncio.ensure_future(asyncio.to_thread(note, self._data, now))
        try:
            await asyncio.shield(writing)
            self.recorded = now
        except asyncio.CancelledError:
            await asyncio.gather(writing, return_exceptions=True)  # two threads must not write at once
            raise
        except OSError as error:
            self._log.warning("the size of the append-only file could not be recorded", error=str(error))


def found(data: Path) -> Extent:
    """The files that exist now. A file in the manifest that does not exist counts as 0 bytes."""
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


def last_record(data: Path) -> Extent:
    """The last record. Raises DataLost if it cannot be read."""
    try:
        return msgspec.json.decode((data / RECORD).read_bytes(), type=Extent)
    except FileNotFoundError:
        return Extent()
    except (OSError, msgspec.DecodeError) as error:
        raise DataLost(data, f"an unknown amount, because {RECORD} cannot be read ({error})", 0) from None


def note(data: Path, extent: Extent) -> None:
    """Write the record atomically: a crash leaves either the old record or the new one."""
    fresh = data / f"{RECORD}.new"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(msgspec.json.encode(extent))
        file.flush()
        os.fsync(fd)
    fresh.replace(data / RECORD)
    _sync_folder(data)


def missing(before: Extent, now: Extent) -> dict[str, int]:
    """How many recorded bytes of each file are missing."""
    rewritten = now.base > before.base
    gone = {
        name: size - now.files.get(name, 0) for name, size in before.files.items() if name in now.files or not rewritten
    }
    return {name: bytes for name, bytes in gone.items() if bytes > 0}


def check(data: Path) -> Extent:
    """Compare the folder with the record, and return the record. Raises DataLost."""
    before, now = last_record(data), found(data)
    gone = missing(before, now)
    if gone:
        raise DataLost(data, _in_words(before, now, gone), sum(gone.values()))
    return before


def accept(data: Path) -> Path | None:
    """Accept the remaining data as complete. Returns the folder for files that are useless without a manifest.

    The folder's lock must be held.
    """
    try:
        before = last_record(data)
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
    """The message for an accepted loss."""
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
