"""The cache of topics: config, partitions and prepared numbers for sends. The only I/O is reading the store's
directory.

A topic's config (policy, partitions, pause, push target) is one JSON value in the directory, with a version. It is read
once and cached. It is read again when another process changes it (engine.topic_changes).
A topic without a config has version 0, one partition and the server's defaults.

While a topic is expanded, it also has old partitions (engine.partition_map). A call looks for an id there, too, unless
this process knows that the old partition holds no job of the id's cell (`Topic.held`, engine.expansion).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from .checks import Checks, conflict_rule
from .directory import TopicEntry
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


class Topic:
    """One cached topic. Mutable, unlike other values: a newer config is applied in place."""

    __slots__ = (
        "_label",
        "_metrics",
        "closed",
        "config",
        "current",
        "held",
        "job_policy",
        "lease_ms",
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
        self._label = name if label is None else label
        self.registered_until_s = 0.0  # on the loop's clock; see engine.registrar
        self.listed = False  # it was in the directory at the last read, so its number of partitions is fixed
        self.read_at_s = 0.0
        self.read_number = 0  # of the read that began last
        self.seen_ms = 0  # of the newest directory entry read; older entries are ignored
        self._place(PartitionMap())
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
        if self.map != config.map:
            self._place(config.map)

    def _place(self, map: PartitionMap) -> None:
        self.map = map
        self.partitions = self.numbered(map.numbers)  # all that may hold jobs
        self.old = self.partitions[: map.old]
        self.current = self.partitions[map.old :]
        self.closed = False  # this process has seen that the old partitions are closed
        # Per old partition: the cells of which it may hold jobs. None: all.
        self.held: tuple[frozenset[int] | None, ...] = (None,) * map.old

    def numbered(self, numbers: Sequence[int]) -> tuple[Partition, ...]:
        """Partitions of this topic by their numbers."""
        return tuple(Partition(self.namespace, self.name, p, self.namespace_ids) for p in numbers)

    def partition_of(self, id: str) -> Partition:
        """The current partition of this id."""
        current = self.current
        return current[0] if len(current) == 1 else current[self.map.index_of(id)]

    def old_partition_of(self, id: str) -> Partition | None:
        """The old partition that may hold this id."""
        if not self.old:
            return None
        index = self.map.old_index_of(id)
        held = self.held[index]
        return self.old[index] if held is None or cell_of(id) in held else None

    def partitions_of_key(self, key: str) -> tuple[Partition, ...]:
        """The partitions that may hold groups of a merge key, the current one first. The id of a group belongs to the
        same partition as its key, but to another cell."""
        current = self.partition_of(key)
        return (current, self.old[self.map.old_index_of(key)]) if self.old else (current,)

    @property
    def metrics(self) -> TopicMetrics:
        """The topic's metrics. Read this only to count something, because it takes one of a few slots."""
        return self._metrics.of(self.namespace, self._label)

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
        self._loading: dict[tuple[str, str], asyncio.Task[Topic]] = {}

    def known(self, namespace: str, topic: str) -> Topic | None:
        return self._known.get((namespace, topic))

    def expanding(self) -> list[Topic]:
        """The cached topics that have old partitions."""
        return [topic for topic in self._known.values() if topic.old]

    def listed(self) -> list[tuple[str, str]]:
        """The cached topics that were in the directory when they were last read."""
        return [key for key, topic in self._known.items() if topic.listed]

    async def get(self, namespace: str, topic: str) -> Topic:
        """The topic. It is read from the directory until an entry exists; a topic that was never used is fine too."""
        found = self._known.get((namespace, topic))
        return found if found is not None and found.listed else await self.load(namespace, topic)

    def everywhere(self, namespace: str) -> Topic:
        """Stands for all topics of a namespace with `namespace_ids`, for callers that know only ids. Not a real
        topic."""
        if not self.has_namespace_ids(namespace):
            raise InvalidField("ids of this namespace are unique only within a topic: name the topic", "topic")
        return Topic(namespace, "", True, self._metrics, self._checks.limits.max_body_bytes, label=BY_ID)

    def has_namespace_ids(self, namespace: str) -> bool:
        return namespace in self._namespace_ids

    async def load(self, namespace: str, topic: str) -> Topic:
        """Read the config again. Concurrent calls for one topic share one read."""
        self._checks.topic_name(namespace, topic)
        key = (namespace, topic)
        task = self._loading.get(key)
        if task is None:
            task = self._loading[key] = asyncio.create_task(self._load(key))
            task.add_done_callback(lambda done: self._loaded(key, done))
        return await asyncio.shield(task)

    async def _load(self, key: tuple[str, str]) -> Topic:
        self.reads += 1
        number = self.reads
        topic = self.apply(key, await self._store.directory.topic(*key))
        topic.read_at_s = self._time_s()
        topic.read_number = number
        return topic

    def _loaded(self, key: tuple[str, str], task: asyncio.Task[Topic]) -> None:
        self._loading.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieve it; callers that still wait get it from the task

    def apply(self, key: tuple[str, str], entry: TopicEntry | None) -> Topic:
        """Apply a directory entry, unless the cached one is newer."""
        topic = self._known.get(key)
        server_bytes = self._checks.limits.max_body_bytes
        if topic is None:
            topic = Topic(*key, self.has_namespace_ids(key[0]), self._metrics, server_bytes)
            if len(self._known) >= MAX_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[key] = topic
        topic.listed = entry is not None
        if entry is None:
            self._metrics.drop(*key)
        elif entry.version > topic.version or (entry.version < topic.version and entry.seen_ms > topic.seen_ms):
            partitions = topic.partitions
            topic.apply(unpack_config(entry.config), entry.version, server_bytes)
            if topic.partitions != partitions and self.moved is not None:
                self.moved(topic, partitions)
        topic.seen_ms = max(topic.seen_ms, 0 if entry is None else entry.seen_ms)
        return topic

    def is_fresh(self, topic: Topic) -> bool:
        """Whether the config was read a moment ago."""
        return self._time_s() - topic.read_at_s < MOMENT_S

    async def renewed(self, topic: Topic, used: PartitionMap, reads: int) -> bool:
        """Read the config again, unless a read began since there were so many `reads`. Returns whether the topic now
        has another map than the one used: it was expanded, or deleted and created again."""
        if topic.name and topic.map == used:
            await self.reread(topic, reads)
        return topic.map != used

    async def reread(self, topic: Topic, reads: int | None = None) -> None:
        """Read the config again, by a read that begins after there were so many; None: after this call."""
        reads = self.reads if reads is None else reads
        while topic.read_number <= reads:
            topic = await self.load(topic.namespace, topic.name)  # may join a read that began earlier

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
