"""Adds partitions to a topic in use. Jobs never move.

An expansion writes a map with new partitions to the topic's config, then closes the old partitions and opens the new
ones (engine.control). A closed partition serves the jobs that it holds, and says MOVED to every send with another id.

    send with an id     ask the old partition; if it says MOVED, send to the new one
    send without one    to the new one: the id was made for it, so nobody else has used it
    merging send        as with an id, by its key: an open group at the old partition goes on until it closes
    call by id          ask the new partition; if it does not have the job, ask the old one
    pull, list, counts  all of them

So an id is stored in a new partition only after its old partition was closed and did not hold it. A process that still
has the earlier map sends to a closed partition, which refuses (StalePolicy), because it has a newer version of the
config.

This module finds out what the old partitions still hold: which cells of ids have jobs there. They take no new ids, so
a cell that was empty stays empty, and a process no longer asks an old partition for the ids of such a cell. When all
old partitions are empty, a config without them ends the expansion. They stay closed.

With `namespace_ids` all of this is done once for the namespace: by its topic "" (engine.topics), whose old partitions
are closed for all topics.

Each process does this for the topics that it uses; it does not matter who is first. A process that dies in the middle
leaves a config with old partitions, and any other one goes on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec.structs import replace

from .commands import ExpansionView
from .errors import DuelineError, NotFound
from .ids import cell_of
from .limits import MAX_STORED_IDS
from .rounds import Rounds
from .store import Store
from .timer import Timer
from .topics import Topic, TopicConfig, Topics

IDLE_S = 86_400.0


class ConfigWriter(Protocol):
    """Writes the config of a topic (engine.control)."""

    def change(
        self, namespace: str, name: str, change: Callable[[TopicConfig, bool], TopicConfig]
    ) -> Awaitable[tuple[Topic, bool]]: ...

    def tell_partitions(self, namespace: str, name: str) -> Awaitable[Topic]: ...


class Expansions:
    """Follows the expansions of the topics that this process uses."""

    def __init__(self, store: Store, topics: Topics, writer: ConfigWriter, timer: Timer, round_s: float) -> None:
        self._store = store
        self._topics = topics
        self._writer = writer
        self._round_s = round_s
        self._started = False
        self._rounds = Rounds(self.run_once, timer, "following an expansion failed")

    def start(self) -> None:
        """Start the loop when the first expansion begins; without one there is no loop."""
        self._started = True

    def wake(self) -> None:
        """A topic has other partitions than before."""
        if self._started and self._topics.expanding():
            self._rounds.start()
        self._rounds.wake()

    async def stop(self) -> None:
        await self._rounds.stop()

    async def run_once(self) -> float:
        """Look at every expansion. Returns the seconds until the next look."""
        for topic in self._topics.expanding():
            try:
                await self.advance(topic)
            except DuelineError:
                pass  # the next round looks again; until then calls ask the old partitions
        return self._round_s if self._topics.expanding() else IDLE_S

    async def advance(self, topic: Topic) -> ExpansionView | None:
        """Read what the old partitions hold, and end the expansion if they are empty. Returns its progress; None: it
        has ended."""
        map = topic.map
        if not topic.left.closed:
            await self._writer.tell_partitions(topic.namespace, topic.name)
            if topic.map is not map:
                return await self.advance(topic) if topic.old else None
            topic.left.closed = True
        left: list[frozenset[int] | None] = []
        for partition in topic.old:
            ids = await self._store.stored_ids(partition, MAX_STORED_IDS)
            left.append(None if ids is None else frozenset(cell_of(id) for id in ids))
        if topic.map is not map:
            return None
        topic.left.cells = tuple(left)
        if any(cells is None or cells for cells in left):
            cells = sum(map.old_cells(place) if some is None else len(some) for place, some in enumerate(left))
            return ExpansionView(map.old, cells)
        await self._complete(topic)
        return None

    async def _complete(self, topic: Topic) -> None:
        map = topic.map

        def change(config: TopicConfig, is_new: bool) -> TopicConfig:
            if is_new:
                raise NotFound
            return replace(config, map=map.completed()) if config.map == map else config

        try:
            await self._writer.change(topic.namespace, topic.name, change)
        except NotFound:
            pass  # it was deleted in the meantime
