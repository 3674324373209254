"""The scope of a namespace's ids, kept in the store: a server whose settings say otherwise would not see its jobs.

    scope:<namespace> = namespace   in the meta hash: ids are unique over all topics (wide)
    no such field                   ids are unique in their topic

The two scopes keep their jobs under different keys. So the field may change only while nothing is stored under the
keys of the other scope. It is compared at start and at every look at the store: of two servers that disagree, one
finds the other's jobs as soon as there are any.
"""

from __future__ import annotations

import msgspec

from ...engine.job import Line
from ...engine.topics import unpack_config
from .keys import meta_key
from .store import ValkeyStore

FIELD = "scope:"
WIDE = "namespace"
PAGE = 100


class Clash(msgspec.Struct, frozen=True):
    """A topic that forbids the scope which the settings give its namespace: it has jobs under the keys of the other
    one, or (`partitions` > 1) is divided as no topic of a wide namespace can be. `wide`: what the settings say."""

    namespace: str
    topic: str
    partitions: int
    wide: bool


async def check_scopes(store: ValkeyStore, wide: frozenset[str]) -> Clash | None:
    """Make the stored scopes those of the settings; or the first namespace where jobs forbid it."""
    key = meta_key(store.prefix)
    stored = await _stored(store)
    for namespace in sorted(wide - stored):
        clash = await _clash(store, namespace, True)
        if clash is not None:
            return clash
        await store.plain(key, "HSET", key, FIELD + namespace, WIDE)
    for namespace in sorted(stored - wide):
        clash = await _clash(store, namespace, False)
        if clash is not None:
            return clash
        await store.plain(key, "HDEL", key, FIELD + namespace)
    return None


async def _stored(store: ValkeyStore) -> frozenset[str]:
    """The namespaces that the store says are wide."""
    key = meta_key(store.prefix)
    found = await store.plain(key, "HGETALL", key)
    fields: list[bytes] = list(found) if isinstance(found, dict) else found[::2]
    return frozenset(name[len(FIELD) :] for name in map(bytes.decode, fields) if name.startswith(FIELD))


async def _clash(store: ValkeyStore, namespace: str, wide: bool) -> Clash | None:
    """What forbids this scope. A topic that the directory does not list has no jobs."""
    after = ""
    while True:
        entries = await store.directory.topics(namespace, after, PAGE)
        for entry in entries:
            partitions = unpack_config(entry.config).partitions
            if (wide and partitions > 1) or await _holds(store, Line(namespace, entry.topic, 0, not wide)):
                return Clash(namespace, entry.topic, partitions, wide)
        if len(entries) < PAGE:
            return None
        after = entries[-1].topic


async def _holds(store: ValkeyStore, line: Line) -> bool:
    for _ in range(2):
        now = await store.stats(line)
        if now.scheduled or now.ready or now.leased or now.dead or now.broken:
            return True
        if not (now.done or now.cancelled):
            return False
        while (await store.clean(line)).more:
            pass  # ended jobs count until their retention is over; nobody may have tidied since
    return True
