"""What a store reports about itself, and what that means for jobs.

It is asked over a connection of its own, so that a busy pipeline does not look like a dead store.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from redis.exceptions import BusyLoadingError, RedisError

from ..engine.errors import Loading, StoreDown
from ..store.valkey.link import LinkLost, link_for
from ..store.valkey.tls import StoreTls

REPLY_TIMEOUT_S = 2.0
ROOM_AGAIN = 0.95
LEAST_VERSION = {"redis": (7, 0), "valkey": (7, 2)}


class StoreFacts(msgspec.Struct, frozen=True):
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
    """Queries one store. It reconnects by itself. Every query may raise StoreDown (also Untrusted) or Loading."""

    def __init__(self, url: str, prefix: str = "dueline", tls: StoreTls = StoreTls()) -> None:
        self._link = link_for(url, REPLY_TIMEOUT_S, tls)
        self._key = prefix
        self._started = False

    async def facts(self) -> StoreFacts:
        """One INFO."""
        try:
            text = await self._call("INFO", "server", "memory", "persistence", "replication", "errorstats")
        except Refused as error:
            raise _down(error) from None
        fields = dict(line.split(":", 1) for line in _text(text).split("\r\n") if ":" in line)
        if fields.get("loading", "0") != "0":
            raise _loading(f"{float(fields.get('loading_loaded_perc', '0') or 0):.0f} %")
        return facts_of(fields)

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
        """Disconnect. The next query connects again."""
        self._started = False
        await self._link.stop()

    async def _call(self, *args: str) -> Any:
        try:
            if not self._started:
                await self._link.start()
                self._started = True
            return await self._link.call(self._key, *args)
        except LinkLost as error:
            if error.untrusted:
                raise Untrusted(str(error)) from None
            raise (_loading(error) if error.loading else _down(error)) from None
        except BusyLoadingError as error:
            raise _loading(error) from None
        except RedisError as error:
            raise Refused(str(error)) from None
        except (TimeoutError, OSError) as error:
            raise _down(error) from None


class Untrusted(StoreDown):
    """Store and client do not trust each other's certificates. Waiting does not help."""


class Refused(Exception):
    """The store answered with an error."""


def facts_of(fields: dict[str, str]) -> StoreFacts:
    """The facts in the lines of INFO."""
    server = "valkey" if fields.get("server_name") == "valkey" or "valkey_version" in fields else "redis"
    written = fields.get(f"{server}_version", fields.get("redis_version", "0"))
    return StoreFacts(
        server=server,
        version=tuple(int(part) for part in written.split(".") if part.isdigit()),
        role=fields.get("role", "unknown"),
        maxmemory_bytes=int(fields.get("maxmemory", "0") or 0),
        maxmemory_policy=fields.get("maxmemory_policy", "noeviction"),
        memory_bytes=int(fields.get("used_memory", "0") or 0),
        aof=fields.get("aof_enabled", "0") == "1",
        aof_ok=fields.get("aof_last_write_status", "ok") == "ok",
        replicas=int(fields.get("connected_slaves", "0") or 0),
        oom_refusals=int(fields.get("errorstat_OOM", "count=0").removeprefix("count=").partition(",")[0]),
    )


def is_full(facts: StoreFacts, before: StoreFacts | None, was_full: bool) -> bool:
    """Whether the store refuses sends because its memory is full, or has done so since the previous check.

    The request itself takes memory, so a large one is refused a little below the limit. A store that was full counts as
    full until 5 % are free, because close to its limit it accepts one send and refuses the next.
    """
    if not 0 < facts.maxmemory_bytes * ROOM_AGAIN <= facts.memory_bytes:
        return False
    refused = before is not None and facts.oom_refusals > before.oom_refusals
    return was_full or refused or facts.memory_bytes >= facts.maxmemory_bytes


def full_text(facts: StoreFacts) -> str:
    """The message about a full store."""
    return (
        f"the store is full: it uses {facts.memory_bytes:,} of {facts.maxmemory_bytes:,} bytes. Sends are refused; "
        "pull, ack, release and cancel work. Finish or purge jobs, or give it more memory (embedded: "
        "store.max_memory_bytes)"
    )


def refusals(facts: StoreFacts) -> Iterator[tuple[str, str]]:
    """Why this store must not be used: (code of readiness, sentence). Nothing if it can be used."""
    if facts.version[:2] < LEAST_VERSION[facts.server]:
        yield "store_down", f"the store is {facts.name}; at least Redis 7.0 or Valkey 7.2 is needed"
    if facts.role != "master":
        yield "store_down", f"the store is a {facts.role}: give the address of the primary"
    if facts.maxmemory_bytes > 0 and facts.maxmemory_policy != "noeviction":  # every other policy can delete jobs
        yield (
            "eviction",
            f'the store may delete jobs when its memory is full: its maxmemory-policy is "{facts.maxmemory_policy}". '
            "Set it to noeviction",
        )


def store_words(kind: str, facts: StoreFacts | None) -> str:
    """A description of a store. `kind` names it, without secrets; the facts may not be known yet."""
    if facts is None:
        return kind
    written = facts.appendfsync or "unknown"
    return f"{kind}, {facts.name}, appendonly {'yes' if facts.aof else 'no'}, appendfsync {written}"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _down(why: object) -> StoreDown:
    return StoreDown(f"the store does not answer: {why}")


def _loading(progress: object) -> Loading:
    return Loading(f"the store is loading its data: {progress}")
