"""One call with many jobs over the lines that hold them: split, run, and put the results back in order.

Jobs of one line go in order, at most a batch at a time; lines go side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from .errors import DuelineError, UnknownOutcome
from .job import Line
from .limits import BATCH_BYTES, BATCH_JOBS
from .topics import Topic


class Named(Protocol):
    @property
    def id(self) -> str: ...


I = TypeVar("I")  # noqa: E741
N = TypeVar("N", bound=Named)
R = TypeVar("R")


class Batch(msgspec.Struct, Generic[I]):
    """Items for one line, and their places in the whole call."""

    places: list[int]
    items: list[I]


def split(
    topic: Topic, items: Sequence[I], id_of: Callable[[I], str], bytes_of: Callable[[I], int] | None = None
) -> dict[Line, list[Batch[I]]]:
    """Batches per line, in the order of the call."""
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


async def over_lines(
    topic: Topic, items: Sequence[I], id_of: Callable[[I], str], call: Callable[[Line, Sequence[I]], Awaitable[list[R]]]
) -> list[R]:
    """The results of `call` in the order of the items. When one of several calls fails, nobody knows what was done."""
    if len(items) <= BATCH_JOBS and len(topic.lines) == 1:
        return await call(topic.lines[0], items) if items else []
    results: dict[int, R] = {}
    failures: list[DuelineError] = []

    async def run(line: Line, batches: list[Batch[I]]) -> None:
        for batch in batches:
            try:
                done = await call(line, batch.items)
            except DuelineError as error:
                failures.append(error)
                return
            results.update(zip(batch.places, done, strict=True))

    await asyncio.gather(*(run(*entry) for entry in split(topic, items, id_of).items()))
    if failures:
        certain = not results and all(error.done is False for error in failures)
        raise failures[0] if certain else UnknownOutcome("a part of the call was not answered; the rest was done")
    return [results[place] for place in range(len(items))]
