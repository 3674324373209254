"""The way into a store: wait until it answers, check that it is fit to hold jobs, connect.

    certificate  with TLS: it is the store's, and the store accepts ours (store.valkey.tls)
    version      Redis 7.0, Valkey 7.2 or later
    role         a primary
    kind         a node of a Cluster is opened as a Cluster
    eviction     it never deletes keys to make room
    scripts      this user may run them
    data         its version is ours; later, it is still the same data (epoch)
    scopes       ids are unique in the same scope as when the jobs were stored (store.valkey.scopes)

All are checked at the start, the first four on every primary; a store that fails one is refused. `look` (version,
role, kind, eviction) and `check` (data, scopes) repeat them while it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace
from redis.exceptions import RedisError

from ..config.settings import Dialects, namespaces_with_own_ids
from ..engine.errors import StoreFull, Unavailable
from ..engine.limits import Limits
from ..engine.queue_limit import QueueLimit
from ..store.valkey.scopes import Clash, check_scopes
from ..store.valkey.store import ValkeyStore, WrongStore
from ..store.valkey.witness import Replication
from .facts import StoreFacts, refusals
from .guards import Guards
from .locations import StoreLocation
from .probe import Probe, Untrusted

NAMESPACE_IDS = namespaces_with_own_ids(Dialects())
"""Namespaces with namespace-scoped ids, for programs without settings: as a server has it by default."""

Pause = Callable[[Unavailable, float], float]
"""How long to wait before the next try: (why the last one failed, seconds since the first) -> seconds. It raises when
no more tries are wanted."""


def tries_for(seconds: float) -> Pause:
    """Five tries per second, for this long."""

    def pause(error: Unavailable, elapsed_s: float) -> float:
        if elapsed_s > seconds:
            raise error
        return 0.2

    return pause


class StoreAccess:
    """One store at a location. `store` is ready for an engine after `start`. `guards`: what holds for its shards now.
    `looked` gets each result of `look`. `namespace_ids` None: a program that uses no jobs; scopes are not checked."""

    def __init__(
        self,
        location: StoreLocation,
        pause: Pause,
        *,
        prefix: str = "dueline",
        limits: Limits = Limits(),
        namespace_ids: frozenset[str] | None = NAMESPACE_IDS,
        on_call: Callable[[str, float], None] | None = None,
        queue_of: Callable[[str], QueueLimit | None] = lambda namespace: None,
    ) -> None:
        self.location = location
        replicated = location.durability == "replicated"
        self.replication = Replication(location.accepts_degraded) if replicated else None
        self.guards = Guards(lambda node: node if location.status is None else "embedded")
        self.store = ValkeyStore(
            location.url,
            tls=location.tls,
            prefix=prefix,
            limits=limits,
            on_call=on_call,
            queue_of=queue_of,
            replication=self.replication,
            guards=self.guards,
        )
        self.facts: StoreFacts | None = None
        self.looked: Callable[[StoreFacts | Unavailable], None] | None = None
        self._pause = pause
        self._namespace_ids = namespace_ids
        self._probe = Probe(location.url, location.tls)

    async def start(self) -> None:
        """Start the store's process if it is ours, and wait until the store can be used. Raises WrongStore if it must
        not be used, FolderInUse, EmbeddedError, or what `pause` raises."""
        clock = asyncio.get_running_loop().time
        begin_s = clock()
        while True:
            try:
                await self.location.start()
                await self._open()
                await self._probe.stop()  # `look` connects again
                return
            except Untrusted as error:
                raise WrongStore(error.message) from None
            except Unavailable as error:
                pause_s = self._pause(error, clock() - begin_s)
            await asyncio.sleep(pause_s)

    async def stop(self) -> None:
        """Disconnect, and end a process that `start` started. It may be called twice, and before `start`."""
        try:
            await self._probe.stop()
            await self.store.stop()
        finally:
            await self.location.stop()

    async def look(self) -> StoreFacts:
        """Ask all primaries of the store what they are. Raises StoreDown, Loading or WrongStore."""
        try:
            found = await self._probe.facts()
        except Unavailable as error:
            if self.looked is not None:
                self.looked(error)
            raise
        self.facts = replace(found, appendfsync=None if self.facts is None else self.facts.appendfsync)
        if self.looked is not None:
            self.looked(self.facts)
        return self.facts

    async def check(self) -> None:
        """Check that the data is still the same, and that all of its jobs can be found. Raises WrongStore."""
        await self.store.check()
        await self._check_scopes()

    async def _open(self) -> None:
        facts = await self.look()
        for sentence in refusals(facts):
            raise WrongStore(sentence)
        if not await self._probe.runs_scripts():
            raise WrongStore("the store does not let this user call scripts (EVAL)")
        self.facts = replace(facts, appendfsync=await self._probe.appendfsync())
        try:
            await self.store.start()
            await self._check_scopes()
        except StoreFull as error:  # and it was never used; a full store with jobs can be opened
            raise WrongStore(error.message) from error
        except RedisError as error:
            raise WrongStore(f"the store does not let this user read and write jobs: {error}") from error

    async def _check_scopes(self) -> None:
        if self._namespace_ids is None:
            return
        clash = await check_scopes(self.store, self._namespace_ids)
        if clash is not None:
            raise WrongStore(_scope_refusal(clash))


def _scope_refusal(clash: Clash) -> str:
    until = "until all jobs of the namespace have ended and are no longer retained"
    if not clash.namespace_ids:
        return (
            f'the namespace "{clash.namespace}" holds jobs (topic "{clash.topic}") whose ids are unique over all its '
            "topics, and these settings would not find them: set dialects.*.namespace as before, at least "
            f"{until}. Programs and commands that open the store themselves have no such setting: give them the URL of "
            "a server"
        )
    needed = "a dialect with this namespace needs ids that are unique over all its topics"
    if clash.partitions > 1:
        return (
            f'the topic "{clash.topic}" of the namespace "{clash.namespace}" has {clash.partitions} partitions of its '
            f"own, and {needed}, so its topics must share theirs: change dialects.*.namespace to another namespace"
        )
    return (
        f'the namespace "{clash.namespace}" holds jobs (topic "{clash.topic}") whose ids are unique in their topic '
        f"only, and {needed}: change dialects.*.namespace to another namespace, or disable the dialect {until}"
    )
