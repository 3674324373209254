"""Setting and showing push targets. A target is a part of its topic's config and changes as that does (engine.control).

Who pushes must hear of targets that others set. A change of any target also changes a mark: a directory entry of its
own whose version counts the changes. Looking at it is one command, and only when it moved the topics are paged through
(`Engine.push_mark`, `Engine.pushing`). The config is written before the mark: who sees the mark sees the target.

The mark has a partition, too, as any topic has. A job that is sent there and withdrawn at once is a bell: the store
wakes every process that waits on the partition. Nothing depends on it but how soon they look.
"""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from .checks import Checks, within
from .control import TopicControl
from .errors import DuelineError, NotFound
from .job import BodyKind, Partition
from .limits import INTERNAL_NAMESPACE
from .policy import JobPolicy
from .push_checks import check_spread, check_target
from .push_target import Pushing, PushTarget
from .store import DIRECTORY_PAGE, OnConflict, SendItem, Store
from .topics import TopicConfig, unpack_config

MARK = (INTERNAL_NAMESPACE, "push-targets")
PAGES = 20  # directory calls for one page of targets
BELL = SendItem("bell", b"", BodyKind.BYTES, 0, None, JobPolicy(), None, OnConflict.REPLACE, OnConflict.REPLACE, 0)


class PushNews(Protocol):
    """Who pushes, as far as the engine knows it. Called inside the event loop; must not wait."""

    def changed(self, namespace: str, topic: str, version: int, target: PushTarget | None) -> None:
        """This process changed a target, and all its partitions know. `version` is that of the config; None:
        removed."""

    def marked(self, mark: int) -> None:
        """That change has moved the mark here."""

    def rang(self) -> None:
        """Some process changed a target: look at the mark."""


class PushControl:
    """Reads and changes of targets. `news` is told of every change that this process makes, as soon as all partitions
    know it, and of those of others when their bell rings."""

    def __init__(self, store: Store, control: TopicControl, checks: Checks) -> None:
        self.news: PushNews | None = None
        self._store = store
        self._control = control
        self._checks = checks

    async def set(self, namespace: str, topic: str, target: PushTarget) -> tuple[PushTarget, bool]:
        """Put a target in the place of the old one; it, and whether the topic had none."""
        check_target(target, self._checks)
        self._checks.topic_name(namespace, topic)
        before: list[PushTarget | None] = []

        def change(config: TopicConfig, is_new: bool) -> TopicConfig:
            check_spread(target, config.partitions)
            before[:] = [config.push]
            return replace(config, push=target)

        changed, _ = await self._control.change(namespace, topic, change)
        old = before[0]
        if old is not None and (old.url, old.service, old.courier) != (target.url, target.service, target.courier):
            await self._store.pushes.reset(namespace, topic)  # another place: what the old one did says nothing
        await self._tell(namespace, topic, changed.version, target)
        return target, old is None

    async def get(self, namespace: str, topic: str) -> PushTarget:
        self._checks.topic_name(namespace, topic)
        entry = await self._store.directory.topic(namespace, topic)
        target = None if entry is None else unpack_config(entry.config).push
        if target is None:
            raise NotFound(f'the topic "{topic}" has no push target')
        return target

    async def remove(self, namespace: str, topic: str) -> None:
        """Jobs stay and can be pulled; calls that are under way end as they end."""
        await self.get(namespace, topic)
        changed, _ = await self._control.change(namespace, topic, lambda config, is_new: replace(config, push=None))
        await self.dropped(namespace, topic, changed.version)

    async def dropped(self, namespace: str, topic: str, version: int) -> None:
        """A topic has no target any more, by this version of its config: nobody may call it."""
        await self._store.pushes.reset(namespace, topic)
        await self._tell(namespace, topic, version, None)

    async def pause(self, namespace: str, topic: str, paused: bool) -> PushTarget:
        """Make no more calls, or go on. Idempotent."""
        found = await self.get(namespace, topic)
        if found.paused == paused:
            return found

        def change(config: TopicConfig, is_new: bool) -> TopicConfig:
            if config.push is None:
                raise NotFound(f'the topic "{topic}" has no push target')
            return replace(config, push=replace(config.push, paused=paused))

        changed, _ = await self._control.change(namespace, topic, change)
        await self._tell(namespace, topic, changed.version, changed.config.push)
        return replace(found, paused=paused)

    async def page(self, namespace: str | None, after: str, limit: int) -> tuple[list[Pushing], str | None]:
        """Topics that have a target, by name. A page may be short and still have a cursor: the calls are bounded."""
        within(limit, 1, 500, "limit")
        found: list[Pushing] = []
        for _ in range(PAGES):
            entries = await self._store.directory.topics(namespace, after, DIRECTORY_PAGE)
            for entry in entries:
                after = entry.topic if namespace is not None else f"{entry.namespace}\0{entry.topic}"
                target = unpack_config(entry.config).push if entry.config else None
                if target is not None:
                    found.append(Pushing(entry.namespace, entry.topic, entry.version, target))
                    if len(found) == limit:
                        return found, after
            if len(entries) < DIRECTORY_PAGE:
                return found, None
        return found, after

    async def mark(self) -> int:
        """A number that grows with every change of a target."""
        entry = await self._store.directory.topic(*MARK)
        return 0 if entry is None else entry.version

    async def _tell(self, namespace: str, topic: str, version: int, target: PushTarget | None) -> None:
        if self.news is not None:
            self.news.changed(namespace, topic, version, target)
        entry = await self._store.directory.set_config(*MARK, b"", None)
        if self.news is not None and entry is not None:
            self.news.marked(entry.version)
        try:
            await self._store.send(Partition(*MARK), (BELL,))
            await self._store.cancel(Partition(*MARK), (BELL.id,), forget=True)
        except DuelineError:
            pass  # they look by themselves, a little later

    def woken(self, partition: Partition) -> None:
        """The store woke a partition."""
        if self.news is not None and (partition.namespace, partition.topic) == MARK:
            self.news.rang()
