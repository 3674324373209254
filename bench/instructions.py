"""What the scripts cost the store: instructions per job, counted by valgrind's callgrind.

    python -m bench.instructions [--calls N] [--binary STORE] [--no-history] [--by NAME] [--json]

An instruction count does not depend on the load of the machine, so two versions can be compared on a busy one: run it
with PYTHONPATH set to their `src` in turns. The store is the embedded one with its own settings, under valgrind. Each
row is a difference: what the process has executed before and after a fixed number of calls. It includes reading the
call, the script, its commands, the append-only file and the reply; not the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from dueline.engine.job import BodyKind, LeasedJob, Partition
from dueline.engine.limits import Limits
from dueline.engine.policy import Backoff, JobPolicy
from dueline.engine.store import Code, Credit, Edit, OnConflict, Pull, Ref, Release, SendItem
from dueline.store.valkey.embedded import EmbeddedStore
from dueline.store.valkey.embedded_files import default_binary
from dueline.store.valkey.store import ValkeyStore

from .checkouts import has_valgrind

POLICY = JobPolicy(None, 20, 60_000, 30 * 86_400_000, Backoff(1_000, 2.0, 3_600_000, 0.1))
KEPT = msgspec.structs.replace(POLICY, retain_ms=300_000, keep_body=True)
FORGOTTEN = msgspec.structs.replace(POLICY, retain_ms=0)
BODY = b'"' + b"x" * 98 + b'"'
WARM = 3  # calls that are not counted: the first ones load the script and open the partition
TIMEOUT_S = 60.0


class Row(msgspec.Struct, frozen=True):
    """One line of the table."""

    call: str
    jobs: int
    per_job: int
    per_call: int


class Counter:
    """Reads and resets the instruction counter of a process under callgrind."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._folder = folder
        self._pid = pid
        self._dumps = 0

    def count(self) -> int:
        """The instructions since the last call of this."""
        self._dumps += 1
        asked = ["callgrind_control", "--dump", str(self._pid)]
        subprocess.run(asked, check=True, capture_output=True, timeout=TIMEOUT_S)
        [path] = self._folder.glob(f"counts.{self._pid}.{self._dumps}")
        found = re.search(r"^(?:totals|summary): (\d+)", path.read_text(errors="replace"), re.MULTILINE)
        if found is None:
            raise SystemExit(f"{path} has no totals")
        return int(found[1])


class Calls:
    """The calls that are measured, on one partition."""

    def __init__(self, store: ValkeyStore, partition: Partition, by: str | None, policy: JobPolicy = POLICY) -> None:
        self._store = store
        self._policy = policy
        self._by = by
        self._partition = partition
        self._sent = 0
        self._held: list[LeasedJob] = []

    def _item(self, delay_ms: int) -> SendItem:
        self._sent += 1
        rule = OnConflict.REJECT
        return SendItem(
            f"{self._sent:032x}", BODY, BodyKind.JSON, delay_ms, None, self._policy, None, rule, rule, self._sent
        )

    async def send(self, jobs: int, delay_ms: int = 60_000) -> None:
        results = await self._store.send(self._partition, [self._item(delay_ms) for _ in range(jobs)])
        assert {result.code for result in results} == {Code.CREATED}

    async def send_due(self, jobs: int) -> None:
        await self.send(jobs, 0)

    async def pull(self, jobs: int, wait_ms: int = 0) -> None:
        credits = (Credit(1, None, self._by),) * jobs
        found = await self._store.pull(self._partition, Pull(credits, 30_000, wait_ms))
        assert len(found.jobs) == jobs, (len(found.jobs), jobs)
        self._held += found.jobs

    async def pull_waiting(self, jobs: int) -> None:
        await self.pull(jobs, 10_000)

    async def pull_nothing(self, jobs: int) -> None:
        found = await self._store.pull(self._partition, Pull((Credit(jobs, None),), 30_000))
        assert not found.jobs

    async def ack(self, jobs: int) -> None:
        held, self._held = self._held[:jobs], self._held[jobs:]
        results = await self._store.ack(self._partition, [Ref(job.id, job.lease) for job in held])
        assert {result.code for result in results} == {Code.OK}

    async def ack_without_tokens(self, jobs: int) -> None:
        """As camellia acks: the jobs keep their bodies for a while."""
        held, self._held = self._held[:jobs], self._held[jobs:]
        results = await self._store.ack(self._partition, [Ref(job.id) for job in held])
        assert {result.code for result in results} == {Code.OK}

    async def ack_by_ids(self, jobs: int) -> None:
        """As ouqiang finishes jobs: of each, only the id is known."""
        held, self._held = self._held[:jobs], self._held[jobs:]
        anywhere = msgspec.structs.replace(self._partition, topic="")
        results = await asyncio.gather(*(self._store.ack(anywhere, [Ref(job.id)]) for job in held))
        assert {result.code for [result] in results} == {Code.OK}

    async def release(self, jobs: int) -> None:
        held, self._held = self._held[:jobs], self._held[jobs:]
        failed = [Release(job.id, job.lease, 0, "HTTP 503: the ledger is locked") for job in held]
        results = await self._store.release(self._partition, failed)
        assert {result.code for result in results} == {Code.OK}

    async def edit(self, jobs: int) -> None:
        """Another due time for the newest jobs, before their first delivery."""
        newest = range(self._sent - jobs, self._sent)
        results = await self._store.edit(self._partition, [Edit(f"{i + 1:032x}", delay_ms=0) for i in newest])
        assert {result.code for result in results} == {Code.OK}

    async def send_and_edit(self, jobs: int) -> None:
        await self.send(jobs)
        await self.edit(jobs)

    async def first_send(self, jobs: int) -> None:
        """The first send to a new topic, with everything that opens its partition."""
        self._partition = Partition("bench", f"topic-{self._sent}", 0)
        await self.send(jobs)


async def measured(store: ValkeyStore, counter: Counter, calls: int, by: str | None) -> list[Row]:
    """One row per kind and size of a call."""
    rows: list[Row] = []

    async def row(name: str, call: Callable[[int], Awaitable[None]], jobs: int, *, warm: int = WARM) -> None:
        for _ in range(warm):
            await call(jobs)
        counter.count()
        for _ in range(calls):
            await call(jobs)
        used = counter.count()
        rows.append(Row(name, jobs, used // (calls * jobs), used // calls))

    many = Calls(store, Partition("bench", "many", 0), by)
    single = Calls(store, Partition("bench", "single", 0), by)
    await row("send", many.send, 24)
    await row("send", single.send, 1)
    await row("pull nothing", single.pull_nothing, 1)
    for calls_of, name, sizes in ((many, "", (12, 12, 12)), (single, "", (1, 1, 1)), (single, " waiting", (1, 1, 1))):
        await row(f"send due{name}", calls_of.send_due, sizes[0])
        await row(f"pull{name}", calls_of.pull_waiting if name else calls_of.pull, sizes[1])
        await row(f"ack{name}", calls_of.ack, sizes[2])
    for jobs in (12, 1):
        failing = Calls(store, Partition("bench", f"failing-{jobs}", 0), by)
        for _ in range(WARM + calls):
            await failing.send_due(jobs)
            await failing.pull(jobs)
        await row("release", failing.release, jobs)
        await row("pull again", failing.pull, jobs)
        await row("ack of a retry", failing.ack, jobs)
    for jobs in (12, 1):
        edited = Calls(store, Partition("bench", f"edited-{jobs}", 0), by)
        await row("send and edit", edited.send_and_edit, jobs)
        await row("pull of an edit", edited.pull, jobs)
    for jobs in (12, 1):
        kept = Calls(store, Partition("bench", f"kept-{jobs}", 0), by, KEPT)
        shared = Calls(store, Partition("shared", f"shared-{jobs}", 0, True), by, FORGOTTEN)
        for calls_of in (kept, shared):
            for _ in range(WARM + calls):
                await calls_of.send_due(jobs)
                await calls_of.pull(jobs)
        await row("ack, no tokens", kept.ack_without_tokens, jobs)
        await row("ack by ids", shared.ack_by_ids, jobs)
    await row("first send", Calls(store, Partition("bench", "first", 0), by).first_send, 1)
    return rows


async def run(calls: int, binary: Path, folder: Path, limits: Limits, by: str | None) -> list[Row]:
    wrapper = folder / "store-under-callgrind"
    words = f'valgrind --tool=callgrind --callgrind-out-file="{folder}/counts.%p" --log-file="{folder}/log" "{binary}"'
    wrapper.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    wrapper.chmod(0o700)
    embedded = EmbeddedStore(folder / "data", wrapper, overrides={"hz": "1"})
    await embedded.start()
    store = ValkeyStore(embedded.url, limits=limits, reply_timeout_s=TIMEOUT_S, patience_s=TIMEOUT_S)
    try:
        await store.start()
        return await measured(store, Counter(folder, embedded.pid or 0), calls, by)
    finally:
        await store.stop()
        await embedded.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=20, help="calls per row (default 20)")
    parser.add_argument("--binary", type=Path, help="the store's program (default: the embedded one)")
    parser.add_argument("--no-history", action="store_true", help="keep no history of jobs")
    parser.add_argument("--by", help="the name of the consumer, for the history")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    asked = parser.parse_args()
    if not has_valgrind():
        return 1
    with tempfile.TemporaryDirectory(prefix="dueline-instructions-") as folder:
        limits = Limits(max_history_bytes=0) if asked.no_history else Limits()
        rows = asyncio.run(run(asked.calls, asked.binary or default_binary(), Path(folder), limits, asked.by))
    if asked.json:
        print(json.dumps([msgspec.to_builtins(row) for row in rows], indent=2))
        return 0
    print(f"{'call':<16}{'jobs':>5}{'per job':>12}{'per call':>12}   (instructions of the store)")
    for row in rows:
        print(f"{row.call:<16}{row.jobs:>5}{row.per_job:>12,}{row.per_call:>12,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
