"""Runs one call with many jobs on the partitions that hold them: split, run, and put the results back in order.

Jobs of one partition run in order, one batch at a time; partitions run concurrently. A failed store call affects only
its own jobs; the other calls are still made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from .errors import DuelineError, UnknownOutcome
from .job import Partition
from .limits import BATCH_BYTES, BATCH_JOBS
from .store import Outcome
from .topics import Topic

I = TypeVar("I")  # noqa: E741


class Batch(msgspec.Struct, Generic[I]):
    """Items for one partition, and their positions in the whole call."""

    places: list[int]
    items: list[I]


def split(
    topic: Topic, items: Sequence[I], id_of: Callable[[I], str], bytes_of: Callable[[I], int] | None = None
) -> dict[Partition, list[Batch[I]]]:
    """Batches per partition, in the order of the call."""
    if len(topic.partitions) == 1 and (bytes_of is None or sum(map(bytes_of, items)) <= BATCH_BYTES):
        starts = range(0, len(items), BATCH_JOBS)
        batches = [(start, list(items[start : start + BATCH_JOBS])) for start in starts]
        return {topic.partitions[0]: [Batch(list(range(start, start + len(some))), some) for start, some in batches]}
    found: dict[Partition, list[Batch[I]]] = {}
    sizes: dict[Partition, int] = {}
    for place, item in enumerate(items):
        partition = topic.partition_of(id_of(item))
        batches = found.setdefault(partition, [])
        size = 0 if bytes_of is None else bytes_of(item)
        if not batches or len(batches[-1].items) >= BATCH_JOBS or sizes[partition] + size > BATCH_BYTES:
            batches.append(Batch([], []))
            sizes[partition] = 0
        batches[-1].places.append(place)
        batches[-1].items.append(item)
        sizes[partition] += size
    return found


class PartialOutcome(UnknownOutcome):
    """Not all store calls of this call were answered. `results` has an outcome or an error for each item."""

    def __init__(self, results: Sequence[Outcome | DuelineError]) -> None:
        super().__init__()
        self.results = results


async def over_partitions(
    topic: Topic,
    items: Sequence[I],
    id_of: Callable[[I], str],
    call: Callable[[Partition, Sequence[I]], Awaitable[list[Outcome]]],
    count: Callable[[Sequence[Outcome]], None],
) -> list[Outcome]:
    """The outcomes of `call` in the order of the items. `count` gets those of every store call that was answered.

    A failed store call raises, so that no caller mistakes a failed item for a finished one. If it was the only call,
    its own error is raised; otherwise PartialOutcome, with an error for each of the failed items.
    """
    if not items:
        return []
    if len(items) <= BATCH_JOBS and (len(items) == 1 or len(topic.partitions) == 1):
        results = await call(topic.partition_of(id_of(items[0])), items)
        count(results)
        return results
    found: dict[int, Outcome | DuelineError] = {}

    async def run(partition: Partition, batches: list[Batch[I]]) -> None:
        for batch in batches:
            try:
                done = await call(partition, batch.items)
            except DuelineError as error:
                found.update((place, error_for(error, id_of(items[place]))) for place in batch.places)
            else:
                count(done)
                found.update(zip(batch.places, done, strict=True))

    await asyncio.gather(*(run(*entry) for entry in split(topic, items, id_of).items()))
    ordered = [found[place] for place in range(len(items))]
    results = [one for one in ordered if isinstance(one, Outcome)]
    if len(results) < len(ordered):
        raise PartialOutcome(ordered)
    return results


def error_for(error: DuelineError, id: str) -> DuelineError:
    """The error of a whole store call, for one of its jobs. Jobs may share one error object."""
    if isinstance(error, UnknownOutcome):
        return UnknownOutcome(error.message, error.field, error.id or id)
    return type(error)(error.message, error.field)
