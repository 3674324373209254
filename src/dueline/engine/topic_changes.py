"""How a process learns that another one changed a topic: its policy, partitions, pause, push target, or its deletion.

    change --one directory call: write, count, announce--> every process reads the topic --> cache, then listeners

The announcement names the topic and the new version of its config. It can be lost with the connection that carries it.
Three numbers show that, and each is part of an answer that the process gets anyway or asks for rarely:

    the version that a partition has        a send with an older one is refused (StalePolicy); a pull returns it
    the number in each announcement         a gap: some were missed
    the same number in the directory        read every 30 s, and after a reconnect

After a gap the process reads the whole directory once. The config of a topic with a push target is also written to its
partitions before the listeners get it, because the process that set it may have died before it could do that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from .directory import CHANGES, DIRECTORY_PAGE, TopicChange, TopicEntry
from .errors import NotFound
from .rounds import Rounds
from .store import Store
from .timer import Timer
from .topics import Topic, TopicConfig, Topics, unpack_config

ROUND_S = 30.0
AT_ONCE = 16  # topics that are read concurrently
CALM = 10.0  # after a round, rest this many times as long as it took, however many announcements arrive

Key = tuple[str, str]


class TopicListener(Protocol):
    """Uses the configs of topics. Called inside the event loop; must not block."""

    def topic_changed(self, namespace: str, topic: str, version: int, config: TopicConfig | None) -> None:
        """This config is now in force. None: the topic has none, or was deleted. A config may be repeated."""


class TopicChanges:
    """Follows the changes of all topics from the first `follow` on. Changes of this process come through `tell`, before
    their call returns. `tell_partitions` writes a config to the topic's partitions and then calls `tell`."""

    def __init__(self, store: Store, topics: Topics, timer: Timer, round_s: float = ROUND_S) -> None:
        self.tell_partitions: Callable[[str, str], Awaitable[Topic]] | None = None
        self._store = store
        self._topics = topics
        self._timer = timer
        self._round_s = round_s
        self._listeners: list[TopicListener] = []
        self._announced: dict[Key, int] = {}  # topics to read, with the announced version
        self._versions: dict[Key, int] = {}  # of the configs that listeners have; older ones are ignored
        self._number = -1  # of the last change that is read or in `_announced`
        self._check_at_s = 0.0
        self._missed = False  # announcements were missed, so every topic is read
        self._watched = False
        self._rounds = Rounds(self.catch_up, timer, "reading changed topics failed", calm=CALM)

    def follow(self, listener: TopicListener) -> None:
        """Tell `listener` the config of every topic that has one, and then each change."""
        self._listeners.append(listener)
        self._missed = True
        self._rounds.start()
        self._rounds.wake()

    def unfollow(self, listener: TopicListener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def stop(self) -> None:
        await self._rounds.stop()

    def announced(self, change: TopicChange | None) -> None:
        """An announcement of the store. None: some may have been missed."""
        if change is None:
            self._check_at_s = 0.0
        else:
            self._missed |= change.number > self._number + 1
            self._number = max(self._number, change.number)
            self._announced[change.namespace, change.topic] = change.version
        self._rounds.wake()

    def tell(self, key: Key, version: int, config: TopicConfig | None) -> None:
        """Report a config to the listeners, once all partitions of the topic have it."""
        if version < self._versions.get(key, 0):
            return
        if config is None:
            self._versions.pop(key, None)
        else:
            self._versions[key] = version
        for listener in self._listeners:
            listener.topic_changed(*key, version, config)

    async def catch_up(self) -> float:
        """Read what has changed. Returns the seconds until the next check of the number."""
        if not self._watched:
            await self._store.watch_topics()
            self._watched = True
        if self._timer.time() >= self._check_at_s:
            await self._check()
        if self._missed:
            await self._read_all()
        while self._announced and not self._rounds.stopping:
            batch = dict(list(self._announced.items())[:AT_ONCE])
            await asyncio.gather(
                *(self._read(key) for key, version in batch.items() if not self._is_known(key, version))
            )
            for key, version in batch.items():
                if self._announced.get(key) == version:
                    del self._announced[key]
        return max(0.0, self._check_at_s - self._timer.time())

    async def _check(self) -> None:
        counter = await self._store.directory.topic(*CHANGES)
        number = 0 if counter is None else counter.version
        self._missed |= number != self._number
        self._number = number
        self._check_at_s = self._timer.time() + self._round_s

    async def _read_all(self) -> None:
        """Read every topic, and those again that this process uses but the directory did not list."""
        self._missed = False
        unseen = {*self._versions, *self._topics.listed()}
        after = ""
        try:
            while not self._rounds.stopping:
                entries = await self._store.directory.topics(None, after, DIRECTORY_PAGE)
                unseen.difference_update((entry.namespace, entry.topic) for entry in entries)
                some = [entry for entry in entries if entry.config or (entry.namespace, entry.topic) in self._versions]
                for start in range(0, len(some), AT_ONCE):
                    batch = some[start : start + AT_ONCE]
                    await asyncio.gather(*(self._apply((one.namespace, one.topic), one) for one in batch))
                if len(entries) < DIRECTORY_PAGE:
                    break
                after = f"{entries[-1].namespace}\0{entries[-1].topic}"
        except BaseException:
            self._missed = True
            raise
        self._announced.update(dict.fromkeys(unseen, 0))

    def _is_known(self, key: Key, version: int) -> bool:
        """Whether this is a change of our own, or one that was read already."""
        return 0 < version <= self._versions.get(key, 0)

    async def _read(self, key: Key) -> None:
        await self._apply(key, await self._store.directory.topic(*key))

    async def _apply(self, key: Key, entry: TopicEntry | None) -> None:
        if not self._topics.changed(key, entry):
            return
        known = self._versions.get(key, 0)
        if entry is None or not entry.version:
            self.tell(key, known, None)
            return
        config = unpack_config(entry.config)
        if config.push is None or entry.version <= known or self.tell_partitions is None:
            self.tell(key, entry.version, config)
            return
        try:
            await self.tell_partitions(*key)
        except NotFound:
            self.tell(key, known, None)  # it was deleted in the meantime
