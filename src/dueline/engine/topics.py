"""The cache of topics: config, partitions and prepared numbers for sends. The only I/O is reading the store's
directory.

A topic's config (policy, partitions, pause, push target) is one JSON value in the directory, with a version. It is read
once and cached. It is read again when another process changes it (engine.topic_changes).
A topic without a config has version 0, one partition and the server's defaults.

While a topic is expanded, it also has old partitions (engine.partition_map). A call looks for an id there, too, unless
this process knows that the old partition holds no job of the id's cell (`Topic.left`, engine.expansion).

With `namespace_ids` the partitions belong to the namespace. Its map is the config of the topic "", which is not a real
topic: it stands for all of them, even for callers that know only ids. The map is read before the first topic of the
namespace, and each topic of the namespace has it instead of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from .checks import Checks, conflict_rule
from .directory import TopicEntry, config_key, namespace_of
from .errors import InvalidField
from .ids import cell_of
from .job import Partition
from .metrics import EngineMetrics, TopicMetrics, Word
from .partition_map import PartitionMap
from .policy import JobPolicy, MergePolicy, OnDead, StoredRetry, TopicPolicy, attempts_allowed, stored_retry
from .push_target import PushTarget, StoredTarget, loaded_target, retry_of, stored_target
from .store import Code, OnConflict, Outcome, Store

DEFAULT_LEASE_MS = 30_000
DEFAULTS = JobPolicy()
MAX_KNOWN = 200_000
BY_ID = "(by id)"  # metrics of calls that name no topic
MOMENT_S = 1.0
_NO_METRICS = TopicMetrics()


class TopicConfig(msgspec.Struct, frozen=True):
    """The settings of a topic. `paused_until_ms` 0: not paused; LAST_MS: until resumed."""

    policy: TopicPolicy = TopicPolicy()
    map: PartitionMap = PartitionMap()
    paused_until_ms: int = 0
    push: PushTarget | None = None


class _StoredPolicy(StoredRetry, frozen=True, omit_defaults=True):
    lease_ms: int | None = None
    max_attempts: int | None = None
    ttl_ms: int | None = None
    retain_ms: int | None = None
    dead_retain_ms: int | None = None
    on_conflict: str | None = None
    spread_ms: int | None = None
    max_body_bytes: int | None = None
    merge: MergePolicy | None = None
    on_dead: OnDead | None = None
    by_worker: tuple[str, ...] = ()


class _StoredConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    policy: _StoredPolicy = _StoredPolicy()
    partitions: int = 1
    paused_until_ms: int = 0
    push: StoredTarget | None = None
    first_partition: int = 0
    old_partitions: int = 0


_decode = msgspec.json.Decoder(_StoredConfig).decode


def pack_config(config: TopicConfig) -> bytes:
    """The stored form of a config."""
    policy = config.policy
    stored = _StoredPolicy(
        lease_ms=policy.lease_ms,
        max_attempts=policy.max_attempts,
        ttl_ms=policy.ttl_ms,
        retain_ms=policy.retain_ms,
        dead_retain_ms=policy.dead_retain_ms,
        on_conflict=policy.on_conflict,
        spread_ms=policy.spread_ms,
        max_body_bytes=policy.max_body_bytes,
        merge=policy.merge,
        on_dead=policy.on_dead,
        by_worker=tuple(sorted(policy.by_worker)),
        **stored_retry(policy.retry),
    )
    push = None if config.push is None else stored_target(config.push)
    map = config.map
    return msgspec.json.encode(_StoredConfig(stored, map.count, config.paused_until_ms, push, map.first, map.old))


def unpack_config(packed: bytes) -> TopicConfig:
    """The config of a directory entry; empty bytes mean the server's defaults."""
    if not packed:
        return TopicConfig()
    stored = _decode(packed)
    policy = stored.policy
    return TopicConfig(
        TopicPolicy(
            lease_ms=policy.lease_ms,
            max_attempts=policy.max_attempts,
            ttl_ms=policy.ttl_ms,
            retain_ms=policy.retain_ms,
            dead_retain_ms=policy.dead_retain_ms,
            retry=policy.retry,
            on_conflict=policy.on_conflict,
            spread_ms=policy.spread_ms,
            max_body_bytes=policy.max_body_bytes,
            merge=policy.merge,
            on_dead=policy.on_dead,
            by_worker=frozenset(policy.by_worker),
        ),
        PartitionMap(stored.first_partition, stored.partitions, stored.old_partitions),
        stored.paused_until_ms,
        None if stored.push is None else loaded_target(stored.push),
    )


class OldContents:
    """What the old partitions of a map still hold, as this process knows. Topics that share partitions share this."""

    __slots__ = ("cells", "closed")

    def __init__(self, old: int) -> None:
        self.closed = False  # this process has seen that the old partitions are closed
        # Per old partition: the cells of which it may hold jobs. None: all.
        self.cells: tuple[frozenset[int] | None, ...] = (None,) * old


class Topic:
    """One cached topic. Mutable, unlike other values: a newer config is applied in place."""

    __slots__ = (
        "_counts",
        "_label",
        "_metrics",
        "_only",
        "config",
        "current",
        "fenced",
        "job_policy",
        "lease_ms",
        "left",
        "listed",
        "map",
        "max_body_bytes",
        "name",
        "namespace",
        "namespace_ids",
        "old",
        "on_conflict",
        "partitions",
        "read_at_s",
        "read_number",
        "registered_until_s",
        "seen_ms",
        "version",
    )

    def __init__(
        self,
        namespace: str,
        name: str,
        namespace_ids: bool,
        metrics: EngineMetrics,
        max_body_bytes: int,
        label: str | None = None,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.namespace_ids = namespace_ids
        self._metrics = metrics
        self._counts = _NO_METRICS
        self._label = name if label is None else label
        self.registered_until_s = 0.0  # on the loop's clock; see engine.registrar
        self.listed = False  # it was in the directory at the last read, so its number of partitions is fixed
        self.read_at_s = 0.0
        self.read_number = 0  # of the read that began last
        self.seen_ms = 0  # of the newest directory entry read; older entries are ignored
        self.place(PartitionMap())
        self.apply(TopicConfig(), 0, max_body_bytes)

    def apply(self, config: TopicConfig, version: int, max_body_bytes: int) -> None:
        """Apply a config. `max_body_bytes` is the server's limit, for a topic without its own."""
        policy = config.policy
        retry = retry_of(policy.retry, config.push)
        self.config = config
        self.version = version
        self.lease_ms = DEFAULT_LEASE_MS if policy.lease_ms is None else policy.lease_ms
        self.max_body_bytes = max_body_bytes if policy.max_body_bytes is None else policy.max_body_bytes
        self.on_conflict = OnConflict.REJECT if policy.on_conflict is None else conflict_rule(policy.on_conflict)
        asked = DEFAULTS.max_attempts if policy.max_attempts is None else policy.max_attempts
        self.job_policy = JobPolicy(
            max_attempts=attempts_allowed(retry, asked, policy.max_attempts is None),
            retain_ms=DEFAULTS.retain_ms if policy.retain_ms is None else policy.retain_ms,
            dead_retain_ms=DEFAULTS.dead_retain_ms if policy.dead_retain_ms is None else policy.dead_retain_ms,
            retry=retry,
        )
        if not self.namespace_ids and self.map != config.map:
            self.place(config.map)

    def place(self, map: PartitionMap, left: OldContents | None = None) -> None:
        """Use these partitions."""
        self.map = map
        self.left = left or OldContents(map.old)
        self.fenced = False  # with `namespace_ids`: this process has copied the fences to the current partitions
        self.partitions = self.numbered(map.numbers)  # all that may hold jobs
        self.old = self.partitions[: map.old]
        self.current = self.partitions[map.old :]
        self._only = self.current[0] if len(self.current) == 1 else None

    def numbered(self, numbers: Sequence[int]) -> tuple[Partition, ...]:
        """Partitions of this topic by their numbers."""
        return tuple(Partition(self.namespace, self.name, p, self.namespace_ids) for p in numbers)

    def partition_of(self, id: str) -> Partition:
        """The current partition of this id."""
        only = self._only
        return self.current[self.map.index_of(id)] if only is None else only

    def old_partition_of(self, id: str) -> Partition | None:
        """The old partition that may hold this id."""
        if not self.old:
            return None
        index = self.map.old_index_of(id)
        cells = self.left.cells[index]
        return self.old[index] if cells is None or cell_of(id) in cells else None

    def partitions_of_key(self, key: str) -> tuple[Partition, ...]:
        """The partitions that may hold groups of a merge key, the current one first. The id of a group belongs to the
        same partition as its key, but to another cell."""
        current = self.partition_of(key)
        return (current, self.old[self.map.old_index_of(key)]) if self.old else (current,)

    @property
    def metrics(self) -> TopicMetrics:
        """The topic's metrics. Read this only to count something, because it takes one of a few slots."""
        if not self._counts.is_own:
            self._counts = self._metrics.of(self.namespace, self._label)
        return self._counts

    def count(self, word: Word, number: int) -> None:
        if number:
            self.metrics.count(word, number)

    def count_released(self, results: Sequence[Outcome]) -> None:
        if any(result.code in (Code.OK, Code.DEAD) for result in results):
            self.metrics.count_released(results)


class Topics:
    """All cached topics. `namespace_ids`: the namespaces whose ids are unique over all their topics."""

    def __init__(
        self,
        store: Store,
        checks: Checks,
        metrics: EngineMetrics,
        namespace_ids: frozenset[str],
        time_s: Callable[[], float],
    ) -> None:
        # called when a topic has other partitions than before, which are the second argument
        self.moved: Callable[[Topic, Sequence[Partition]], None] | None = None
        self.reads = 0  # of the directory, begun so far
        self._time_s = time_s
        self._store = store
        self._checks = checks
        self._metrics = metrics
        self._namespace_ids = namespace_ids
        self._known: dict[tuple[str, str], Topic] = {}
        self._shared: dict[str, Topic] = {}  # the topic "" of each namespace that was used
        self._loading: dict[tuple[str, str], asyncio.Task[Topic]] = {}

    def known(self, namespace: str, topic: str) -> Topic | None:
        return self._known.get((namespace, topic))

    def expanding(self) -> list[Topic]:
        """The cached topics that have old partitions; the topic "" for those that share them."""
        topics = [*self._known.values(), *self._shared.values()]
        return [topic for topic in topics if topic.old and not (topic.name and topic.namespace_ids)]

    def listed(self) -> list[tuple[str, str]]:
        """The cached topics that were in the directory when they were last read."""
        return [key for key, topic in self._known.items() if topic.listed]

    async def get(self, namespace: str, topic: str) -> Topic:
        """The topic. It is read from the directory until an entry exists; a topic that was never used is fine too."""
        found = self._known.get((namespace, topic))
        return found if found is not None and found.listed else await self.load(namespace, topic)

    def shared(self, namespace: str) -> Topic | None:
        return self._shared.get(namespace)

    async def everywhere(self, namespace: str) -> Topic:
        """A stand-in for all topics of a namespace with `namespace_ids`, for callers that know only ids."""
        if not self.has_namespace_ids(namespace):
            raise InvalidField("ids of this namespace are unique only within a topic: name the topic", "topic")
        return self._shared.get(namespace) or await self.load_shared(namespace)

    async def prepare(self, namespace: str) -> None:
        """Read the map of the namespace, if its topics share one. Needed before an entry of a topic is applied."""
        if namespace in self._namespace_ids and namespace not in self._shared:
            await self.load_shared(namespace)

    def has_namespace_ids(self, namespace: str) -> bool:
        return namespace in self._namespace_ids

    async def load(self, namespace: str, topic: str) -> Topic:
        """Read the config again. Concurrent calls for one topic share one read."""
        self._checks.topic_name(namespace, topic)
        await self.prepare(namespace)
        return await self._read((namespace, topic))

    async def load_shared(self, namespace: str) -> Topic:
        """Read the map of a namespace with `namespace_ids` again."""
        return await self._read((namespace, ""))

    async def _read(self, key: tuple[str, str]) -> Topic:
        task = self._loading.get(key)
        if task is None or task.done():  # done, but not yet seen by `_loaded`: a caller may need a newer read
            task = self._loading[key] = asyncio.create_task(self._load(key))
            task.add_done_callback(lambda done: self._loaded(key, done))
        return await asyncio.shield(task)

    async def _load(self, key: tuple[str, str]) -> Topic:
        self.reads += 1
        number = self.reads
        topic = self.apply(key, await self._store.directory.topic(*config_key(*key)))
        topic.read_at_s = self._time_s()
        topic.read_number = number
        return topic

    def _loaded(self, key: tuple[str, str], task: asyncio.Task[Topic]) -> None:
        if self._loading.get(key) is task:
            del self._loading[key]
        if not task.cancelled():
            task.exception()  # retrieve it; callers that still wait get it from the task

    def apply(self, key: tuple[str, str], entry: TopicEntry | None) -> Topic:
        """Apply a directory entry, unless the cached one is newer. The namespace must be prepared."""
        if not key[1]:
            return self._apply_shared(key[0], entry)
        topic = self._known.get(key)
        server_bytes = self._checks.limits.max_body_bytes
        if topic is None:
            topic = Topic(*key, self.has_namespace_ids(key[0]), self._metrics, server_bytes)
            if topic.namespace_ids:
                shared = self._shared[key[0]]
                topic.place(shared.map, shared.left)
            if len(self._known) >= MAX_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[key] = topic
        topic.listed = entry is not None
        if entry is None:
            self._metrics.drop(*key)
        elif _is_newer(entry, topic):
            partitions = topic.partitions
            topic.apply(unpack_config(entry.config), entry.version, server_bytes)
            if topic.partitions != partitions and self.moved is not None:
                self.moved(topic, partitions)
        topic.seen_ms = max(topic.seen_ms, 0 if entry is None else entry.seen_ms)
        return topic

    def changed(self, key: tuple[str, str], entry: TopicEntry | None) -> bool:
        """Apply a changed entry, if this process uses it. False: it belongs to a namespace, not to a topic."""
        namespace = namespace_of(key)
        if namespace in self._shared:
            self._apply_shared(namespace, entry)
        elif key in self._known:
            self.apply(key, entry)
        return namespace is None

    def _apply_shared(self, namespace: str, entry: TopicEntry | None) -> Topic:
        shared = self._shared.get(namespace)
        if shared is None:
            server_bytes = self._checks.limits.max_body_bytes
            shared = self._shared[namespace] = Topic(namespace, "", True, self._metrics, server_bytes, label=BY_ID)
        if entry is None or not _is_newer(entry, shared):
            return shared
        shared.version, shared.seen_ms = entry.version, entry.seen_ms
        map = unpack_config(entry.config).map
        if map != shared.map:
            left = OldContents(map.old)
            for topic in (shared, *(one for key, one in self._known.items() if key[0] == namespace)):
                before = topic.partitions
                topic.place(map, left)
                if self.moved is not None:
                    self.moved(topic, before)
        return shared

    def without_config(self, namespace: str, topic: str) -> tuple[Partition, ...]:
        """All partitions that a topic without a config may have used."""
        shared = self._shared.get(namespace)
        numbers = range(1) if shared is None else shared.map.ever
        return tuple(Partition(namespace, topic, number, shared is not None) for number in numbers)

    def map_owner(self, topic: Topic) -> Topic:
        """The topic whose config has the map: itself, or the topic "" of its namespace."""
        return self._shared[topic.namespace] if topic.namespace_ids else topic

    def is_fresh(self, topic: Topic) -> bool:
        """Whether the config was read a moment ago."""
        return self._time_s() - topic.read_at_s < MOMENT_S

    async def fresh(self, namespace: str, topic: str) -> Topic:
        """The topic with its config and its map as they are now."""
        found = await self.load(namespace, topic)
        if found.namespace_ids:
            await self.reread(self.map_owner(found))
        return found

    async def renewed(self, topic: Topic, used: PartitionMap, reads: int) -> bool:
        """Read the map again, unless a read has begun since `self.reads` was `reads`. Returns whether the topic now
        has another one than the one used: it was expanded, or deleted and created again."""
        if topic.map == used:
            await self.reread(self.map_owner(topic), reads)
        return topic.map != used

    async def reread(self, topic: Topic, reads: int | None = None) -> None:
        """Read the config again, by a read that begins after `self.reads` was `reads`; None: after this call."""
        reads = self.reads if reads is None else reads
        while topic.read_number <= reads:
            topic = await self._read((topic.namespace, topic.name))  # may join a read that began earlier

    def gone(self, namespace: str, topic: str) -> None:
        """This process removed the topic from the directory."""
        found = self._known.get((namespace, topic))
        if found is not None:
            found.listed = False
            found.registered_until_s = 0.0
            found.apply(TopicConfig(), 0, self._checks.limits.max_body_bytes)
        self._metrics.drop(namespace, topic)

    async def stop(self) -> None:
        if self._loading:
            await asyncio.wait(list(self._loading.values()))


def _is_newer(entry: TopicEntry, topic: Topic) -> bool:
    """A lower version with a later time is newer, too: the topic was deleted, or the directory lost."""
    return entry.version > topic.version or (entry.version < topic.version and entry.seen_ms > topic.seen_ms)
