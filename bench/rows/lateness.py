"""How late jobs are delivered that come due evenly over time and are pulled by long polls and acked.

The target applies to the script's own clock (the end of the lease minus its length, rounded up to a millisecond). The
client's view is shown too; it includes the fsync of the pull and the way back. A job before its time is an error.
"""

from __future__ import annotations

import time

from ..broken import Broken
from ..loading import Orders, run
from ..machine import fsync_ms
from ..report import Line, at_most, percentile
from ..servers import Client, server
from ..sizes import Sizes

WAITERS = 16
JOBS_PER_PULL = 16
JOBS_PER_CALL = 500
LEAD_S = 2.0
LATER_MS = (3_600_000, 86_400_000)  # of the jobs that only wait
TARGETS_MS = {"p50": (0.5, 2), "p99": (0.99, 10), "p99.9": (0.999, 25)}


def lateness(sizes: Sizes) -> list[Line]:
    return [line for pending in sizes.lateness_pending for line in _lateness(sizes, pending)]


def _lateness(sizes: Sizes, pending: int) -> list[Line]:
    count = int(sizes.due_jobs_per_s * sizes.lateness_s)
    with server() as one:
        run(Orders("bulk", port=one.port, topic="late", connections=4, count=pending, delay_ms=LATER_MS))
        one.store().settle()
        before_ms = fsync_ms(one.data)
        client = one.client()
        _send_due(client, count, sizes.due_jobs_per_s)
        notes = run(
            Orders(
                "consume",
                port=one.port,
                topic="late",
                connections=WAITERS,
                count=count,
                jobs_per_call=JOBS_PER_PULL,
            )
        ).notes
        fsync = max(before_ms, fsync_ms(one.data))
        client.close()
    script_ms: list[int] = notes["script_ms"]
    client_ms = [late_us / 1000 for late_us in notes["client_us"]]
    if len(script_ms) != count:
        raise Broken(f"{len(script_ms)} deliveries of {count} jobs")
    early = sum(late < 0 for late in script_ms) + sum(late < 0 for late in client_ms)
    if early:
        raise Broken(f"{early} jobs of {count} were delivered early, by up to {-min(*script_ms, *client_ms)} ms")
    note = f"{sizes.due_jobs_per_s:,} due/s, {WAITERS} long polls, early 0; fsync median {fsync:.2f} ms"
    if fsync > 1:
        note += " (the target assumes <= 1 ms)"
    details = {"jobs": count, "early": early, "fsync_ms": fsync, "worst_ms": max(script_ms), "pending": pending}
    many = f", {pending:,} pending"
    return [
        *(
            Line(f"lateness {name}, script's clock{many}", percentile(script_ms, share), "ms", None, at_most(target),
                 note if name == "p50" else "", details)
            for name, (share, target) in TARGETS_MS.items()
        ),
        Line(f"lateness p50, at the client{many}", percentile(client_ms, 0.5), "ms", note="with fsync and way back"),
        Line(f"lateness p99, at the client{many}", percentile(client_ms, 0.99), "ms"),
    ]  # fmt: skip


def _send_due(client: Client, count: int, per_s: int) -> None:
    """Send all jobs in advance; the first is due after the last was sent."""
    body = "x" * 98
    first_ms = time.time() * 1000 + (LEAD_S + count / 5_000) * 1000
    for start in range(0, count, JOBS_PER_CALL):
        places = range(start, min(start + JOBS_PER_CALL, count))
        client.call(
            "POST",
            "/v1/topics/late/jobs",
            [{"at_ms": int(first_ms + place * 1000 / per_s), "body": body} for place in places],
        )
    if time.time() * 1000 > first_ms:
        raise Broken(f"{count} jobs were not sent before the first of them was due: this machine is too busy")
