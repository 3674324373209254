"""Slots of a private Cluster: which topics are on which node, and moving slots, key by key or atomically."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from dueline.engine.job import Partition
from dueline.store.valkey.keys import partition_keys
from dueline.store.valkey.link import slot_of as slot_of_key

from .valkey import PrivateCluster, PrivateValkey
from .waiting import wait_until

NAMESPACE = "default"


def slot_of_topic(topic: str) -> int:
    """The slot of the first partition of a topic in the default namespace."""
    return slot_of_key(partition_keys("dueline", Partition(NAMESPACE, topic)).channel)


def slots_of(node: PrivateValkey) -> set[int]:
    """The slots that a node serves, by what it says itself."""
    found: set[int] = set()
    for low, high, primary, *_ in node.ask("CLUSTER", "SLOTS"):
        if primary[1] == node.port:
            found |= set(range(low, high + 1))
    return found


def topics_on(node: PrivateValkey, count: int) -> list[str]:
    """Unused topics of the default namespace whose jobs are on this node."""
    slots = slots_of(node)
    found: list[str] = []
    while len(found) < count:
        topic = f"t-{uuid.uuid4().hex}"
        if slot_of_topic(topic) in slots:
            found.append(topic)
    return found


def primaries(cluster: PrivateCluster) -> list[PrivateValkey]:
    return [node for node in cluster.nodes if node.pid is not None and node.ask("ROLE")[0] == "master"]


def move_slot(cluster: PrivateCluster, slot: int, to: PrivateValkey) -> None:
    """Move a slot key by key, as Redis and older Valkeys do."""
    nodes = primaries(cluster)
    [source] = [node for node in nodes if slot in slots_of(node)]
    source_id, target_id = cluster.id_of(source), cluster.id_of(to)
    to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
    while names := source.ask("CLUSTER", "GETKEYSINSLOT", slot, 100):
        source.ask("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *names)
    for node in (to, source, *nodes):
        node.ask("CLUSTER", "SETSLOT", slot, "NODE", target_id)


def move_slots_atomically(
    cluster: PrivateCluster, slots: Collection[int], source: PrivateValkey, to: PrivateValkey
) -> None:
    """Move slots as Valkey 9 does: `to` gets a copy, then the slots change hands at once. Returns when they have."""
    ranges = [word for slot in sorted(slots) for word in (slot, slot)]
    source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *ranges, "NODE", cluster.id_of(to))
    wait_until(lambda: set(slots) <= slots_of(to) and not set(slots) & slots_of(source))
