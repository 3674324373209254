"""Registers topics in the directory when they are used, and removes unused ones.

A topic is registered before this process's first send to it and again after 10 minutes of use. An entry older than the
idle time therefore belongs to a topic that nobody sends to. Such a topic is removed if its partition is empty. If a
send arrives during the removal, the store reports that the partition is not listed (`events.unlisted`), and the topic
is registered again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .directory import TopicEntry
from .store import Store
from .topics import Topic, Topics

USE_S = 600.0
IDLE_MS = 30 * 60_000
PAGE = 100
MAX_PER_ROUND = 1000


class Registrar:
    """`time_s` is the loop's clock. `idle_ms` is how long a topic may be unused before it is removed."""

    def __init__(self, store: Store, topics: Topics, time_s: Callable[[], float], idle_ms: int = IDLE_MS) -> None:
        self._store = store
        self._topics = topics
        self._time_s = time_s
        self._idle_ms = idle_ms
        self._use_s = min(USE_S, idle_ms / 3000)
        self._wanted: dict[tuple[str, str], None] = {}
        self._call: asyncio.Task[None] | None = None

    async def listed(self, topic: Topic) -> None:
        """Return once the directory has this topic. Concurrent calls are batched."""
        started_s = self._time_s()
        self._wanted[(topic.namespace, topic.name)] = None
        while (topic.namespace, topic.name) in self._wanted:
            await asyncio.shield(self._flush())
        topic.registered_until_s = started_s + self._use_s
        topic.listed = True

    def unlisted(self, namespace: str, topic: str) -> None:
        """A partition changed whose topic is not in the directory; register it soon."""
        self._wanted[(namespace, topic)] = None
        self._flush().add_done_callback(_seen)

    def _flush(self) -> asyncio.Task[None]:
        if self._call is None or self._call.done():
            self._call = asyncio.create_task(self._register())
        return self._call

    async def _register(self) -> None:
        batch = list(self._wanted)[:PAGE]
        await self._store.directory.register(batch)
        for key in batch:
            self._wanted.pop(key, None)

    async def remove_idle(self) -> int:
        """Remove up to 1,000 unused, empty topics per round. Returns how many were removed.

        A topic that is still needed is registered again, so it is checked once per idle time and does not delay others.
        """
        before_ms = self._store.now_ms() - self._idle_ms
        removed = seen = 0
        while seen < MAX_PER_ROUND:
            entries = await self._store.directory.idle_topics(before_ms, PAGE)
            kept: list[tuple[str, str]] = []
            for entry in entries:
                if await self._remove(entry):
                    removed += 1
                else:
                    kept.append((entry.namespace, entry.topic))
            if kept:
                await self._store.directory.register(kept)
            seen += len(entries)
            if len(entries) < PAGE:
                break
        return removed

    async def _remove(self, entry: TopicEntry) -> bool:
        """True if the topic was removed. A topic with a config is never removed."""
        if entry.version:
            return False
        await self._topics.prepare(entry.namespace)
        partitions = self._topics.without_config(entry.namespace, entry.topic)
        if not all([await self._store.retire(partition) for partition in partitions]):
            return False
        if not await self._store.directory.remove(entry.namespace, entry.topic, entry.seen_ms):
            return True  # a sender has registered it since the entry was read
        self._topics.gone(entry.namespace, entry.topic)
        # A send may have arrived between the two calls. The store reports later ones as unlisted.
        return all([await self._store.retire(partition) for partition in partitions])

    async def stop(self) -> None:
        if self._call is not None:
            await asyncio.wait([self._call])


def _seen(task: asyncio.Task[None]) -> None:
    """Retrieve the exception and ignore it: the store reports `unlisted` again at the partition's next change."""
    if not task.cancelled():
        task.exception()
