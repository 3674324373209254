"""Deletes a topic with its policy, pause, push target and ended jobs. Refused while it holds a live or a dead job.

Other processes may send to the topic at the same time, and this process may die at any step. No job may end up in an
unlisted partition. First each partition drops the topic, in one call that is refused while the partition holds a job.
Then the topic is removed from the directory, unless it was registered again after it was read.

A send with the old config that arrives in between is refused by the partition (StalePolicy 0). Its sender registers the
topic and reads the config again (engine.sender). Either this registration comes before the removal, and the deletion
starts over, or the send creates a new topic. If this process dies before the removal, the same refusal makes the next
sender pass the config to the partitions again.
"""

from __future__ import annotations

import asyncio

from .bulk import BulkCalls
from .commands import Filter
from .control import TopicControl
from .directory import TopicEntry
from .errors import NotFound, TopicNotEmpty
from .job import State
from .recorder import Recorder
from .store import Store
from .topic_changes import TopicChanges
from .topics import Topic, Topics, unpack_config

TRIES = 10
FORGOTTEN = (State.DONE, State.CANCELLED)  # ended jobs, kept only for reads and to make repeated calls safe


class TopicDeletion:
    """Deletes topics."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        changes: TopicChanges,
        control: TopicControl,
        bulk: BulkCalls,
        recorder: Recorder,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._topics = topics
        self._changes = changes
        self._control = control
        self._bulk = bulk

    async def delete(self, namespace: str, name: str) -> None:
        """Raises NotFound and TopicNotEmpty."""
        # Shielded from cancellation: otherwise only half of the partitions might have dropped the topic.
        await asyncio.shield(asyncio.create_task(self._delete(namespace, name)))

    async def _delete(self, namespace: str, name: str) -> None:
        for _ in range(TRIES):
            view = await self._control.topic(namespace, name)
            counts = {state: getattr(view, state) for state in ("scheduled", "ready", "leased", "dead")}
            if any(counts.values()):
                raise TopicNotEmpty(f"the topic holds jobs ({_listing(counts)}): finish, cancel or purge them first")
            topic = await self._topics.load(namespace, name)
            for state in FORGOTTEN:
                await self._bulk.purge(topic, Filter(state=state), dry_run=False)
            await self._control.topic(namespace, name)  # ends an expansion whose old partitions are empty now
            entry = await self._store.directory.topic(namespace, name)
            if entry is None:
                raise NotFound(f'there is no topic "{name}"')
            topic = self._topics.apply((namespace, name), entry)
            if (not topic.old or topic.namespace_ids) and await self._remove(entry, topic):
                if unpack_config(entry.config).push is not None:
                    await self._store.pushes.reset(namespace, name)
                self._changes.tell((namespace, name), entry.version, None)
                self._recorder.topic(namespace, name, "deleted")
                return
        raise TopicNotEmpty(
            "the topic is in use: a schedule sends to it or did so in the last 30 days, or it holds broken jobs; "
            "`dueline fsck` lists those"
        )

    async def _remove(self, entry: TopicEntry, topic: Topic) -> bool:
        """Remove the topic. Returns False if it was used in the meantime; its partitions then get their config back.

        Partition 0 of an expanded topic holds no jobs. It stays closed until the topic is removed: if it were open, a
        process that knows no config of the topic could store a job there, and nobody would pull it."""
        partitions = topic.numbered(topic.map.ever)
        for partition in partitions[1 if topic.map.first else 0 :]:
            if not await self._store.retire(partition, True):
                return await self._kept(entry)
        directory, key = self._store.directory, (entry.namespace, entry.topic)
        removed = await directory.remove(*key, entry.seen_ms, entry.version)
        if not removed and await directory.topic(*key) is not None:  # None: a call removed it, its answer was lost
            return await self._kept(entry)
        self._topics.gone(*key)
        if not all([await self._store.retire(partition, True) for partition in partitions]):
            # The first send to a new topic of this name. Its sender registers it too, unless that process has died.
            await directory.register([key])
        return True

    async def _kept(self, entry: TopicEntry) -> bool:
        try:
            await self._control.tell_partitions(entry.namespace, entry.topic)
        except NotFound:
            pass  # another process has deleted it
        return False


def _listing(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in counts.items() if number)
