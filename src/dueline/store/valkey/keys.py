"""Builds every key of the product. Layout version 1.

All keys of a partition share one hash tag, so that a script touches only one slot:

    {ns/topic/p}      a topic's partition              m j r s l a d g k
    {ns//p}           the same with `namespace_ids`    j r, and m s l a d g k once per topic

    m  hash   the partition itself: epoch, seq, pause, limits, duty, counters, interned policies, remembered calls,
              fences of schedules (lua/lib/fence.lua)
    j  hash   id -> record (written by send, edit, replace, revive only); with `namespace_ids` the empty id is
              there if the partition is closed (lua/lib/closed.lua)
    r  hash   id -> run (from the first pull or end on)
    s  zset   send number + id -> time; live and not leased
    l  zset   send number + id -> lease deadline; expired leases stay until pulled or cleaned up
    a  zset   agenda: x+id end of ttl, e+id deadline of a last attempt, t+id end of retention, o+schedule end of a fence
    d  zset   x+id dead by time of death, b+id broken; behind them w+id waits for another attempt (lua/lib/retries.lua)
    g  hash   merge groups: open ones by key, items, ids of items (lua/lib/items.lua)
    k  zset   tag NUL id; for live groups \\1, size of the key, key, number of the opening, id
    W  text   marker of a witness, for a minute; one per tag, also with `namespace_ids`, and for the tags below

    {ns/topic/push}   state hash and log list of the topic's push target, with or without `namespace_ids`

    {audit}       state hash and log list of the audit log
    {directory}   topics zset, seen zset, config hash, agenda zset, meta hash, epochs hash, closed zset; charts hash,
                  chart-ring hash, chart-names zset; events stream, listening hash, members zset
    {epoch-N}     on a Cluster: copies of the store's epoch, in slots far apart

    {workers/ns}  records hash, seen zset: the workers of a namespace that have reported themselves lately

    {tokens}      access tokens: records hash, changes zset, ends zset; servers: confirmed zset, seen zset
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from ...engine.job import Partition

DATA_VERSION = "1"
LETTERS = "mjrsladgk"


class PartitionKeys(NamedTuple):
    """The nine keys of a partition in the order that every script expects, and its wake-up channel."""

    keys: tuple[str, ...]
    channel: str


def _escaped(name: str) -> str:
    return quote(name, safe="")


@lru_cache(8192)
def partition_keys(prefix: str, partition: Partition) -> PartitionKeys:
    namespace, topic = _escaped(partition.namespace), _escaped(partition.topic)
    if partition.namespace_ids:
        tag = f"{prefix}:{{{namespace}//{partition.number}}}:"
        keys = tuple(tag + letter if letter in "jr" else f"{tag}{letter}:{topic}" for letter in LETTERS)
        return PartitionKeys(keys, f"{tag}w:{topic}")
    tag = f"{prefix}:{{{namespace}/{topic}/{partition.number}}}:"
    return PartitionKeys(tuple(tag + letter for letter in LETTERS), tag + "w")


def key_of(prefix: str, partition: Partition, letter: str) -> str:
    """One key of a partition."""
    return partition_keys(prefix, partition).keys[LETTERS.index(letter)]


def partition_of(prefix: str, key: str) -> Partition | None:
    """The partition whose `m` key this is, None for any other key."""
    head = f"{prefix}:{{"
    if not key.startswith(head):
        return None
    inside, _, tail = key[len(head) :].partition("}:")
    parts = inside.split("/")
    if len(parts) != 3 or not parts[2].isdigit():
        return None
    namespace, topic, partition = unquote(parts[0]), unquote(parts[1]), int(parts[2])
    if tail == "m":
        return Partition(namespace, topic, partition)
    if not topic and tail.startswith("m:"):
        return Partition(namespace, unquote(tail[2:]), partition, True)
    return None


@lru_cache(8192)
def push_keys(prefix: str, namespace: str, topic: str) -> tuple[str, ...]:
    """The keys of push.lua, in its order: state, log."""
    tag = f"{prefix}:{{{_escaped(namespace)}/{_escaped(topic)}/push}}:"
    return tag + "state", tag + "log"


def pushed_topic(prefix: str, key: str) -> tuple[str, str] | None:
    """The namespace and topic whose push key this is, None for any other key."""
    head = f"{prefix}:{{"
    inside, _, tail = key[len(head) :].partition("}:")
    parts = inside.split("/")
    if not key.startswith(head) or len(parts) != 3 or parts[2] != "push" or tail not in ("state", "log"):
        return None
    return unquote(parts[0]), unquote(parts[1])


def audit_keys(prefix: str) -> tuple[str, ...]:
    """The keys of audit.lua, in its order: state, log."""
    return f"{prefix}:{{audit}}:state", f"{prefix}:{{audit}}:log"


def chart_keys(prefix: str) -> tuple[str, ...]:
    """The keys of charts.lua, in its order: state, ring, names."""
    return tuple(f"{prefix}:{{directory}}:{name}" for name in ("charts", "chart-ring", "chart-names"))


def directory_keys(prefix: str) -> tuple[str, ...]:
    """The keys of directory.lua, in its order: topics, seen, config, agenda."""
    return tuple(f"{prefix}:{{directory}}:{name}" for name in ("topics", "seen", "config", "agenda"))


def changes_channel(prefix: str) -> str:
    """Where directory.lua announces changes of topics."""
    return f"{prefix}:{{directory}}:w"


def token_keys(prefix: str) -> tuple[str, ...]:
    """The keys of tokens.lua, in its order: records, changes, ends, confirmed, seen."""
    return tuple(f"{prefix}:{{tokens}}:{name}" for name in ("records", "changes", "ends", "confirmed", "seen"))


@lru_cache(1024)
def worker_keys(prefix: str, namespace: str) -> tuple[str, ...]:
    """The keys of workers.lua, in its order: records, seen."""
    return tuple(f"{prefix}:{{workers/{_escaped(namespace)}}}:{name}" for name in ("records", "seen"))


def event_keys(prefix: str) -> tuple[str, ...]:
    """The keys of events.lua, in its order: stream, state, members."""
    return tuple(f"{prefix}:{{directory}}:{name}" for name in ("events", "listening", "members"))


def interest_channel(prefix: str) -> str:
    """Where events.lua announces that somebody begins to listen."""
    return f"{prefix}:{{directory}}:listen"


def entries_channel(prefix: str) -> str:
    """Where events.lua announces new entries of the stream."""
    return f"{prefix}:{{directory}}:entries"


def tokens_channel(prefix: str) -> str:
    """Where tokens.lua announces changes of tokens."""
    return f"{prefix}:{{tokens}}:w"


def meta_key(prefix: str) -> str:
    """Data version and identity of the store (hash)."""
    return f"{prefix}:{{directory}}:meta"


def epoch_keys(prefix: str) -> tuple[str, ...]:
    """The keys of epochs.lua, in its order: meta, epochs, closed, topics, seen."""
    return tuple(f"{prefix}:{{directory}}:{name}" for name in ("meta", "epochs", "closed", "topics", "seen"))


def epoch_copies(prefix: str) -> tuple[str, ...]:
    """Strings with the store's epoch. One is in each eighth of a Cluster's slots, so not all are on one shard."""
    return tuple(f"{prefix}:{{epoch-{number}}}:copy" for number in (0, 40, 1, 41, 2, 42, 3, 43))


def version_fault(meta: Mapping[bytes, bytes]) -> str | None:
    """What is wrong with the data version in the store's meta hash; None: this program can read it."""
    version = meta.get(b"version", b"").decode()
    if not meta or version == DATA_VERSION:
        return None
    return f"the store holds data of version {version or '?'}, this program reads {DATA_VERSION}"


def topic_name(namespace: str, topic: str) -> bytes:
    return f"{namespace}\0{topic}".encode()


def partition_name(partition: Partition) -> bytes:
    """A partition as one text. `partition_named` reads it."""
    return f"{partition.namespace}\0{partition.topic}\0{partition.number}\0{int(partition.namespace_ids)}".encode()


def partition_named(name: bytes) -> Partition:
    namespace, topic, partition, namespace_ids = name.decode().split("\0")
    return Partition(namespace, topic, int(partition), namespace_ids == "1")
