"""Where a store's process is, and who starts it.

EmbeddedStore   (store.valkey.embedded) a child of this process
ExternalStore   it already runs
FolderStore     a child of this process, or the store of the process that already has the folder open
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from ..config.settings import Store
from ..store.valkey.embedded import EmbeddedStore, FolderInUse, Status
from ..store_address import with_sentinel_login


class StoreLocation(Protocol):
    """`url` is known before `start`. `status` is that of an embedded store, None for any other."""

    @property
    def url(self) -> str: ...
    @property
    def status(self) -> Status | None: ...

    async def start(self) -> None:
        """Start the store's process if this location starts it. A second call has no effect.

        Raises FolderInUse or EmbeddedError."""
        ...

    async def stop(self) -> None:
        """End the process that `start` started. It may be called twice, and before `start`."""
        ...


class ExternalStore:
    """A store that is started and stopped by others."""

    def __init__(self, url: str) -> None:
        self.url = url

    @property
    def status(self) -> Status | None:
        return None

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


class FolderStore:
    """The store of a data folder, shared by all processes that open it this way. The first one starts it."""

    def __init__(self, folder: str | os.PathLike[str], *, any_thread: bool = False, log: Any = None) -> None:
        self._embedded = EmbeddedStore(folder, any_thread=any_thread, log=log)
        self._is_ours = False
        self.url = self._embedded.url

    @property
    def status(self) -> Status | None:
        return self._embedded.status if self._is_ours else None

    async def start(self) -> None:
        try:
            await self._embedded.start()
            self._is_ours = True
        except FolderInUse:
            self._is_ours = False

    async def stop(self) -> None:
        await self._embedded.stop()


def place_of(
    store: Store, *, any_thread: bool = False, on_change: Callable[[Status], None] | None = None
) -> EmbeddedStore | ExternalStore:
    """The place that the settings name."""
    if store.url is not None:
        return ExternalStore(with_sentinel_login(store.url, store.sentinel_username, store.sentinel_password))
    return EmbeddedStore(
        store.data,
        store.binary,
        min_free_bytes=store.min_free_bytes,
        max_memory_bytes=store.max_memory_bytes,
        on_change=on_change,
        any_thread=any_thread,
    )
