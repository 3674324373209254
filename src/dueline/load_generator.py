"""The core of the load generators: what a connection asks, what is counted, and percentiles. No I/O.

A conversation is a generator. It yields requests of the native API and is sent the answers, both as JSON text:

    sends      new jobs, one or many per call
    lives      send, pull and ack, one job each
    chained    the same, with the ack of each job in the next pull
    consumes   long-poll and ack

A driver moves the bytes: `bench/load.py` with epoll on raw sockets, `cli.bench_load` with asyncio on the SDK's
connections or on a store in this process. It shares the cores with the server that it measures, so requests are made
from templates, and answers are searched rather than parsed where that is enough. Standard library only, because
`bench/load.py` runs without site packages.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Generator, Sequence
from time import perf_counter
from typing import Any

Request = tuple[str, bytes]
"""An operation of the native API and its body."""

Answer = tuple[int, bytes]
"""Status and body."""

Conversation = Generator[Request, Answer, None]
NewJobs = Callable[[int], bytes]
"""The body of a send of this many new jobs."""

WAIT_MS, LEASE_MS = 2_000, 30_000  # of a long poll


class Tally:
    """What all connections together have done. `quota` is how many jobs may still start (None: any number)."""

    def __init__(self, quota: int | None) -> None:
        self.quota = quota
        self.done = 0
        self.refused = 0
        self.errors = 0
        self.first_error = ""

    def take(self, count: int) -> int:
        """How many of `count` may start."""
        if self.quota is None:
            return count
        count = min(count, self.quota)
        self.quota -= count
        return count

    def finish(self, jobs: int, begun_s: float) -> None:
        """Count the jobs of a step that began at this time of `perf_counter`."""
        self.done += jobs

    def refuse(self, jobs: int, status: int, text: bytes) -> None:
        """Count an unexpected answer, and the jobs that it refused."""
        self.refused += jobs
        self.errors += 1
        self.first_error = self.first_error or f"{status} {text[:400].decode('latin-1')}"


def sends(new_jobs: NewJobs, tally: Tally, jobs_per_call: int) -> Conversation:
    while count := tally.take(jobs_per_call):
        body = new_jobs(count)
        begun_s = perf_counter()
        status, text = yield "send", body
        if status == 201 and (count == 1 or text.count(b'"result":"created"') == count):
            tally.finish(count, begun_s)
        else:
            tally.refuse(count, status, text)


def lives(new_jobs: NewJobs, tally: Tally, wait_ms: int, patience_s: float) -> Conversation:
    """The pulled job may be another connection's; each life still has one of each. Empty pulls are repeated until
    `patience_s` after the send."""
    pull = b'{"max":1,"wait_ms":%d}' % wait_ms if wait_ms else b'{"max":1}'
    while tally.take(1):
        begun_s = perf_counter()
        status, text = yield "send", new_jobs(1)
        if status != 201:
            tally.refuse(1, status, text)
            continue
        status, text = yield "pull", pull
        while (at := text.find(b'{"id":"') + 7) < 7 and status == 200 and perf_counter() - begun_s < patience_s:
            status, text = yield "pull", pull
        if at < 7 or status != 200:
            tally.refuse(1, status, text)
            continue
        lease_at = text.find(b'"lease":"', at) + 9
        leased = text[at : text.find(b'"', at)], text[lease_at : text.find(b'"', lease_at)]
        status, text = yield "ack", b'{"jobs":[{"id":"%b","lease":"%b"}]}' % leased
        if status == 200:
            tally.finish(1, begun_s)
        else:
            tally.refuse(1, status, text)


def chained(new_jobs: NewJobs, tally: Tally, wait_ms: int, patience_s: float) -> Conversation:
    """Whole lives of jobs (send, pull, ack), in which each pull acks the job before. The last job of a
    connection stays leased and is not counted."""
    done = b""
    while tally.take(1):
        begun_s = perf_counter()
        status, text = yield "send", new_jobs(1)
        if status != 201:
            tally.refuse(1, status, text)
            continue
        at = 0
        while at < 7 and status in (200, 201) and perf_counter() - begun_s < patience_s:
            status, text = yield "pull", b'{"max":1,"wait_ms":%d,"ack":[%b]}' % (wait_ms, done)
            if done and status == 200:
                tally.finish(1, begun_s)
                done = b""
            at = 0 if text.startswith(b'{"jobs":[]') else text.find(b'{"id":"') + 7
        if at < 7 or status != 200:
            tally.refuse(1, status, text)
            continue
        lease_at = text.find(b'"lease":"', at) + 9
        leased = text[at : text.find(b'"', at)], text[lease_at : text.find(b'"', lease_at)]
        done = b'{"id":"%b","lease":"%b"}' % leased


def consumes(
    tally: Tally, jobs_per_pull: int, expects_more: Callable[[], bool], arrived: Callable[[list[Any], int, int], None]
) -> Conversation:
    """Pull and ack while more is expected. `arrived` counts the jobs; it is given the time of the answer in ns, on the
    system's clock and on the monotonic one."""
    pull = b'{"max":%d,"wait_ms":%d,"lease_ms":%d}' % (jobs_per_pull, WAIT_MS, LEASE_MS)
    while expects_more():
        status, text = yield "pull", pull
        at_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
        if status != 200:
            tally.refuse(0, status, text)
            continue
        jobs = json.loads(text)["jobs"]
        if jobs:
            arrived(jobs, at_ns, monotonic_ns)
            leases = ",".join(f'{{"id":"{job["id"]}","lease":"{job["lease"]}"}}' for job in jobs)
            status, text = yield "ack", b'{"jobs":[%b]}' % leases.encode()
            if status != 200:
                tally.refuse(0, status, text)


def same_jobs(body_bytes: int, delay_ms: Callable[[], int]) -> NewJobs:
    """Jobs that differ only in id and delay, so that a whole call is one `%`."""
    job = b'{"id":"%032x","delay_ms":%d,"body":' + text_body(body_bytes) + b"}"
    next_id, templates = new_ids(), dict[int, bytes]()

    def new_jobs(count: int) -> bytes:
        if count == 1:
            return job % (next_id(), delay_ms())
        template = templates.get(count)
        if template is None:
            template = templates[count] = b"[" + b",".join([job] * count) + b"]"
        return template % tuple(value for _ in range(count) for value in (next_id(), delay_ms()))

    return new_jobs


def new_ids() -> Callable[[], int]:
    """Numbers of at most 32 hex digits, from a random start, so that ids of two generators never collide."""
    return itertools.count(random.getrandbits(64) << 64).__next__


def text_body(size_bytes: int) -> bytes:
    """A JSON string of exactly this many bytes, including its two quotes."""
    return b'"' + b"x" * max(size_bytes - 2, 0) + b'"'


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """The smallest value that is at least as large as this share of all values; 0 if there are none."""
    if not ordered:
        return 0.0
    rank = max(1, -(-len(ordered) * round(share * 1000) // 1000))
    return ordered[min(rank, len(ordered)) - 1]
