"""Reading and changing push targets. A target is part of its topic's config and changes with it (engine.control).

A dispatcher must learn of targets that other processes set. Each change of a target also increments a mark: the version
of a directory entry. One command reads the mark, and only if it has changed are all topics listed again
(`Engine.push_mark`, `Engine.pushing`). The config is written before the mark, so a reader of the new mark sees the new
target.

The mark has a partition, as any topic has. An announcement is a job that is sent there and cancelled at once: the store
wakes every process that waits on the partition. It only makes them read the mark sooner; they also do so regularly.
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
    """The dispatcher, as the engine sees it. Called inside the event loop; must not block."""

    def changed(self, namespace: str, topic: str, version: int, target: PushTarget | None) -> None:
        """This process changed a target, and all partitions have the change. `version` is the config's; target None:
        removed."""

    def marked(self, mark: int) -> None:
        """This process's change has set the mark to this value."""

    def rang(self) -> None:
        """Some process changed a target; read the mark."""


class PushControl:
    """Reads and changes targets. Reports to `news` each change by this process, once all partitions have it, and each
    announcement of a change by another process."""

    def __init__(self, store: Store, control: TopicControl, checks: Checks) -> None:
        self.news: PushNews | None = None
        self._store = store
        self._control = control
        self._checks = checks

    async def set(self, namespace: str, topic: str, target: PushTarget) -> tuple[PushTarget, bool]:
        """Replace the target. Returns the new target and whether the topic had none before."""
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
            await self._store.pushes.reset(namespace, topic)  # a different address: the old log does not apply
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
        """Remove the target. Jobs stay and can be pulled; calls in flight finish normally."""
        await self.get(namespace, topic)
        changed, _ = await self._control.change(namespace, topic, lambda config, is_new: replace(config, push=None))
        await self.dropped(namespace, topic, changed.version)

    async def dropped(self, namespace: str, topic: str, version: int) -> None:
        """A topic has lost its target with this version of its config; it must not be called any more."""
        await self._store.pushes.reset(namespace, topic)
        await self._tell(namespace, topic, version, None)

    async def pause(self, namespace: str, topic: str, paused: bool) -> PushTarget:
        """Stop or resume calls to the target. Idempotent."""
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
        """Topics that have a target, by name. A short page may still have a cursor, because the number of directory
        calls is bounded."""
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
            pass  # the other processes read the mark a little later anyway

    def woken(self, partition: Partition) -> None:
        """The store woke a partition."""
        if self.news is not None and (partition.namespace, partition.topic) == MARK:
            self.news.rang()
