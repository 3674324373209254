"""The directory in memory: topics, their configs, and clean-up hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from ...engine.directory import CHANGES, DIRECTORY_PAGE, Hint, TopicChange, TopicEntry


class MemoryDirectory:
    """The directory as two dicts. Each hint (partition and time) is a key; its value is the time from which it may be
    taken. `changed` is called with each announcement."""

    def __init__(self, clock: Callable[[], int], changed: Callable[[TopicChange], None]) -> None:
        self._clock = clock
        self._changed = changed
        self._topics: dict[tuple[str, str], TopicEntry] = {}
        self._hints: dict[Hint, int] = {}
        self._last_removed = 0  # the highest version that a removed config had

    def knows(self, namespace: str, topic: str) -> bool:
        return (namespace, topic) in self._topics

    async def register(self, topics: Sequence[tuple[str, str]]) -> None:
        for name in topics:
            entry = self._topics.get(name) or TopicEntry(*name, seen_ms=0, version=0, config=b"")
            self._topics[name] = replace(entry, seen_ms=self._seen(entry))

    async def topic(self, namespace: str, topic: str) -> TopicEntry | None:
        return self._topics.get((namespace, topic))

    async def topics(self, namespace: str | None, after: str, limit: int) -> list[TopicEntry]:
        names = sorted(name for name in self._topics if namespace is None or name[0] == namespace)
        if namespace is None:
            names = [name for name in names if not after or f"{name[0]}\0{name[1]}" > after]
        else:
            names = [name for name in names if not after or name[1] > after]
        return [self._topics[name] for name in names[: min(limit, DIRECTORY_PAGE)]]

    async def set_config(
        self, namespace: str, topic: str, config: bytes, expected_version: int | None
    ) -> TopicEntry | None:
        entry = self._topics.get((namespace, topic)) or TopicEntry(namespace, topic, 0, 0, b"")
        if expected_version is not None and entry.version != expected_version:
            return None
        version = (entry.version or self._last_removed) + 1
        entry = replace(entry, seen_ms=self._seen(entry), version=version, config=config)
        self._topics[namespace, topic] = entry
        self._announce(namespace, topic, version)
        return entry

    def _announce(self, namespace: str, topic: str, version: int) -> None:
        counter = self._topics.get(CHANGES) or TopicEntry(*CHANGES, seen_ms=self._clock(), version=0, config=b"")
        self._topics[CHANGES] = counter = replace(counter, version=counter.version + 1)
        self._changed(TopicChange(counter.version, namespace, topic, version))

    def _seen(self, entry: TopicEntry) -> int:
        """Each registration is later than the previous one, even within one millisecond."""
        return max(self._clock(), entry.seen_ms + 1)

    async def remove(self, namespace: str, topic: str, seen_ms: int, version: int = 0) -> bool:
        entry = self._topics.get((namespace, topic))
        if entry is None or entry.seen_ms > seen_ms or entry.version != version:
            return False
        self._last_removed = max(self._last_removed, version)
        del self._topics[namespace, topic]
        self._announce(namespace, topic, 0)
        return True

    async def idle_topics(self, before_ms: int, limit: int) -> list[TopicEntry]:
        idle = [entry for entry in self._topics.values() if entry.seen_ms < before_ms and not entry.version]
        return sorted(idle, key=lambda entry: entry.seen_ms)[:limit]

    async def note(self, hints: Sequence[Hint]) -> None:
        for hint in hints:
            self._hints[hint] = hint.at_ms

    async def take(self, limit: int, hold_ms: int) -> tuple[list[Hint], int | None]:
        now_ms = self._clock()
        due = sorted((from_ms, index) for index, from_ms in enumerate(self._hints.values()) if from_ms <= now_ms)
        entries = list(self._hints)
        taken = [entries[index] for _, index in due[:limit]]
        for hint in taken:
            self._hints[hint] = now_ms + hold_ms
        return taken, min(self._hints.values(), default=None)

    async def finish(self, taken: Sequence[Hint]) -> None:
        for hint in taken:
            self._hints.pop(hint, None)
