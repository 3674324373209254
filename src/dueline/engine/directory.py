"""The store's directory: what belongs to no single partition. No I/O; part of the interface in `store`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from .job import Partition
from .limits import INTERNAL_NAMESPACE


class TopicEntry(msgspec.Struct, frozen=True):
    """A topic in the directory. `config` is opaque to the store (policy, partitions, pause); version 0 = no config."""

    namespace: str
    topic: str
    seen_ms: int
    version: int
    config: bytes


class TopicChange(msgspec.Struct, frozen=True):
    """The announcement that a config was written, or that a topic was removed (`version` 0). `number` counts the
    changes of all topics."""

    number: int
    namespace: str
    topic: str
    version: int


class Hint(msgspec.Struct, frozen=True):
    """A hint that a partition needs clean-up at a time."""

    partition: Partition
    at_ms: int


DIRECTORY_PAGE = 100  # topics per call
CHANGES = (INTERNAL_NAMESPACE, "push-targets")  # stored under the name of what it counted first (lua/directory.lua)
_SHARED = "ids:"


def config_key(namespace: str, topic: str) -> tuple[str, str]:
    """The entry that holds a config. Topic "": the partitions that all topics of a namespace with `namespace_ids`
    share."""
    return (namespace, topic) if topic else (INTERNAL_NAMESPACE, f"{_SHARED}{namespace}")


def namespace_of(key: tuple[str, str]) -> str | None:
    """The namespace whose shared partitions this entry describes. None: the entry describes a topic."""
    is_shared = key[0] == INTERNAL_NAMESPACE and key[1].startswith(_SHARED)
    return key[1].removeprefix(_SHARED) if is_shared else None


class Directory(Protocol):
    """Data that belongs to no single partition: topics, configs and clean-up hints. Each method is one atomic call.
    Each write of a config and each removal increases the version of the entry CHANGES, and is announced
    (Events.topic_changed)."""

    async def register(self, topics: Sequence[tuple[str, str]]) -> None:
        """Add topics to the directory. Each registration and each config write increases the topic's `seen_ms`."""
        ...

    async def topic(self, namespace: str, topic: str) -> TopicEntry | None: ...
    async def topics(self, namespace: str | None, after: str, limit: int) -> list[TopicEntry]:
        """Topics by name, after `after`; at most DIRECTORY_PAGE per call."""
        ...

    async def set_config(
        self, namespace: str, topic: str, config: bytes, expected_version: int | None
    ) -> TopicEntry | None:
        """Write a topic's config under a new version, which no config of this name ever had, not even before the topic
        was removed. None: the current version is not the expected one."""
        ...

    async def remove(self, namespace: str, topic: str, seen_ms: int, version: int = 0) -> bool:
        """Remove a topic, unless it was registered after `seen_ms` or its config has another version (0: none)."""
        ...

    async def idle_topics(self, before_ms: int, limit: int) -> list[TopicEntry]: ...
    async def note(self, hints: Sequence[Hint]) -> None: ...
    async def take(self, limit: int, hold_ms: int) -> tuple[list[Hint], int | None]:
        """Due hints, and the time of the next one. Each taken hint is postponed by hold_ms so that no other process
        takes it."""
        ...

    async def finish(self, taken: Sequence[Hint]) -> None:
        """Remove hints whose work is done (a later hint for the same partition is a separate entry)."""
        ...
