"""A queue directly on a store: an engine in this process, without a server. No other worker module knows a store.

    redis://  valkey://  unix:// ...   that store
    embedded:FOLDER                    a Valkey that runs as a child of this process; if another process (a server, a
                                       worker) already has the folder open, its Valkey is used through its socket

Servers, workers and programs may share one store, because all of them follow the same rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from ..api.answers import Sent
from ..api.reply import Reply
from ..api.requests import NewJob
from ..client import calls
from ..client.address import shown
from ..client.calls import Call
from ..client.errors import ServerFault, Unavailable
from ..client.in_process import InProcessClient
from ..client.patience import Patience, Tries
from ..engine.engine import Engine
from ..engine.errors import Unavailable as StoreUnavailable
from ..server.direct import DirectApi
from ..store.valkey.embedded import EmbeddedError, EmbeddedStore, FolderInUse
from ..store.valkey.embedded_files import socket_path
from ..store.valkey.scopes import check_scopes
from ..store.valkey.single_sends import SingleSends
from ..store.valkey.store import ValkeyStore, WrongStore
from .client_queue import ClientQueue
from .log import said_if_slow
from .queue import EMBEDDED

# namespaces whose ids are unique over all topics, as servers have it
NAMESPACE_IDS = frozenset({"ouqiang", "youzan", "spring"})
LAST_CALLS_S = 2.0


class DirectQueue(ClientQueue):
    """One namespace of the store at `url`. Use it in one event loop. `close` stops an embedded store."""

    def __init__(
        self,
        url: str,
        namespace: str = "default",
        patience: Patience = Patience(),
        namespace_ids: frozenset[str] = NAMESPACE_IDS,
        any_thread: bool = False,
    ) -> None:
        self._given = url
        self._folder = Path(url.removeprefix(EMBEDDED)).absolute()  # of an embedded store
        self._namespace_ids = namespace_ids
        self._any_thread = any_thread
        self._embedded: EmbeddedStore | None = None
        self._store: ValkeyStore | None = None
        self._single_send: SingleSends | None = None
        self._starting: asyncio.Task[None] | None = None
        self._api: DirectApi | None = None
        self._patience = patience
        super().__init__(InProcessClient(self.answer, patience), namespace=namespace)

    @property
    def url(self) -> str | None:
        """The store's address. That of an embedded store is known only while it runs."""
        if self._store is not None:
            return self._store.url
        return None if self._given.startswith(EMBEDDED) else self._given

    async def start(self) -> None:
        """Connect, retrying while the store is unreachable or loading its data. Raises ServerFault if the store cannot
        be used, Unavailable when the retries are exhausted."""
        clock = asyncio.get_running_loop().time
        tries, begin_s = Tries(self._patience, calls.info(), 0.0), clock()
        with said_if_slow(f"the store {shown(self._given)} has not answered yet: still trying"):
            while self._store is None:
                try:
                    await self._connected()
                except Unavailable as error:
                    await asyncio.sleep(tries.wait_s(error, clock() - begin_s))

    async def _connected(self) -> None:
        if self._starting is None or self._starting.done():
            self._starting = asyncio.get_running_loop().create_task(self._start())
        await asyncio.shield(self._starting)  # a cancelled caller must not cancel the start for the others

    async def _start(self) -> None:
        url = await self._store_url()
        store = ValkeyStore(url)
        try:
            await store.start()
            clash = await check_scopes(store, self._namespace_ids)
            if clash is not None:
                raise WrongStore(
                    f'the namespace "{clash.namespace}" (topic "{clash.topic}") is stored differently in this store: '
                    "another server's settings gave its ids a different scope"
                )
            await _check_eviction(store)
        except BaseException as wrong:
            await store.stop()
            await self._end_embedded()
            if isinstance(wrong, WrongStore):
                raise ServerFault("wrong_store", str(wrong)) from wrong
            if isinstance(wrong, StoreUnavailable):
                raise Unavailable(wrong.code, wrong.message) from wrong
            raise
        self._engine = Engine(store, namespace_ids=self._namespace_ids)
        await self._engine.start()
        self._single_send = store.single_sends()
        durability = "standard" if self._embedded is None else "fsync"
        self._api = DirectApi(self._engine, store, shown(self._given), durability)
        self._store = store

    def answer(self, call: Call[Any]) -> Awaitable[Reply]:
        """The reply of the native API on this store, which is opened first. Raises DuelineApiError if that fails."""
        if self._store is None or self._api is None:
            return self._first_answer(call)
        return self._api.answer(call.operation, self._namespace, call.params, call.request)

    async def _first_answer(self, call: Call[Any]) -> Reply:
        await self.start()
        return await self.answer(call)

    def send_now(self, topic: str, job: NewJob) -> Sent | None:
        """Send from a thread other than the event loop's; that thread talks to the store itself. None: use the normal
        path, with the same id, because the job may already have been stored."""
        single_send, api = self._single_send, self._api
        if single_send is None or api is None or job.merge is not None:
            return None
        sent = api.send_now(single_send.send, self._namespace, topic, calls.named(job))
        if isinstance(sent, Reply):
            raise calls.reply_error(sent)
        return sent

    async def _store_url(self) -> str:
        """The store's address. An embedded store is started first, unless it already runs."""
        if not self._given.startswith(EMBEDDED):
            return self._given
        folder = self._folder
        embedded = EmbeddedStore(folder, any_thread=self._any_thread, log=_Log())
        try:
            await embedded.start()
        except FolderInUse:
            return f"unix://{socket_path(folder)}"
        except EmbeddedError as wrong:
            raise ServerFault("wrong_store", str(wrong)) from wrong
        self._embedded = embedded
        return embedded.url

    async def close(self) -> None:
        if self._starting is not None:
            await asyncio.gather(self._starting, return_exceptions=True)
        store, self._store = self._store, None
        single_send, self._single_send = self._single_send, None
        if single_send is not None:
            single_send.close()
        if store is not None:
            # Without the store, the engine's last calls would wait for it, so they get a moment and are then cancelled.
            ending = asyncio.create_task(self._engine.stop())
            await asyncio.wait([ending], timeout=LAST_CALLS_S)
            await store.stop()
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)
        await self._end_embedded()

    async def _end_embedded(self) -> None:
        embedded, self._embedded = self._embedded, None
        if embedded is not None:
            await embedded.stop()


class _Log:
    """Routes the embedded store's log lines to `logging`, because the program's output is not ours to write to."""

    def __init__(self) -> None:
        self._log = logging.getLogger("dueline.store")

    def info(self, message: str, **fields: Any) -> None:
        self._log.info("%s %s", message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._log.warning("%s %s", message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._log.error("%s %s", message, fields)


async def _check_eviction(store: ValkeyStore) -> None:
    """A store that deletes keys when its memory is full would delete jobs. Raises WrongStore."""
    answer = await store.plain(store.prefix, "INFO", "memory")
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    figures = dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)
    policy = figures.get("maxmemory_policy", "noeviction")
    if figures.get("maxmemory", "0") != "0" and policy != "noeviction":
        raise WrongStore(
            f'the store may delete jobs when its memory is full: its maxmemory-policy is "{policy}". '
            "Set it to noeviction"
        )
