"""Setting and showing topics (STORE 46).

What is wanted is written to the topic's config first and then to every partition; a call answers when all partitions
have it. If its process dies in between, whoever looks at the topic next sees that a partition differs, and completes
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from .checks import Checks, within
from .commands import TopicPatch, TopicView
from .errors import Conflict, InvalidField, NotFound, VersionMismatch
from .limits import INTERNAL_NAMESPACE, LAST_MS
from .on_dead import check_on_dead
from .policy import OnDead, with_worker
from .push_target import limits_of
from .store import DIRECTORY_PAGE, Control, Stats, Store, TopicEntry
from .topics import Topic, TopicConfig, Topics, pack_config, unpack_config
from .waiters import Waiters

TRIES = 10
VIEWS_AT_ONCE = 50


class TopicControl:
    """Reads and changes of whole topics."""

    def __init__(self, store: Store, topics: Topics, waiters: Waiters, checks: Checks) -> None:
        self.rerouted: Callable[[str, str], Awaitable[None]] | None = None  # told of topics with another on_dead
        self._store = store
        self._topics = topics
        self._waiters = waiters
        self._checks = checks

    async def set(self, namespace: str, name: str, patch: TopicPatch) -> tuple[TopicView, bool]:
        """Put a policy in the place of the old one, or merge a worker's into it; the view and whether it is new.
        Raises VersionMismatch when the config is not the one that the patch names."""
        self._checks.topic_patch(patch)
        self._checks.topic_name(namespace, name)
        check_on_dead(name, patch.policy)
        before: list[OnDead | None] = []
        if patch.partitions not in (None, 1) and self._topics.has_namespace_ids(namespace):
            raise InvalidField("the partitions of this namespace belong to all its topics", "partitions")

        def change(config: TopicConfig, is_new: bool) -> TopicConfig:
            before[:] = [config.policy.on_dead]
            partitions = config.partitions if patch.partitions is None else patch.partitions
            if partitions != config.partitions and not is_new:
                raise InvalidField(
                    f"the topic has {config.partitions}; this can only be set for a new one", "partitions"
                )
            policy = with_worker(config.policy, patch.policy) if patch.of_worker else patch.policy
            wanted = replace(config, policy=policy, partitions=partitions)
            return config if patch.of_worker and wanted == config else wanted

        topic, is_new = await self.change(namespace, name, change, patch.version)
        if before[0] != topic.config.policy.on_dead and self.rerouted is not None:
            await self.rerouted(namespace, name)
        return await self._view(topic), is_new

    async def pause(self, namespace: str, name: str, until_ms: int | None) -> None:
        """Let nothing out until that time, or until resumed. Sends are taken, leases go on."""
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
        """Write what `change` makes of the config (told also whether the topic is new), and tell every partition.
        Where it gives back the same object nothing is written, but the partitions are told: an earlier writer may have
        died."""
        for _ in range(TRIES):
            entry = await self._store.directory.topic(namespace, name)
            version = 0 if entry is None else entry.version
            if expected_version not in (None, version):
                raise VersionMismatch("the topic was changed since this version was read", "version")
            config = TopicConfig() if entry is None else unpack_config(entry.config)
            wanted = change(config, entry is None)
            if wanted is config and entry is not None:
                written = entry
            else:
                written = await self._store.directory.set_config(namespace, name, pack_config(wanted), version)
            if written is not None:
                # Not cut short when the caller goes away: half a topic would be paused.
                return await asyncio.shield(asyncio.create_task(self._spread(written))), entry is None
        raise Conflict("others keep changing this topic at the same time")

    async def _spread(self, entry: TopicEntry) -> Topic:
        """Tell every partition what the config says; again if it was changed meanwhile by somebody who may have been
        faster. So whoever tells the partitions last has looked after it."""
        while True:
            topic = self._adopt(entry)
            if not entry.version:
                return topic  # it has no config: a partition of it knows nothing
            controls = _controls(unpack_config(entry.config), entry.version)
            await asyncio.gather(*map(self._store.control, topic.partitions, controls))
            newest = await self._store.directory.topic(entry.namespace, entry.topic)
            if newest is None or newest.version <= entry.version:
                return topic
            entry = newest

    async def tell_partitions(self, namespace: str, name: str) -> Topic:
        """Tell every partition what the config says, for a caller who must be sure that they know: whoever wrote it may
        have died before."""
        entry = await self._store.directory.topic(namespace, name)
        if entry is None:
            raise NotFound(f'there is no topic "{name}"')
        return await asyncio.shield(asyncio.create_task(self._spread(entry)))

    def _adopt(self, entry: TopicEntry) -> Topic:
        return self._topics.apply((entry.namespace, entry.topic), entry)

    async def topic(self, namespace: str, name: str, bands_ms: Sequence[int] = ()) -> TopicView:
        self._checks.topic_name(namespace, name)
        entry = await self._store.directory.topic(namespace, name)
        if entry is None:
            raise NotFound(f'there is no topic "{name}"')
        return await self._view(self._adopt(entry), bands_ms)

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
            shown = [self._adopt(entry) for entry in entries[start : start + VIEWS_AT_ONCE]]
            views += await asyncio.gather(*(self._view(topic, bands_ms) for topic in shown))
        return views, entries[-1].topic if len(entries) == limit else None

    async def namespaces(self, after: str, limit: int) -> tuple[list[str], str | None]:
        """One page by name, in one look at the directory for each; the server's own is left out."""
        within(limit, 1, 500, "limit")
        found: list[str] = []
        while len(found) < limit:
            # Names of topics stand behind their namespace and a NUL: \1 is behind all of them.
            entries = await self._store.directory.topics(None, f"{after}\1" if after else "", 1)
            if not entries:
                return found, None
            after = entries[0].namespace
            if after != INTERNAL_NAMESPACE:
                found.append(after)
        return found, after

    async def _view(self, topic: Topic, bands_ms: Sequence[int] = ()) -> TopicView:
        stats = await asyncio.gather(*(self._store.stats(partition, bands_ms) for partition in topic.partitions))
        if any((one.paused_until_ms or 0) != _paused_ms(topic, one.now_ms) for one in stats):
            await self._complete(topic)
        waiters = self._waiters.count_on(topic.partitions)
        if not waiters and not self._waiters.announced(topic.partitions):
            waiters = int(any(one.waiting for one in stats))
        return view_of(topic, stats, waiters)

    async def _complete(self, topic: Topic) -> None:
        """A partition differs from the config: if the config is really still this one, its writer was cut short."""
        entry = await self._store.directory.topic(topic.namespace, topic.name)
        if entry is not None and entry.version == topic.version > 0:
            await self._spread(entry)
        elif entry is not None:
            self._adopt(entry)


def _controls(config: TopicConfig, version: int) -> list[Control]:
    """What each partition is told."""
    return [
        Control(config.paused_until_ms, max_in_flight=in_flight, rate_per_s=rate_per_s, policy_version=version)
        for in_flight, rate_per_s in limits_of(config.push, config.partitions)
    ]


def _paused_ms(topic: Topic, now_ms: int) -> int:
    until_ms = topic.config.paused_until_ms
    return until_ms if until_ms > now_ms else 0


def view_of(topic: Topic, stats: list[Stats], waiters: int) -> TopicView:
    """The sum over the partitions. `waiters` are this process's; 1 stands for those of other processes when it has
    none."""
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
        partitions=len(topic.partitions),
        policy=topic.config.policy,
        version=topic.version,
        push=topic.config.push is not None,
        dead_by_reason=reasons,
        bands=tuple(map(sum, zip(*(one.bands for one in stats), strict=True))),
    )
