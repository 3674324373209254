"""The memory that histories take when every job fails, with the budget far too small for all of them.

The same jobs, with the same errors, fail on two stores: one keeps histories, one does not. The runs of the jobs, which
hold the histories, are measured by the store itself, every one of them. The difference must be within the budget, which
is scaled with the number of jobs.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from dueline.engine.job import BodyKind, Partition
from dueline.engine.limits import Limits
from dueline.engine.policy import Backoff, JobPolicy
from dueline.engine.store import Credit, OnConflict, Pull, Release, SendItem, Stats
from dueline.store.valkey.embedded import EmbeddedStore
from dueline.store.valkey.embedded_files import default_binary
from dueline.store.valkey.keys import partition_keys
from dueline.store.valkey.store import ValkeyStore

from ..broken import Broken
from ..report import Line, at_most
from ..servers import folder
from ..sizes import Sizes

BATCH = 500
FAILURES = 2
WHOLE = 1_000_000  # jobs of the full form, which has the default budget
POLICY = JobPolicy(None, None, 60_000, 86_400_000, Backoff(1_000, 2.0, 3_600_000, 0.1))
PARTITION = Partition("bench", "failing")


class _Found(msgspec.Struct, frozen=True):
    used: int
    stats: Stats


def history(sizes: Sizes) -> list[Line]:
    jobs = sizes.history_jobs
    budget = Limits().max_history_bytes * jobs // WHOLE
    with folder() as place:
        without, kept = (asyncio.run(_failed(place / str(bytes), jobs, bytes)) for bytes in (0, budget))
    stats, grown = kept.stats, kept.used - without.used
    if stats.history_bytes > budget or not stats.history_dropped:
        raise Broken(f"{stats.history_bytes} of {budget} bytes counted, {stats.history_dropped} entries dropped")
    note = (
        f"{jobs:,} jobs that failed {FAILURES} times; budget {budget:,} B, counted {stats.history_bytes:,} B, "
        f"{stats.history_dropped:,} entries dropped; the runs without histories {without.used:,} B"
    )
    details = {"jobs": jobs, "counted_bytes": stats.history_bytes, "dropped": stats.history_dropped}
    return [Line("store bytes of histories", grown, "B", None, at_most(budget), note, details)]


async def _failed(place: Path, jobs: int, budget: int) -> _Found:
    """The store after every job has failed, idle."""
    embedded = EmbeddedStore(place, default_binary())
    await embedded.start()
    store = ValkeyStore(embedded.url, limits=Limits(max_history_bytes=budget))
    try:
        await store.start()
        for start in range(0, jobs, BATCH):
            await store.send(PARTITION, [_job(number) for number in range(start, min(start + BATCH, jobs))])
        for failure in range(FAILURES):
            left = jobs
            while left:
                pull = Pull((Credit(min(BATCH, left), 3_600_000, "worker-1:bench"),), 3_600_000)
                leased = (await store.pull(PARTITION, pull)).jobs
                if not leased:
                    raise Broken(f"no job was due, {left} were left")
                delay_ms = 0 if failure + 1 < FAILURES else 86_400_000
                error = f"HTTP 503: the ledger is locked ({failure})"
                await store.release(PARTITION, [Release(job.id, job.lease, delay_ms, error) for job in leased])
                left -= len(leased)
        stats = await store.stats(PARTITION)
        runs = partition_keys(store.prefix, PARTITION).keys[2]
        return _Found(await store.plain(runs, "MEMORY", "USAGE", runs, "SAMPLES", 0), stats)
    finally:
        await store.stop()
        await embedded.stop()


def _job(number: int) -> SendItem:
    rule, body = OnConflict.REJECT, b'"' + b"x" * 98 + b'"'
    return SendItem(f"{number:032x}", body, BodyKind.JSON, 0, None, POLICY, None, rule, rule, number)
