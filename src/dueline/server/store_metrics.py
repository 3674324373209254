"""The samples of the store: its connection, its clock, its memory, and the embedded store's process and disk."""

from __future__ import annotations

from ..api.server_info import Shard
from ..metrics import table
from ..metrics.metric import Samples
from ..runtime.access import StoreAccess
from ..store.valkey.store import ValkeyStore
from .health import Health


def store_samples(store: ValkeyStore, health: Health, access: StoreAccess) -> list[Samples]:
    """The samples of a server whose store is `store`."""
    embedded, replication = access.location.status, access.replication
    found = [
        table.STORE_UP.value(int(health.up)),
        table.READY.value(int(not health.reasons())),
        table.STORE_RECONNECTS.value(store.reconnects),
        table.STORE_ERRORS.samples({(kind,): count for kind, count in store.errors.items()}),
        table.CLOCK_OFFSET.value(store.clock.offset_ms / 1000),
        table.CLOCK_STEPS.value(store.clock.steps),
        table.STORE_UNREPLICATED.value(0 if replication is None else replication.uncovered),
        table.STORE_REPLACED.value(len(store.epochs.losses)),
    ]
    facts = health.watch.facts
    if facts is not None:
        found += [
            table.STORE_MEMORY.value(facts.memory_bytes),
            table.STORE_MAXMEMORY.value(facts.maxmemory_bytes),
            table.STORE_GUARD.samples(health.watch.guards.values()),
            table.STORE_REPLICAS.value(facts.replicas),
            table.STORE_AOF_OK.value(int(facts.aof and facts.aof_ok)),
        ]
    if embedded is not None:
        found += [
            table.STORE_RESTARTS.value(embedded.restarts),
            table.STORE_LOST_BYTES.value(embedded.lost_bytes),
        ]
        if embedded.free_bytes is not None:
            found.append(table.STORE_DISK_FREE.value(embedded.free_bytes))
    return found


def shards_of(health: Health, access: StoreAccess) -> tuple[Shard, ...]:
    """The primaries of the store."""
    facts = health.watch.facts
    return tuple(
        Shard(
            name=node.node if access.location.status is None else "embedded",
            role="primary" if node.role == "master" else node.role,
            memory_bytes=node.memory_bytes,
            max_memory_bytes=node.maxmemory_bytes or None,
            replicas=node.replicas,
            aof_ok=node.aof and node.aof_ok,
        )
        for node in (() if facts is None else facts.nodes)
    )
