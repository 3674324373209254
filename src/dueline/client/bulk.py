"""Calls on many jobs: as many requests as the server's limits need, results in the order of the jobs. No I/O.

A server takes at most 1000 jobs and 4 MiB a call. Where it is configured to take less it says so, and what it refused
was certainly not done, so the piece is halved and asked again.

A job that has no id gets one before the first try. When a request fails as a whole, the error carries `results`: those
of the requests before it. To repeat the whole list is safe where its jobs have ids, as those of `new_job`, and for
leases, which have their tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from . import calls
from . import results as r
from .calls import Call, Lease, Leased, NewJob, refusal_error
from .errors import DuelineApiError
from .method import Steps
from .results import LeasedJob

T = TypeVar("T")

MAX_ITEMS = 1_000
MAX_REQUEST_BYTES = 4 << 20

_INDEX = re.compile(r"^((?:jobs|ids)?\[)(\d+)(?=\])")


def send_many(topic: str, jobs: Iterable[NewJob]) -> Steps[list[r.SentItem]]:
    """Send any number of jobs; the next piece of `jobs` is read when the one before it was answered."""
    results: list[r.SentItem] = []
    for piece in pieces(Raw(msgspec.json.encode(calls.named(job))) for job in jobs):
        yield from _in_parts(piece, lambda part: calls.send_many(topic, part), results)
    return results


def on_leases(
    jobs: Sequence[LeasedJob | Leased], make: Callable[[str, list[Lease]], Call[r.Outcomes]]
) -> Steps[list[r.Outcome]]:
    """One kind of call on leases of any topics; the results stand where their jobs stood."""
    places: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        places.setdefault(job.topic, []).append(place)
    found: dict[int, r.Outcome] = {}
    for topic, own in places.items():
        results: list[r.Outcome] = []
        leases = [Lease(jobs[place].id, jobs[place].lease) for place in own]
        try:
            yield from in_pieces(leases, lambda part, topic=topic: make(topic, part), results)
        except DuelineApiError as error:
            error.field = _renumbered(error.field, own.__getitem__)
            found.update(zip(own, results, strict=False))
            error.results = tuple(found[place] for place in sorted(found))
            raise
        found.update(zip(own, results, strict=True))
    return [found[place] for place in range(len(jobs))]


def in_pieces(
    items: Sequence[T], make: Callable[[list[T]], Call[r.Outcomes]], results: list[r.Outcome] | None = None
) -> Steps[list[r.Outcome]]:
    """One kind of call on items that are small: only their number counts."""
    results = [] if results is None else results
    for begin in range(0, len(items), MAX_ITEMS):
        yield from _in_parts(list(items[begin : begin + MAX_ITEMS]), make, results)
    return results


def matching(make: Callable[[bool], Call[r.Bulk]], dry_run: bool) -> Steps[r.Bulk]:
    """A call by filter, again until the server says that it is complete; the figures are sums."""
    total: r.Bulk = yield make(dry_run)
    last = total
    while not (last.complete or dry_run or last.changed == 0):
        last = yield make(False)
        name = next(name for name in ("cancelled", "revived", "purged") if getattr(last, name) is not None)
        sums: dict[str, Any] = {"matched": total.matched + last.matched, name: total.changed + last.changed}
        total = msgspec.structs.replace(total, complete=last.complete, **sums)
    return total


def only(outcomes: r.Outcomes) -> r.Outcome:
    """The result of a call on one job; raises its refusal."""
    [outcome] = outcomes.results
    if outcome.error is not None:
        raise refusal_error(outcome.error, outcome.id)
    return outcome


def pieces(items: Iterable[Raw]) -> Iterator[list[Raw]]:
    """Items in requests that a server takes by default. One that is too large for any stands alone."""
    piece: list[Raw] = []
    size = 1  # the bracket; each item brings a comma or the other bracket
    for item in items:
        item_bytes = len(bytes(item)) + 1
        if piece and (len(piece) == MAX_ITEMS or size + item_bytes > MAX_REQUEST_BYTES):
            yield piece
            piece, size = [], 1
        piece.append(item)
        size += item_bytes
    if piece:
        yield piece


def _in_parts(items: list[T], make: Callable[[list[T]], Call[Any]], results: list[Any]) -> Steps[None]:
    """Do a piece, halved as often as the server wants it; `results` grows."""
    try:
        answer = yield make(items)
    except DuelineApiError as error:
        if len(items) == 1 or not _too_much(error):
            error.field = _renumbered(error.field, lambda number: number + len(results))
            error.results = tuple(results)
            raise
    else:
        results += answer.results
        return
    half = len(items) // 2
    yield from _in_parts(items[:half], make, results)
    yield from _in_parts(items[half:], make, results)


def _too_much(error: DuelineApiError) -> bool:
    """Whether the request as a whole was too large, and not one of its jobs."""
    return error.code in ("body_too_large", "too_many_items") and error.field in (None, "jobs", "ids")


def _renumbered(field: str | None, number: Callable[[int], int]) -> str | None:
    """A field of the caller's list: a job's number there, and not in the request that carried it."""
    return field and _INDEX.sub(lambda found: f"{found[1]}{number(int(found[2]))}", field)
