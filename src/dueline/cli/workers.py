"""The command `workers`: the workers that reported in the last minute."""

from __future__ import annotations

from collections.abc import Sequence

from ..api import answers as r
from ..client import calls
from . import tables
from .jobs import now_ms
from .session import Session, connected

WORKERS_EXAMPLES = ("dueline workers", "dueline workers -o jsonl")


@connected
def workers(session: Session) -> None:
    """List the workers that reported in the last minute: where they run, their topics, and what they work on."""
    answer = session.call(calls.workers())
    session.printer.result(answer.raw, table(answer.value.workers, now_ms()), "workers")


def table(workers: Sequence[r.Worker], now: int) -> tables.Listing:
    made = tables.Listing("WORKER", "HOST", "PID", "TOPICS", "RUNNING", "SINCE", "SEEN", free=("TOPICS",))
    for one in workers:
        made.add(
            one.name,
            one.host,
            one.pid,
            ",".join(one.topics),
            "stopped" if one.stopped else f"{len(one.running)} of {one.concurrency}",
            tables.distance(one.started_at_ms, now),
            tables.distance(one.seen_at_ms, now),
        )
    return made
