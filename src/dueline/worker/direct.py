"""A queue directly on a store: an engine in this process, without a server. No other worker module knows a store.

    redis://  valkey://  unix:// ...   that store
    embedded:FOLDER                    a Valkey that runs as a child of this process; if another process (a server, a
                                       worker) already has the folder open, its Valkey is used through its socket

Servers, workers and programs may share one store, because all of them follow the same rules.
"""

from __future__ import annotations

import asyncio
import logging
import os
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
from ..client.tracing import span_of
from ..engine.engine import Engine
from ..engine.errors import Unavailable as StoreUnavailable
from ..runtime.access import NAMESPACE_IDS, StoreAccess
from ..runtime.locations import FolderStore, StoreLocation, store_at
from ..runtime.runtime import Runtime, process_name
from ..runtime.watch import StoreWatch
from ..server.direct import DirectApi
from ..store.valkey.embedded import EmbeddedError
from ..store.valkey.single_sends import SingleSends
from ..store.valkey.store import WrongStore
from .client_queue import ClientQueue
from .log import warn_if_slow
from .queue import EMBEDDED


class DirectQueue(ClientQueue):
    """One namespace of the store at `url`. Use it in one event loop. `close` stops an embedded store. Raises ValueError
    if the variables for the store's TLS (DUELINE_STORE__TLS__...) do not fit the URL or cannot be used."""

    def __init__(
        self,
        url: str,
        namespace: str = "default",
        patience: Patience = Patience(),
        namespace_ids: frozenset[str] = NAMESPACE_IDS,
        any_thread: bool = False,
    ) -> None:
        self._queue_url = url
        self._folder = Path(url.removeprefix(EMBEDDED)).absolute()  # of an embedded store
        self._external = None if url.startswith(EMBEDDED) else store_at(url, os.environ)
        self._namespace_ids = namespace_ids
        self._any_thread = any_thread
        self._access: StoreAccess | None = None
        self._runtime: Runtime | None = None
        self._watch: StoreWatch | None = None
        self._single_send: SingleSends | None = None
        self._starting: asyncio.Task[None] | None = None
        self._api: DirectApi | None = None
        self._patience = patience
        super().__init__(InProcessClient(self.answer, patience), namespace=namespace)

    @property
    def url(self) -> str | None:
        """The store's address. That of an embedded store is known only while it runs."""
        if self._access is not None:
            return self._access.location.url
        return None if self._queue_url.startswith(EMBEDDED) else self._queue_url

    async def start(self) -> None:
        """Connect, retrying while the store is unreachable or loading its data. Raises ServerFault if the store cannot
        be used or the queue is closed meanwhile, Unavailable when the retries are exhausted."""
        if self._runtime is not None:
            return
        starting = self._starting
        if starting is None or starting.done():
            starting = self._starting = asyncio.create_task(self._start())
            starting.add_done_callback(lambda task: task.cancelled() or task.exception())  # mark as seen
        try:
            await asyncio.shield(starting)  # a cancelled caller must not cancel the start for the others
        except asyncio.CancelledError:
            if not starting.cancelled():
                raise
            raise ServerFault("draining", "the queue was closed before it was connected; nothing was done") from None

    async def _start(self) -> None:
        tries = Tries(self._patience, calls.info(), 0.0)

        def pause(error: StoreUnavailable, elapsed_s: float) -> float:
            return tries.wait_s(Unavailable(error.code, error.message), elapsed_s)

        location = self._location()
        if location.tls.warning is not None:
            logging.getLogger("dueline.store").warning("%s", location.tls.warning)
        access = StoreAccess(location, pause, namespace_ids=self._namespace_ids)
        engine = Engine(access.store, namespace_ids=self._namespace_ids, process_name=process_name())
        engine.audit.on_loss = _audit_lost
        runtime = Runtime(access, engine)
        with warn_if_slow(f"the store {shown(self._queue_url)} has not answered yet: still trying"):
            try:
                await runtime.start()
            except (WrongStore, EmbeddedError) as wrong:
                raise ServerFault("wrong_store", str(wrong)) from wrong
        self._single_send = access.store.single_sends()
        self._watch = StoreWatch(access)
        await self._watch.start()
        self._api = DirectApi(engine, access, self._watch, shown(self._queue_url))
        self._access, self._runtime = access, runtime

    def _location(self) -> StoreLocation:
        if self._external is not None:
            return self._external
        return FolderStore(self._folder, any_thread=self._any_thread)

    def answer(self, call: Call[Any]) -> Awaitable[Reply]:
        """The reply of the native API on this store. The first call opens the store; raises DuelineApiError if that
        fails."""
        if self._api is None:
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
        call = calls.send(topic, job)
        span = span_of(call)
        if span is None:
            return self._sent_now(single_send, api, call)
        with span as call:
            sent = self._sent_now(single_send, api, call)
            if sent is None:
                span.drop()
            return sent

    def _sent_now(self, single_send: SingleSends, api: DirectApi, call: Call[Sent]) -> Sent | None:
        sent = api.send_now(single_send.send, self._namespace, call.params[0], call.request)
        if isinstance(sent, Reply):
            raise calls.reply_error(sent)
        return sent

    async def close(self) -> None:
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        runtime, self._runtime, self._access, self._api = self._runtime, None, None, None
        single_send, self._single_send = self._single_send, None
        if single_send is not None:
            single_send.close()
        watch, self._watch = self._watch, None
        if watch is not None:
            await watch.stop()
        if runtime is not None:
            await runtime.stop()


def _audit_lost(error: Exception) -> None:
    logging.getLogger("dueline.store").warning("an entry of the audit log could not be written: %s", error)
