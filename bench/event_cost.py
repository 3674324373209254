"""What an event costs a server while somebody follows: instructions per event, counted by valgrind's callgrind.

    python -m bench.event_cost [--events N] [--json]

An instruction count does not depend on the load of the machine, so two versions can be compared on a busy one: run it
with PYTHONPATH set to their `src` in turns. Each row is a process that records events on the reference store, in
batches of BATCH sends as a busy server has them, and writes them for its followers. It is run twice, with fewer and
with more events, and the difference counts. Not included: the real store's call per 50 ms, the socket, and the kernel.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from dueline.dialects.native.event_handlers import ServerSentEvents
from dueline.engine.engine import Engine
from dueline.engine.job import BodyKind, Partition, State
from dueline.engine.policy import Backoff, JobPolicy
from dueline.engine.store import Code, OnConflict, SendItem, SendOutcome
from dueline.store.memory import MemoryStore

from .checkouts import has_valgrind

NS = "default"
BATCH = 24
BATCHES_PER_FLUSH = 20
POLICY = JobPolicy(None, 20, 60_000, 30 * 86_400_000, Backoff(1_000, 2.0, 3_600_000, 0.1))
TIMEOUT_S = 300.0
ROWS = {
    "recorded, nobody follows any more": ("-",),
    "one follower of all topics": ("",),
    "ten followers of all topics": ("",) * 10,
    "one follower of another topic": ("quiet",),
}


class Row(msgspec.Struct, frozen=True):
    """One line of the table."""

    what: str
    per_event: int


async def work(events: int, followers: tuple[str, ...]) -> int:
    """Record this many events and write them for the followers. One with the topic "-" leaves before. Returns how many
    were written."""
    store = MemoryStore(lambda: time.time_ns() // 1_000_000)
    engine = Engine(store)
    await engine.start()
    feeds = [await engine.feeds.open(NS, (topic,) if topic else ()) for topic in followers]
    await asyncio.sleep(0.2)
    recorder = store.hook.outcomes
    assert recorder is not None
    for feed, topic in zip(feeds, followers, strict=True):
        if topic == "-":
            feed.close()
    written = [0] * len(feeds)

    async def follow(i: int) -> None:
        async for piece in ServerSentEvents(engine, feeds[i]).pieces():
            written[i] += piece.count(b"event: job\n")

    following = [asyncio.create_task(follow(i)) for i, topic in enumerate(followers) if topic != "-"]
    partition, rule = Partition(NS, "bench", 0), OnConflict.REJECT
    items = [
        SendItem(f"{i:032x}", b"1", BodyKind.JSON, 60_000, None, POLICY, None, rule, rule, i) for i in range(BATCH)
    ]
    results = [SendOutcome(Code.CREATED, State.SCHEDULED, 0, 1) for _ in items]
    by = ["shop"] * BATCH
    for i in range(events // BATCH):
        recorder.done("send", partition, items, results, by)
        if i % BATCHES_PER_FLUSH == BATCHES_PER_FLUSH - 1:
            await asyncio.sleep(0.2)
    await asyncio.sleep(1.0)
    await engine.stop()
    await asyncio.gather(*following)
    return sum(written)


def counted(events: int, followers: tuple[str, ...]) -> int:
    """The instructions of a whole process that does the work."""
    with tempfile.TemporaryDirectory(prefix="dueline-event-cost-") as folder:
        counts = Path(folder) / "counts"
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts}", f"--log-file={folder}/log"]
        options = [sys.executable, "-m", "bench.event_cost", "--events", str(events), "--work", ",".join(followers)]
        done = subprocess.run(tool + options, check=True, capture_output=True, timeout=TIMEOUT_S, text=True)
        due = events * sum(topic == "" for topic in followers)
        if int(done.stdout) != due:
            raise SystemExit(f"{done.stdout.strip()} events were written, not {due}")
        found = re.search(r"^(?:totals|summary): (\d+)", counts.read_text(errors="replace"), re.MULTILINE)
        if found is None:
            raise SystemExit(f"{counts} has no totals")
        return int(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.event_cost", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=BATCH * 200, help="events per row (default %(default)s)")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    asked = parser.parse_args()
    if asked.work is not None:
        print(asyncio.run(work(asked.events, tuple(asked.work.split(",")))))
        return 0
    if not has_valgrind():
        return 1
    few, many = BATCH, BATCH * (1 + asked.events // BATCH)
    rows = [
        Row(what, (counted(many, followers) - counted(few, followers)) // (many - few))
        for what, followers in ROWS.items()
    ]
    if asked.json:
        print(json.dumps([msgspec.to_builtins(row) for row in rows], indent=2))
        return 0
    print(f"{'':<36}{'per event':>10}   (instructions of the server)")
    for row in rows:
        print(f"{row.what:<36}{row.per_event:>10,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
