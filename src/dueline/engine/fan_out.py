"""Runs one call with many jobs on the partitions that hold them: split, run, and put the results back in order.

Jobs of one partition run in order, one batch at a time; partitions run concurrently. A failed store call affects only
its own jobs; the other calls are still made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from .errors import DuelineError, UnknownOutcome
from .job import Partition
from .limits import BATCH_BYTES, BATCH_JOBS
from .store import Code, Outcome
from .topics import Topic

I = TypeVar("I")  # noqa: E741


class Batch(msgspec.Struct, Generic[I]):
    """Items for one partition, and their positions in the whole call."""

    places: list[int]
    items: list[I]


def split(
    places: Iterable[int],
    items: Sequence[I],
    partition_of: Callable[[int], Partition | None],
    bytes_of: Callable[[I], int] | None = None,
) -> dict[Partition, list[Batch[I]]]:
    """Batches per partition of the items at these places, in the order of the call. Items without a partition are left
    out."""
    found: dict[Partition, list[Batch[I]]] = {}
    sizes: dict[Partition, int] = {}
    for place in places:
        item = items[place]
        partition = partition_of(place)
        if partition is None:
            continue
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
    """The outcomes of `call` in the order of the items. `count` gets those of every store call that was answered. An id
    that its current partition does not hold is looked for in the old one.

    A failed store call raises, so that no caller mistakes a failed item for a finished one. If it was the only call,
    its own error is raised; otherwise PartialOutcome, with an error for each of the failed items.
    """
    if not items:
        return []
    if len(items) <= BATCH_JOBS and not topic.old and (len(items) == 1 or len(topic.current) == 1):
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

    async def ask(places: Iterable[int], partition_of: Callable[[str], Partition | None]) -> None:
        parts = split(places, items, lambda place: partition_of(id_of(items[place])))
        await asyncio.gather(*(run(*entry) for entry in parts.items()))

    await ask(range(len(items)), topic.partition_of)
    if topic.old:
        missing = [place for place, done in sorted(found.items()) if _is_missing(done)]
        await ask(missing, topic.old_partition_of)
    ordered = [found[place] for place in range(len(items))]
    results = [one for one in ordered if isinstance(one, Outcome)]
    if len(results) < len(ordered):
        if len(ordered) == 1 and isinstance(ordered[0], DuelineError):
            raise ordered[0]
        raise PartialOutcome(ordered)
    return results


def _is_missing(done: Outcome | DuelineError) -> bool:
    return isinstance(done, Outcome) and done.code is Code.NOT_FOUND


def error_for(error: DuelineError, id: str) -> DuelineError:
    """The error of a whole store call, for one of its jobs. Jobs may share one error object."""
    if isinstance(error, UnknownOutcome):
        return UnknownOutcome(error.message, error.field, error.id or id)
    return type(error)(error.message, error.field)
