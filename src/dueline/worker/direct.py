"""A queue straight on a store: an engine in this process, no server. The only place in the worker that knows a store.

    redis://  valkey://  unix:// ...   that store
    embedded:FOLDER                    a Valkey of our own as a child of this process; a folder that a living process
                                       has open already (a server, a worker, this program) is joined through its socket

Servers, workers and programs may share one store: all of them keep the same rules, and none is special.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from ..client.address import shown
from ..client.calls import Call, NewJob
from ..client.errors import ServerFault, Unavailable
from ..client.patience import Patience, Tries
from ..client.results import Sent
from ..engine.engine import Engine
from ..engine.errors import DuelineError, UnknownOutcome
from ..engine.errors import Unavailable as StoreUnavailable
from ..store.valkey.embedded import EmbeddedError, EmbeddedStore, FolderInUse
from ..store.valkey.embedded_files import socket_path
from ..store.valkey.scopes import check_scopes
from ..store.valkey.single_sends import SingleSends
from ..store.valkey.store import ValkeyStore, WrongStore
from . import views
from .engine_queue import REPEATED, EngineQueue
from .log import said_if_slow
from .queue import EMBEDDED

T = TypeVar("T")

# namespaces whose ids are unique over all topics, as servers have it
NAMESPACE_IDS = frozenset({"ouqiang", "youzan", "spring"})
LAST_CALLS_S = 2.0


class DirectQueue(EngineQueue):
    """One namespace of the store at `url`. Use it in one event loop; an embedded store ends with `close`."""

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
        self._namespace = views.checked_name(namespace, "namespace")
        self._patience = patience

    @property
    def url(self) -> str | None:
        """The store's own address; that of an embedded store is known when it runs."""
        if self._store is not None:
            return self._store.url
        return None if self._given.startswith(EMBEDDED) else self._given

    async def start(self) -> None:
        """Connect, trying again while the store is not there or still loads. Raises ServerFault when this store cannot
        be used, Unavailable when patience is over."""
        clock = asyncio.get_running_loop().time
        tries, begin_s = Tries(self._patience, REPEATED, 0.0), clock()
        with said_if_slow(f"the store {shown(self._given)} has not answered yet: still trying"):
            while self._store is None:
                try:
                    await self._connected()
                except Unavailable as error:
                    await asyncio.sleep(tries.wait_s(error, clock() - begin_s))

    async def _connected(self) -> None:
        if self._starting is None or self._starting.done():
            self._starting = asyncio.get_running_loop().create_task(self._start())
        await asyncio.shield(self._starting)  # whoever stops waiting does not stop it for the others

    async def _start(self) -> None:
        url = await self._store_url()
        store = ValkeyStore(url)
        try:
            await store.start()
            clash = await check_scopes(store, self._namespace_ids)
            if clash is not None:
                raise WrongStore(
                    f'the namespace "{clash.namespace}" (topic "{clash.topic}") is kept otherwise in this store: '
                    "another server's settings gave its ids another scope"
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
        self._store = store

    def opened(self) -> tuple[Engine, ValkeyStore, str]:
        """The engine, its store, and the durability level, once it is started."""
        assert self._store is not None
        return self._engine, self._store, "standard" if self._embedded is None else "fsync"

    def send_now(self, topic: str, job: NewJob) -> Sent | None:
        """A send from another thread than the loop's, while it only waits. None: it must be sent in the usual way, with
        the same id: it may have been stored already."""
        single_send = self._single_send
        if single_send is None or job.merge is not None:
            return None
        command = views.send_command(job)
        views.checked_name(topic, "topic")
        try:
            sent = self._engine.send_now(single_send.send, self._namespace, topic, command)
        except UnknownOutcome:
            return None
        except DuelineError as refused:
            raise views.api_error(refused) from None
        return None if sent is None else views.sent(sent)

    async def _tried(
        self, ask: Callable[[], Awaitable[T]], call: Call[Any] = REPEATED, tries: list[Tries] | None = None
    ) -> T:
        if self._store is None:
            await self.start()
        return await super()._tried(ask, call, tries)

    async def _store_url(self) -> str:
        """Where the store is; an embedded one is started first, or joined where it runs already."""
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
            # With the store gone, the engine's last calls would wait for it: they get a moment, then it is cut.
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
    """The embedded store's words in Python's own log: this is somebody's program, whose output is not ours."""

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
