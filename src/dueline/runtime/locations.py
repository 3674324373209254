"""Where a store's process is, and who starts it.

EmbeddedStore   (store.valkey.embedded) a child of this process
ExternalStore   it already runs
FolderStore     a child of this process, or the store of the process that already has the folder open
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Protocol

from ..certificate_files import BadCertificate
from ..config.durability import durability_of
from ..config.load import store_of
from ..config.settings import Store
from ..store.valkey.embedded import EmbeddedStore, FolderInUse, Status
from ..store.valkey.tls import StoreTls, is_secure
from ..store_address import with_sentinel_login


class StoreLocation(Protocol):
    """`url`, `tls` and `durability` are known before `start`. `accepts_degraded`: without a replica, changes are
    answered as if the durability were "standard". `status` is that of an embedded store, None for any other."""

    @property
    def url(self) -> str: ...
    @property
    def tls(self) -> StoreTls: ...
    @property
    def durability(self) -> str: ...
    @property
    def accepts_degraded(self) -> bool: ...
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

    def __init__(
        self, url: str, tls: StoreTls = StoreTls(), durability: str = "standard", accepts_degraded: bool = False
    ) -> None:
        self.url = url
        self.tls = tls
        self.durability = durability
        self.accepts_degraded = accepts_degraded

    @classmethod
    def of(cls, store: Store) -> ExternalStore:
        """The store at `store.url`."""
        url = with_sentinel_login(store.url or "", store.sentinel_username, store.sentinel_password)
        return cls(url, store.tls, durability_of(store), store.degraded == "accept")

    @property
    def status(self) -> Status | None:
        return None

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


class FolderStore:
    """The store of a data folder, shared by all processes that open it this way. The first one starts it."""

    durability = EmbeddedStore.durability
    accepts_degraded = EmbeddedStore.accepts_degraded

    def __init__(self, folder: str | os.PathLike[str], *, any_thread: bool = False) -> None:
        self._embedded = EmbeddedStore(folder, any_thread=any_thread)
        self._is_ours = False
        self.url = self._embedded.url
        self.tls = self._embedded.tls

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


def location_of(
    store: Store, *, any_thread: bool = False, on_change: Callable[[Status], None] | None = None
) -> EmbeddedStore | ExternalStore:
    """The location that the settings name."""
    if store.url is not None:
        return ExternalStore.of(store)
    return EmbeddedStore(
        store.data,
        store.binary,
        min_free_bytes=store.min_free_bytes,
        max_memory_bytes=store.max_memory_bytes,
        on_change=on_change,
        any_thread=any_thread,
    )


def store_at(url: str, env: Mapping[str, str]) -> ExternalStore:
    """The store at a URL, for a program without a configuration (config.load.store_of). Raises ValueError if its
    variables cannot be used."""
    store = store_of(url, env)
    why = tls_refusal(store)
    if why is not None:
        raise ValueError(why)
    return ExternalStore.of(store)


def tls_refusal(store: Store) -> str | None:
    """Why the certificates and the key for connections to the store cannot be used. None: they can, or are not
    needed."""
    try:
        if store.url is not None and is_secure(store.url):
            store.tls.context()
    except BadCertificate as error:
        return str(error)
    return None
