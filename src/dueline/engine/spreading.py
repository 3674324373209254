"""One call with many jobs over the lines that hold them: split, run, and put the results back in order.

Jobs of one line go in order, at most a batch at a time; lines go side by side. A store call that fails is the failure
of its own jobs; the other calls are made all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec

from .errors import DuelineError, UnknownOutcome
from .job import Line
from .limits import BATCH_BYTES, BATCH_JOBS
from .store import Done
from .topics import Topic

I = TypeVar("I")  # noqa: E741


class Batch(msgspec.Struct, Generic[I]):
    """Items for one line, and their places in the whole call."""

    places: list[int]
    items: list[I]


def split(
    topic: Topic, items: Sequence[I], id_of: Callable[[I], str], bytes_of: Callable[[I], int] | None = None
) -> dict[Line, list[Batch[I]]]:
    """Batches per line, in the order of the call."""
    if len(topic.lines) == 1 and (bytes_of is None or sum(map(bytes_of, items)) <= BATCH_BYTES):
        starts = range(0, len(items), BATCH_JOBS)
        batches = [(start, list(items[start : start + BATCH_JOBS])) for start in starts]
        return {topic.lines[0]: [Batch(list(range(start, start + len(some))), some) for start, some in batches]}
    found: dict[Line, list[Batch[I]]] = {}
    sizes: dict[Line, int] = {}
    for place, item in enumerate(items):
        line = topic.line_of(id_of(item))
        batches = found.setdefault(line, [])
        size = 0 if bytes_of is None else bytes_of(item)
        if not batches or len(batches[-1].items) >= BATCH_JOBS or sizes[line] + size > BATCH_BYTES:
            batches.append(Batch([], []))
            sizes[line] = 0
        batches[-1].places.append(place)
        batches[-1].items.append(item)
        sizes[line] += size
    return found


class PartlyDone(UnknownOutcome):
    """Not all store calls of this call were answered. `results` has for each item what is known of it."""

    def __init__(self, results: Sequence[Done | DuelineError]) -> None:
        super().__init__()
        self.results = results


async def over_lines(
    topic: Topic,
    items: Sequence[I],
    id_of: Callable[[I], str],
    call: Callable[[Line, Sequence[I]], Awaitable[list[Done]]],
    count: Callable[[Sequence[Done]], None],
) -> list[Done]:
    """The results of `call` in the order of the items; `count` is told those of every store call that was answered.

    A failed store call is raised, never returned, so that nobody takes a failed item for a done one: as it is when
    there was only this one, else as PartlyDone with an error for each of its items.
    """
    if not items:
        return []
    if len(items) <= BATCH_JOBS and (len(items) == 1 or len(topic.lines) == 1):
        results = await call(topic.line_of(id_of(items[0])), items)
        count(results)
        return results
    found: dict[int, Done | DuelineError] = {}

    async def run(line: Line, batches: list[Batch[I]]) -> None:
        for batch in batches:
            try:
                done = await call(line, batch.items)
            except DuelineError as error:
                found.update((place, error_for(error, id_of(items[place]))) for place in batch.places)
            else:
                count(done)
                found.update(zip(batch.places, done, strict=True))

    await asyncio.gather(*(run(*entry) for entry in split(topic, items, id_of).items()))
    ordered = [found[place] for place in range(len(items))]
    results = [one for one in ordered if isinstance(one, Done)]
    if len(results) < len(ordered):
        raise PartlyDone(ordered)
    return results


def error_for(error: DuelineError, id: str) -> DuelineError:
    """The failure of a whole store call, for one of its jobs: one error object may stand for many."""
    if isinstance(error, UnknownOutcome):
        return UnknownOutcome(error.message, error.field, error.id or id)
    return type(error)(error.message, error.field)
