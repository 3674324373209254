"""The scope of a namespace's ids, recorded in the store. A server with another setting would not see the jobs.

    scope:<namespace> = namespace   in the meta hash: ids are unique over all topics (namespace_ids)
    no such field                   ids are unique in their topic

The two scopes store jobs under different keys. So the field may change only while nothing is stored under the keys of
the other scope. It is compared at start and at every health check. If two servers disagree, one of them notices as soon
as the other has stored a job.
"""

from __future__ import annotations

import msgspec

from ...engine.directory import config_key
from ...engine.job import Partition
from ...engine.topics import unpack_config
from .keys import meta_key
from .store import ValkeyStore

FIELD = "scope:"
NAMESPACE_IDS = "namespace"
PAGE = 100


class Clash(msgspec.Struct, frozen=True):
    """A topic that conflicts with the configured scope of its namespace. It has jobs under the keys of the other scope,
    or partitions of its own (`partitions` > 1), which `namespace_ids` does not allow. `namespace_ids`: the configured
    scope."""

    namespace: str
    topic: str
    partitions: int
    namespace_ids: bool


async def check_scopes(store: ValkeyStore, namespace_ids: frozenset[str]) -> Clash | None:
    """Store the configured scopes, one namespace after the other. Stops at the first conflict and returns it; what was
    stored before it stays."""
    key = meta_key(store.prefix)
    stored = await _stored(store)
    for namespace in sorted(namespace_ids - stored):
        clash = await _clash(store, namespace, True)
        if clash is not None:
            return clash
        await store.plain(key, "HSET", key, FIELD + namespace, NAMESPACE_IDS)
    for namespace in sorted(stored - namespace_ids):
        clash = await _clash(store, namespace, False)
        if clash is not None:
            return clash
        await store.plain(key, "HDEL", key, FIELD + namespace)
    return None


async def _stored(store: ValkeyStore) -> frozenset[str]:
    """The namespaces that are recorded with `namespace_ids`."""
    key = meta_key(store.prefix)
    fields: list[bytes] = (await store.plain(key, "HGETALL", key))[::2]
    return frozenset(name[len(FIELD) :] for name in map(bytes.decode, fields) if name.startswith(FIELD))


async def _clash(store: ValkeyStore, namespace: str, namespace_ids: bool) -> Clash | None:
    """The conflict with this scope, if any. Topics that are not in the directory have no jobs."""
    after = ""
    shared = await store.directory.topic(*config_key(namespace, ""))
    used = (unpack_config(b"" if shared is None else shared.config)).map.numbers
    while True:
        entries = await store.directory.topics(namespace, after, PAGE)
        for entry in entries:
            partitions = unpack_config(entry.config).map.count
            if namespace_ids and partitions > 1:
                return Clash(namespace, entry.topic, partitions, True)
            for number in [0] if namespace_ids else used:
                if await _holds(store, Partition(namespace, entry.topic, number, not namespace_ids)):
                    return Clash(namespace, entry.topic, partitions, namespace_ids)
        if len(entries) < PAGE:
            return None
        after = entries[-1].topic


async def _holds(store: ValkeyStore, partition: Partition) -> bool:
    for _ in range(2):
        now = await store.stats(partition)
        if now.scheduled or now.ready or now.leased or now.dead or now.broken:
            return True
        if not (now.done or now.cancelled):
            return False
        while (await store.clean(partition)).more:
            pass  # remove jobs whose retention is over, because clean-up may not have run since
    return True
