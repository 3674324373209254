"""Reading and changing topics.

A change is written to the topic's config first and then to every partition; the call returns when all partitions have
it. If the process dies in between, the next process that reads the topic sees that a partition differs and completes
the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from msgspec.structs import replace

from .checks import Checks, within
from .commands import ExpansionView, TopicPatch, TopicView
from .directory import DIRECTORY_PAGE, TopicEntry, config_key, namespace_of
from .errors import Conflict, NotFound, VersionMismatch
from .fence_copies import copy_fences
from .limits import INTERNAL_NAMESPACE, LAST_MS
from .on_dead import check_on_dead
from .partition_map import PartitionMap
from .policy import with_worker
from .push_checks import check_spread
from .push_target import limits_of
from .recorder import Recorder
from .store import Control, Stats, Store
from .topic_changes import TopicChanges
from .topics import Topic, TopicConfig, Topics, pack_config, unpack_config
from .waiters import Waiters

TRIES = 10
VIEWS_AT_ONCE = 50


class TopicControl:
    """Reads and changes of whole topics."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        changes: TopicChanges,
        waiters: Waiters,
        checks: Checks,
        recorder: Recorder,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._topics = topics
        self._changes = changes
        self._waiters = waiters
        self._checks = checks
        self.advance: Callable[[Topic], Awaitable[ExpansionView | None]] | None = None  # of engine.expansion

    async def set(self, namespace: str, name: str, patch: TopicPatch) -> tuple[TopicView, bool]:
        """Replace the policy, or merge a worker's into it. Returns the view and whether the topic is new.
        Raises VersionMismatch if the config does not have the version given in the patch."""
        self._checks.topic_patch(patch)
        self._checks.topic_name(namespace, name)
        check_on_dead(name, patch.policy)
        partitions = patch.partitions
        if partitions is not None and self._topics.has_namespace_ids(namespace):
            await self._expand_namespace(namespace, partitions)
            partitions = None
        elif partitions is not None:
            await self._advanced(await self._topics.load(namespace, name))  # an expansion may be over by now

        def change(config: TopicConfig, is_new: bool) -> TopicConfig:
            map = config.map if partitions is None else config.map.expanded(partitions)
            if map != config.map and config.push is not None:
                check_spread(config.push, len(map.numbers))
            policy = with_worker(config.policy, patch.policy) if patch.of_worker else patch.policy
            wanted = replace(config, policy=policy, map=map)
            return config if patch.of_worker and wanted == config else wanted

        topic, is_new = await self.change(namespace, name, change, patch.version)
        return await self._view(topic), is_new

    async def _advanced(self, topic: Topic) -> ExpansionView | None:
        """How far the topic's expansion is, if there is one. Ends it if the old partitions are empty."""
        return await self.advance(self._topics.map_owner(topic)) if topic.old and self.advance is not None else None

    async def _expand_namespace(self, namespace: str, partitions: int) -> None:
        """Add partitions to all topics of a namespace that share them."""
        shared = await self._topics.load_shared(namespace)
        await self._advanced(shared)
        count = len(shared.map.expanded(partitions).numbers)
        async for entry in self._entries(namespace):
            push = unpack_config(entry.config).push
            if push is not None:
                check_spread(push, count, entry.topic)

        def change(config: TopicConfig, is_new: bool) -> TopicConfig:
            map = config.map.expanded(partitions)
            return config if map == config.map else replace(config, map=map)

        if shared.version or partitions > 1:
            await self.change(namespace, "", change)

    async def shared(self, namespace: str) -> Topic | None:
        """The topic "" of a namespace whose topics share their partitions."""
        is_shared = self._topics.has_namespace_ids(namespace)
        return await self._topics.everywhere(namespace) if is_shared else None

    async def _entries(self, namespace: str) -> AsyncIterator[TopicEntry]:
        """The directory entries of all topics of a namespace, page by page."""
        after: str | None = ""
        while after is not None:
            page = await self._store.directory.topics(namespace, after, DIRECTORY_PAGE)
            for entry in page:
                yield entry
            after = page[-1].topic if len(page) == DIRECTORY_PAGE else None

    async def pause(self, namespace: str, name: str, until_ms: int | None) -> None:
        """Deliver nothing until that time, or until resumed. Sends are accepted and leases stay valid."""
        self._checks.topic_name(namespace, name)
        if until_ms is not None:
            within(until_ms, 1, LAST_MS, "until_ms")
        wanted_ms = LAST_MS if until_ms is None else until_ms
        await self.change(namespace, name, lambda config, is_new: replace(config, paused_until_ms=wanted_ms))

    async def resume(self, namespace: str, name: str) -> None:
        self._checks.topic_name(namespace, name)
        entry = await self._store.directory.topic(namespace, name)
        if entry is None:
            raise NotFound(f'there is no topic "{name}"')
        if unpack_config(entry.config).paused_until_ms:
            await self.change(namespace, name, lambda config, is_new: replace(config, paused_until_ms=0))

    async def change(
        self,
        namespace: str,
        name: str,
        change: Callable[[TopicConfig, bool], TopicConfig],
        expected_version: int | None = None,
    ) -> tuple[Topic, bool]:
        """Write the config that `change` returns, and pass it to every partition. `change` receives the old config and
        whether the topic is new.
        If it returns the same object nothing is written, but the partitions are still updated, because an earlier
        writer may have died before it reached them."""
        key = config_key(namespace, name)
        for _ in range(TRIES):
            entry = await self._store.directory.topic(*key)
            version = 0 if entry is None else entry.version
            if expected_version not in (None, version):
                raise VersionMismatch("the topic was changed since this version was read", "version")
            config = TopicConfig() if entry is None else unpack_config(entry.config)
            wanted = change(config, entry is None)
            if wanted is config and entry is not None:
                written = entry
            else:
                written = await self._store.directory.set_config(*key, pack_config(wanted), version)
                if written is not None and self._recorder.records:
                    self._recorder.topic(namespace, name, "created" if entry is None else _changed(config, wanted))
            if written is not None:
                # Shielded from cancellation: otherwise only half of a topic's partitions might be paused.
                return await asyncio.shield(asyncio.create_task(self._spread(written))), entry is None
        raise Conflict("other processes keep changing this topic; nothing was done")

    async def _spread(self, entry: TopicEntry) -> Topic:
        """Pass the config to every partition, then read it again and repeat if it has changed. A concurrent writer may
        have updated the partitions first, so the last one to update them must have checked the config afterwards.
        Then tell the users of the config in this process."""
        if namespace_of((entry.namespace, entry.topic)) is not None:
            return await self._close(entry)
        while True:
            topic = await self._adopt(entry)
            if not entry.version:
                return topic  # without a config there is nothing to pass to partitions
            config = unpack_config(entry.config)
            map = topic.map if topic.namespace_ids else config.map
            controls = list(zip(topic.numbered(map.numbers), _controls(config, map, entry.version, topic), strict=True))
            # The old partitions first, so that no more jobs are in flight than the topic's limit allows.
            old, current = controls[: map.old], controls[map.old :]
            await asyncio.gather(*(self._store.control(*one) for one in old))
            await copy_fences(self._store, [one for one, _ in old], [one for one, _ in current])
            await asyncio.gather(*(self._store.control(*one) for one in current))
            newest = await self._store.directory.topic(entry.namespace, entry.topic)
            if topic.namespace_ids and await self._topics.renewed(topic, map, self._topics.reads):
                continue
            if newest is None or newest.version <= entry.version:
                self._changes.tell((entry.namespace, entry.topic), entry.version, None if newest is None else config)
                return topic
            entry = newest

    async def _close(self, entry: TopicEntry) -> Topic:
        """Close the old partitions of a namespace for all of its topics. Its current ones need no config."""
        key = (entry.namespace, entry.topic)
        while True:
            shared = self._topics.apply((namespace_of(key) or "", ""), entry)
            map, closed = unpack_config(entry.config).map, Control(policy_version=entry.version, closed=True)
            old = shared.numbered(range(map.first - map.old, map.first))
            await asyncio.gather(*(self._store.control(partition, closed) for partition in old))
            newest = await self._store.directory.topic(*key)
            if newest is None or newest.version <= entry.version:
                return shared
            entry = newest

    async def tell_partitions(self, namespace: str, name: str) -> Topic:
        """Pass the config to every partition, for callers that must be sure the partitions have it. Its writer may have
        died before it reached them all. Topic "": close the old partitions of the namespace."""
        entry = await self._store.directory.topic(*config_key(namespace, name))
        if entry is None:
            raise NotFound(f'there is no topic "{name}"')
        return await asyncio.shield(asyncio.create_task(self._spread(entry)))

    async def _adopt(self, entry: TopicEntry) -> Topic:
        await self._topics.prepare(entry.namespace)
        return self._topics.apply((entry.namespace, entry.topic), entry)

    async def topic(self, namespace: str, name: str, bands_ms: Sequence[int] = ()) -> TopicView:
        self._checks.topic_name(namespace, name)
        entry = await self._store.directory.topic(namespace, name)
        if entry is None:
            raise NotFound(f'there is no topic "{name}"')
        return await self._view(await self._adopt(entry), bands_ms)

    async def topics(
        self, namespace: str, after: str, limit: int, bands_ms: Sequence[int] = ()
    ) -> tuple[list[TopicView], str | None]:
        """One page by name; the cursor is the last name of the page."""
        within(limit, 1, 500, "limit")
        entries: list[TopicEntry] = []
        while len(entries) < limit:
            asked = min(limit - len(entries), DIRECTORY_PAGE)
            some = await self._store.directory.topics(namespace, entries[-1].topic if entries else after, asked)
            entries += some
            if len(some) < asked:
                break
        views: list[TopicView] = []
        for start in range(0, len(entries), VIEWS_AT_ONCE):
            shown = [await self._adopt(entry) for entry in entries[start : start + VIEWS_AT_ONCE]]
            views += await asyncio.gather(*(self._view(topic, bands_ms) for topic in shown))
        return views, entries[-1].topic if len(entries) == limit else None

    async def namespaces(self, after: str, limit: int) -> tuple[list[str], str | None]:
        """One page by name, with one directory read per namespace. Omits the server's internal namespace."""
        within(limit, 1, 500, "limit")
        found: list[str] = []
        while len(found) < limit:
            # Directory names are namespace + NUL + topic, so namespace + \1 sorts after all topics of a namespace.
            entries = await self._store.directory.topics(None, f"{after}\1" if after else "", 1)
            if not entries:
                return found, None
            after = entries[0].namespace
            if after != INTERNAL_NAMESPACE:
                found.append(after)
        return found, after

    async def _view(self, topic: Topic, bands_ms: Sequence[int] = ()) -> TopicView:
        expansion = await self._advanced(topic)
        edges_ms = (0, *bands_ms) if bands_ms else ()
        stats = await asyncio.gather(*(self._store.stats(partition, edges_ms, True) for partition in topic.partitions))
        if any((one.paused_until_ms or 0) != _paused_ms(topic, one.now_ms) for one in stats):
            await self._complete(topic)
        waiters = self._waiters.count_on(topic.partitions)
        if not waiters and not self._waiters.counts_as_waiting(topic.partitions):
            waiters = int(any(one.waiting for one in stats))
        return view_of(topic, stats, waiters, expansion)

    async def _complete(self, topic: Topic) -> None:
        """A partition differs from the config. If the config is still this one, its writer died: finish the update."""
        entry = await self._store.directory.topic(topic.namespace, topic.name)
        if entry is not None and entry.version == topic.version > 0:
            await self._spread(entry)
        elif entry is not None:
            await self._adopt(entry)


def _changed(before: TopicConfig, after: TopicConfig) -> str:
    """What an event says about a change of a config."""
    if before.paused_until_ms != after.paused_until_ms:
        return "paused" if after.paused_until_ms else "resumed"
    return "policy" if before.push == after.push else "push"


def _controls(config: TopicConfig, map: PartitionMap, version: int, topic: Topic) -> list[Control]:
    """The settings for each partition."""
    return [
        Control(
            config.paused_until_ms,
            in_flight,
            rate_per_s,
            version,
            closed=None if topic.namespace_ids else place < map.old,
        )
        for place, (in_flight, rate_per_s) in enumerate(limits_of(config.push, len(map.numbers)))
    ]


def _paused_ms(topic: Topic, now_ms: int) -> int:
    until_ms = topic.config.paused_until_ms
    return until_ms if until_ms > now_ms else 0


def view_of(topic: Topic, stats: list[Stats], waiters: int, expansion: ExpansionView | None) -> TopicView:
    """The sum over the partitions. `waiters` counts those of this process; if it has none but another process does,
    the view shows 1."""
    nexts = [one.next_due_at_ms for one in stats if one.next_due_at_ms is not None]
    oldest = [one.oldest_ready_at_ms for one in stats if one.oldest_ready_at_ms is not None]
    reasons: dict[str, int] = {}
    for one in stats:
        for reason, count in one.dead_by_reason.items():
            reasons[reason] = reasons.get(reason, 0) + count
    paused_until_ms = max((_paused_ms(topic, one.now_ms) for one in stats), default=0)
    return TopicView(
        topic=topic.name,
        scheduled=sum(one.scheduled for one in stats),
        ready=sum(one.ready for one in stats),
        leased=sum(one.leased for one in stats),
        done=sum(one.done for one in stats),
        dead=sum(one.dead for one in stats),
        cancelled=sum(one.cancelled for one in stats),
        next_due_at_ms=min(nexts, default=None),
        oldest_ready_at_ms=min(oldest, default=None),
        waiters=waiters,
        paused=paused_until_ms > 0,
        paused_until_ms=paused_until_ms if 0 < paused_until_ms < LAST_MS else None,
        partitions=topic.map.count,
        policy=topic.config.policy,
        version=topic.version,
        push=topic.config.push is not None,
        dead_by_reason=reasons,
        bands=tuple(map(sum, zip(*(one.bands for one in stats), strict=True))),
        expansion=expansion,
        history_dropped=sum(one.history_dropped for one in stats),
    )
