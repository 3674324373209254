"""Whether a store is fit to hold jobs. Checked at the start (a refusal stops the server) and every 5 s (health).

The checks use a connection of their own, so that a busy pipeline does not look like a dead store.
"""

from __future__ import annotations

from typing import Any

import msgspec
from redis.exceptions import BusyLoadingError, RedisError

from ..config.settings import Dialects, namespaces_with_own_ids
from ..dialects.table import DIALECTS
from ..store.valkey.link import LinkLost, link_for
from ..store.valkey.scopes import check_scopes
from ..store.valkey.store import ValkeyStore

REPLY_TIMEOUT_S = 2.0
ROOM_AGAIN = 0.95
LEAST_VERSION = {"redis": (7, 0), "valkey": (7, 2)}


class StoreLoading(Exception):
    """The store is loading its data; the text is its progress."""


class StoreSilent(Exception):
    """The store does not answer."""


class Facts(msgspec.Struct, frozen=True):
    """What a store reports about itself. None: unknown, because managed stores refuse CONFIG."""

    server: str
    version: tuple[int, ...]
    role: str
    maxmemory_bytes: int
    maxmemory_policy: str
    memory_bytes: int
    aof: bool
    aof_ok: bool
    replicas: int
    oom_refusals: int = 0
    appendfsync: str | None = None

    @property
    def name(self) -> str:
        """Such as "valkey 9.1.2"."""
        return f"{self.server} {'.'.join(map(str, self.version))}"


class Probe:
    """Queries one store. It reconnects by itself."""

    def __init__(self, url: str, prefix: str = "dueline") -> None:
        self._link = link_for(url, REPLY_TIMEOUT_S)
        self._key = prefix
        self._started = False

    async def facts(self) -> Facts:
        """One INFO. Raises StoreSilent or StoreLoading."""
        text = await self._call("INFO", "server", "memory", "persistence", "replication", "errorstats")
        figures = dict(line.split(":", 1) for line in _text(text).split("\r\n") if ":" in line)
        if figures.get("loading", "0") != "0":
            raise StoreLoading(f"{float(figures.get('loading_loaded_perc', '0') or 0):.0f} %")
        return facts_of(figures)

    async def appendfsync(self) -> str | None:
        """The store's appendfsync setting; None when it does not reveal it."""
        try:
            answer = await self._call("CONFIG", "GET", "appendfsync")
        except Refused:
            return None
        return _text(answer[1]) if len(answer) == 2 else None

    async def runs_scripts(self) -> bool:
        """Whether the store lets this user run scripts."""
        try:
            await self._call("EVAL", "return 1", "0")
        except Refused:
            return False
        return True

    async def stop(self) -> None:
        await self._link.stop()

    async def _call(self, *args: str) -> Any:
        try:
            if not self._started:
                await self._link.start()
                self._started = True
            return await self._link.call(self._key, *args)
        except LinkLost as error:
            if error.loading:
                raise StoreLoading(str(error)) from None
            raise StoreSilent(str(error)) from None
        except BusyLoadingError as error:
            raise StoreLoading(str(error)) from None
        except RedisError as error:
            raise Refused(str(error)) from None
        except (TimeoutError, OSError) as error:
            raise StoreSilent(str(error)) from None


class Refused(Exception):
    """The store answered with an error."""


def facts_of(figures: dict[str, str]) -> Facts:
    """The facts in the lines of INFO."""
    server = "valkey" if figures.get("server_name") == "valkey" or "valkey_version" in figures else "redis"
    written = figures.get(f"{server}_version", figures.get("redis_version", "0"))
    return Facts(
        server=server,
        version=tuple(int(part) for part in written.split(".") if part.isdigit()),
        role=figures.get("role", "unknown"),
        maxmemory_bytes=int(figures.get("maxmemory", "0") or 0),
        maxmemory_policy=figures.get("maxmemory_policy", "noeviction"),
        memory_bytes=int(figures.get("used_memory", "0") or 0),
        aof=figures.get("aof_enabled", "0") == "1",
        aof_ok=figures.get("aof_last_write_status", "ok") == "ok",
        replicas=int(figures.get("connected_slaves", "0") or 0),
        oom_refusals=int(figures.get("errorstat_OOM", "count=0").removeprefix("count=").partition(",")[0]),
    )


def may_evict(facts: Facts) -> bool:
    """Whether the store deletes keys when its memory is full. Every policy but noeviction can delete jobs."""
    return facts.maxmemory_bytes > 0 and facts.maxmemory_policy != "noeviction"


def is_full(facts: Facts, before: Facts | None, was_full: bool) -> bool:
    """Whether the store refuses sends because its memory is full, or has done so since the previous check.

    The request itself takes memory, so a large one is refused a little below the limit. A store that was full counts as
    full until 5 % are free, because close to its limit it accepts one send and refuses the next.
    """
    if not 0 < facts.maxmemory_bytes * ROOM_AGAIN <= facts.memory_bytes:
        return False
    refused = before is not None and facts.oom_refusals > before.oom_refusals
    return was_full or refused or facts.memory_bytes >= facts.maxmemory_bytes


def full_text(facts: Facts) -> str:
    """The message about a full store."""
    return (
        f"the store is full: it uses {facts.memory_bytes:,} of {facts.maxmemory_bytes:,} bytes. Sends are refused; "
        "pull, ack, release and cancel work. Finish or purge jobs, or give it more memory (embedded: "
        "store.max_memory_bytes)"
    )


def refusal(facts: Facts) -> str | None:
    """Why this store cannot be used at all; None if it can."""
    if facts.version[:2] < LEAST_VERSION[facts.server]:
        return f"the store is {facts.name}; at least Redis 7.0 or Valkey 7.2 is needed"
    if facts.role != "master":
        return f"the store is a {facts.role}: give the address of the primary"
    if may_evict(facts):
        return (
            f'the store may delete jobs when its memory is full: its maxmemory-policy is "{facts.maxmemory_policy}". '
            "Set it to noeviction"
        )
    return None


def store_words(kind: str, facts: Facts | None) -> str:
    """A description of a store. `kind` names it, without secrets; the facts may not be known yet."""
    if facts is None:
        return kind
    written = facts.appendfsync or "unknown"
    return f"{kind}, {facts.name}, appendonly {'yes' if facts.aof else 'no'}, appendfsync {written}"


async def scope_refusal(store: ValkeyStore, dialects: Dialects) -> str | None:
    """Why these settings must not be used with this store: they could not find the jobs of some namespace. None if they
    can be used."""
    clash = await check_scopes(store, namespaces_with_own_ids(dialects))
    if clash is None:
        return None
    own: dict[str, Any] = {spec.name: getattr(dialects, spec.name) for spec in DIALECTS if spec.namespace_ids}
    until = "until all its jobs are ended and no longer retained"
    if not clash.namespace_ids:
        *first, last = own
        return (
            f'the namespace "{clash.namespace}" holds jobs (topic "{clash.topic}") whose ids are unique over all its '
            f"topics, as {', '.join(first)} and {last} need it, and these settings give it to none of them: enable "
            f"{', '.join(f'dialects.{name}' for name in first)} or dialects.{last} with this namespace again, at least "
            f"{until}"
        )
    names = [name for name, one in own.items() if one.enabled and one.namespace == clash.namespace]
    who, keys = " and ".join(names), " and ".join(f"dialects.{name}.namespace" for name in names)
    if clash.partitions > 1:
        return (
            f'the topic "{clash.topic}" of the namespace "{clash.namespace}" has {clash.partitions} partitions, which '
            f"{who} cannot serve: give {keys} another namespace"
        )
    return (
        f'the namespace "{clash.namespace}" holds jobs (topic "{clash.topic}") whose ids are unique in their topic '
        f"only, which {who} cannot serve: give {keys} another namespace, or run without {who} {until}"
    )


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
