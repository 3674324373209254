"""Calls by id alone, for namespaces with `namespace_ids`: finds the topic of each id first.

A consumer mostly names a job that it has just pulled through this process. So the topics of the latest pulled jobs are
remembered. If such a job has moved to another topic since, the call says so (ELSEWHERE), and the topic is looked up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from ...engine.errors import Unavailable
from ...engine.job import LeasedJob, Partition
from ...engine.store import Code, Outcome
from . import codec
from .calls import Calls

Item = TypeVar("Item")

MOVES = 8  # how often a job may move to another topic during one call
MOST_PULLED = 10_000
MOVED = "the job keeps moving between topics; nothing was done"


class IdLookup:
    """Looks up the topic of an id in the partition that holds the id."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._pulled: dict[tuple[str, str], str] = {}  # namespace and id: the topic

    def pulled(self, partition: Partition, jobs: Sequence[LeasedJob]) -> None:
        """Remember the topics of pulled jobs."""
        pulled = self._pulled
        for job in jobs:
            if len(pulled) >= MOST_PULLED:
                del pulled[next(iter(pulled))]
            pulled[partition.namespace, job.id] = job.topic

    def pulled_from(self, partition: Partition, id: str) -> str | None:
        """The topic that a job was pulled from, once. None: it is not known."""
        return self._pulled.pop((partition.namespace, id), None)

    async def topics_of(self, partition: Partition, ids: Sequence[str]) -> list[str | None]:
        """The topic of each id; None if there is no such job."""
        packed = [codec.pack_id(id) for id in ids]
        numbers = codec.pack_numbers([0, *map(len, packed)])
        _, n, blob = await self._calls.look("read", replace(partition, topic=""), numbers, b"".join(packed))
        return codec.decode_topics(n, blob)

    async def run(
        self,
        partition: Partition,
        items: Sequence[Item],
        id_of: Callable[[Item], str],
        run: Callable[[Partition, list[Item]], Awaitable[list[Outcome]]],
    ) -> list[Outcome]:
        """Run an operation on items of which only the ids are known. A job that moves to another topic during the call
        is looked up again."""
        results = [Outcome(Code.NOT_FOUND)] * len(items)
        places = list(range(len(items)))
        for _ in range(MOVES):
            topics = await self.topics_of(partition, [id_of(items[place]) for place in places])
            by_topic: dict[str, list[int]] = {}
            for place, topic in zip(places, topics, strict=True):
                if topic is not None:
                    by_topic.setdefault(topic, []).append(place)
                else:
                    results[place] = Outcome(Code.NOT_FOUND)
            places = []
            for topic, some in by_topic.items():
                done = await run(replace(partition, topic=topic), [items[place] for place in some])
                for place, one in zip(some, done, strict=True):
                    results[place] = one
                    if one.code is Code.ELSEWHERE:
                        places.append(place)
            if not places:
                return results
        raise Unavailable(MOVED)
