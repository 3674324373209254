"""Reading and changing push targets. A target is part of its topic's config and changes with it (engine.control)."""

from __future__ import annotations

from msgspec.structs import replace

from .checks import Checks, within
from .control import TopicControl
from .directory import DIRECTORY_PAGE
from .errors import NotFound
from .push_checks import check_spread, check_target
from .push_target import PushTarget, PushTopic
from .store import Store
from .topics import TopicConfig, unpack_config

PAGES = 20  # directory calls for one page of targets


class PushControl:
    """Reads and changes targets."""

    def __init__(self, store: Store, control: TopicControl, checks: Checks) -> None:
        self._store = store
        self._control = control
        self._checks = checks

    async def set(self, namespace: str, topic: str, target: PushTarget) -> tuple[PushTarget, bool]:
        """Replace the target. Returns the new target and whether the topic had none before."""
        check_target(target, self._checks)
        self._checks.topic_name(namespace, topic)
        shared = await self._control.shared(namespace)
        before: list[PushTarget | None] = [await self._find(namespace, topic)]
        if before[0] is not None and before[0].address != target.address:
            # Before the change, because a dispatcher that gets the new target reads its log at once.
            await self._store.pushes.reset(namespace, topic)

        def change(config: TopicConfig, is_new: bool) -> TopicConfig:
            check_spread(target, len((shared or config).map.numbers))
            before[:] = [config.push]
            return replace(config, push=target)

        await self._control.change(namespace, topic, change)
        return target, before[0] is None

    async def get(self, namespace: str, topic: str) -> PushTarget:
        self._checks.topic_name(namespace, topic)
        target = await self._find(namespace, topic)
        if target is None:
            raise NotFound(f'the topic "{topic}" has no push target')
        return target

    async def _find(self, namespace: str, topic: str) -> PushTarget | None:
        entry = await self._store.directory.topic(namespace, topic)
        return None if entry is None else unpack_config(entry.config).push

    async def remove(self, namespace: str, topic: str) -> None:
        """Remove the target. Jobs stay and can be pulled; calls in flight finish normally."""
        await self.get(namespace, topic)
        await self._control.change(namespace, topic, lambda config, is_new: replace(config, push=None))
        await self._store.pushes.reset(namespace, topic)

    async def pause(self, namespace: str, topic: str, paused: bool) -> PushTarget:
        """Stop or resume calls to the target. Idempotent."""
        found = await self.get(namespace, topic)
        if found.paused == paused:
            return found

        def change(config: TopicConfig, is_new: bool) -> TopicConfig:
            if config.push is None:
                raise NotFound(f'the topic "{topic}" has no push target')
            return replace(config, push=replace(config.push, paused=paused))

        await self._control.change(namespace, topic, change)
        return replace(found, paused=paused)

    async def page(self, namespace: str | None, after: str, limit: int) -> tuple[list[PushTopic], str | None]:
        """Topics that have a target, by name. A short page may still have a cursor, because the number of directory
        calls is bounded."""
        within(limit, 1, 500, "limit")
        found: list[PushTopic] = []
        for _ in range(PAGES):
            entries = await self._store.directory.topics(namespace, after, DIRECTORY_PAGE)
            for entry in entries:
                after = entry.topic if namespace is not None else f"{entry.namespace}\0{entry.topic}"
                target = unpack_config(entry.config).push if entry.config else None
                if target is not None:
                    found.append(PushTopic(entry.namespace, entry.topic, entry.version, target))
                    if len(found) == limit:
                        return found, after
            if len(entries) < DIRECTORY_PAGE:
                return found, None
        return found, after
