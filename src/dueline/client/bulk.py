"""Calls on many jobs: as many requests as the server's limits need, results in the order of the jobs. No I/O.

A server accepts at most 1000 jobs and 4 MiB per request. A server with lower limits refuses a larger request as a
whole, without executing any of it, so the request is halved and sent again.

A job without an id gets one before the first try. When a request fails as a whole, the error's `results` are those of
the requests before it. Repeating the whole list is safe if its jobs have ids, such as those made by `new_job`. It is
always safe for leased jobs, because they carry lease tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from ..api import answers as r
from ..api.answers import LeasedJob
from ..api.requests import Lease, NewJob
from ..bounds import MAX_ITEMS
from . import calls
from .calls import Call, Leased, refusal_error
from .errors import DuelineApiError
from .method import Steps
from .tracing import ManySends

T = TypeVar("T")

MAX_REQUEST_BYTES = 4 << 20

_INDEX = re.compile(r"^((?:jobs|ids)?\[)(\d+)(?=\])")


def send_many(topic: str, jobs: Iterable[NewJob]) -> Steps[list[r.SentItem]]:
    """Send any number of jobs. `jobs` is consumed lazily: each request is built after the previous one was answered."""
    results: list[r.SentItem] = []
    with ManySends(topic, results) as carry:
        for piece in pieces(Raw(msgspec.json.encode(carry(calls.named(job)))) for job in jobs):
            yield from _in_parts(piece, lambda part: calls.send_many(topic, part), results)
    return results


def on_leases(
    jobs: Sequence[LeasedJob | Leased], make: Callable[[str, list[Lease]], Call[r.Outcomes]]
) -> Steps[list[r.Outcome]]:
    """One kind of call on leased jobs of any topics; the results are in the order of the jobs."""
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
    """Calls on many small items, at most MAX_ITEMS in each. Their sizes do not matter."""
    results = [] if results is None else results
    for begin in range(0, len(items), MAX_ITEMS):
        yield from _in_parts(list(items[begin : begin + MAX_ITEMS]), make, results)
    return results


def matching(make: Callable[[bool], Call[r.Bulk]], dry_run: bool) -> Steps[r.Bulk]:
    """A call by filter, repeated until the server reports that it is complete; the counts are summed."""
    total: r.Bulk = yield make(dry_run)
    last = total
    while not (last.complete or dry_run or last.changed == 0):
        last = yield make(False)
        name = next(name for name in ("cancelled", "revived", "purged") if getattr(last, name) is not None)
        sums: dict[str, Any] = {"matched": total.matched + last.matched, name: total.changed + last.changed}
        total = msgspec.structs.replace(total, complete=last.complete, **sums)
    return total


def only(outcomes: r.Outcomes) -> r.Outcome:
    """The result of a call on one job. Raises its error if it was refused."""
    [outcome] = outcomes.results
    if outcome.error is not None:
        raise refusal_error(outcome.error, outcome.id)
    return outcome


def pieces(items: Iterable[Raw]) -> Iterator[list[Raw]]:
    """Items grouped into requests within a server's default limits. An item above the limit gets its own request."""
    piece: list[Raw] = []
    size = 1  # the opening bracket; each item adds a comma or the closing one
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
    """Execute one request, halving it for as long as the server finds it too large; appends to `results`."""
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
    """Whether the request as a whole was too large, rather than one of its jobs."""
    return error.code in ("body_too_large", "too_many_items") and error.field in (None, "jobs", "ids")


def _renumbered(field: str | None, number: Callable[[int], int]) -> str | None:
    """The field with the job's index in the caller's list instead of its index in the request."""
    return field and _INDEX.sub(lambda found: f"{found[1]}{number(int(found[2]))}", field)
