"""Locks a data folder for at most one server and one store, with kernel locks and not with pid files.

    server.lock   held by the running server            if taken: refused at once, with the pid written in it
    store.lock    held by the server and its store      if only this one is taken: a dead server's store still runs

Both are flock()s, which belong to the open file. The store inherits the descriptor of store.lock, so the folder stays
locked until the last byte of its append-only file is written, even if the server was killed. No other process inherits
it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from .embedded_files import open_private

ORPHAN_WAIT_S = 30.0


class FolderInUse(Exception):
    """The data folder is in use by another server, or by the store of a dead server that does not end."""


class FolderLock:
    """The lock on one data folder. `take` and `free` may be called in any state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server_fd = -1
        self._store_fd = -1

    @property
    def held(self) -> bool:
        return self._server_fd >= 0

    @property
    def store_fd(self) -> int:
        """The descriptor that the store inherits."""
        return self._store_fd

    async def take(
        self, on_orphan: Callable[[], Awaitable[None]] | None = None, orphan_wait_s: float = ORPHAN_WAIT_S
    ) -> None:
        """Lock the folder. Raises FolderInUse, at once for a running server and after `orphan_wait_s` for an orphaned
        store. Raises EmbeddedError if a lock file is not ours.

        `on_orphan` is awaited once if only a store holds the folder; it may ask that store to end.
        """
        if self.held:
            return
        server_fd = open_private(self.folder / "server.lock")
        if not _try(server_fd):
            owner = os.pread(server_fd, 64, 0).decode(errors="replace").strip() or "unknown"
            os.close(server_fd)
            raise FolderInUse(
                f"the data folder {self.folder} is in use by another dueline server, pid {owner}; "
                "stop it, or give this one its own folder with --data"
            )
        store_fd = -1
        try:
            store_fd = open_private(self.folder / "store.lock")
            await self._wait_for_orphan(store_fd, on_orphan, orphan_wait_s)
        except BaseException:
            for fd in (store_fd, server_fd):
                if fd >= 0:
                    os.close(fd)
            raise
        os.ftruncate(server_fd, 0)
        os.pwrite(server_fd, f"{os.getpid()}\n".encode(), 0)
        self._server_fd, self._store_fd = server_fd, store_fd

    async def _wait_for_orphan(
        self, store_fd: int, on_orphan: Callable[[], Awaitable[None]] | None, orphan_wait_s: float
    ) -> None:
        if _try(store_fd):
            return
        if on_orphan is not None:
            await on_orphan()
        # flock has no asynchronous form, and a thread with a blocking call could not be ended. So this polls.
        deadline = asyncio.get_running_loop().time() + orphan_wait_s
        while not _try(store_fd):
            if asyncio.get_running_loop().time() >= deadline:
                pid = os.pread(store_fd, 64, 0).decode(errors="replace").strip() or "unknown"
                raise FolderInUse(
                    f"the store of a dead dueline server still runs on {self.folder}, pid {pid}; "
                    f"it did not end within {orphan_wait_s:g} s"
                )
            await asyncio.sleep(0.05)

    def name_store(self, pid: int) -> None:
        """Record the store's pid, for the error message of a server that finds it orphaned."""
        os.ftruncate(self._store_fd, 0)
        os.pwrite(self._store_fd, f"{pid}\n".encode(), 0)

    def free(self) -> None:
        """Release the locks. The folder stays locked while the store runs."""
        for fd in (self._store_fd, self._server_fd):
            if fd >= 0:
                os.close(fd)
        self._server_fd = self._store_fd = -1


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
