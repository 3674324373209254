"""What the dashboard's pages and a scrape cost on a full store: many pending jobs in one topic, and many topics.

Each call that a page makes is made several times; the median of its times is shown, with the CPU of server and store
per call, which a busy machine changes less. The first call of each is made before, so caches are as a page finds them;
what a cache then hides (`/metrics`, the forecast over all topics) is shown as it is the first time, too. The commands
that the store ran for all of it must not include one that walks over keys or over members.
"""

from __future__ import annotations

import json
import time
from statistics import median
from typing import Any

import msgspec

from ..broken import Broken
from ..loading import Orders, run
from ..report import Line, at_most, below
from ..servers import Client, Server, StoreConnection, descendants, server
from ..sizes import Sizes
from ..usage import cpu_s

CALL_MS = 300
SCRAPE_MS, SCRAPE_BYTES = 200, 2_000_000
TIMES = 7
TAGGED, DEAD = 2_000, 500
GROUPS, WORKERS = 200, 50
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
WALKING = frozenset({"scan", "sscan", "zscan", "keys", "hkeys", "hvals", "smembers"})  # HSCAN cleans, 100 at a time


class _Calls:
    """Times calls on one server."""

    def __init__(self, one: Server, store: StoreConnection) -> None:
        self._client = one.client()
        self._pids = [one.pid, *descendants(one.pid)]
        self._store = store
        self._walked = self._walks()

    def line(self, what: str, path: str, limit_ms: float = CALL_MS) -> Line:
        first_ms, size = self._timed(path)
        cpu = self._cpu_s()
        times = [self._timed(path)[0] for _ in range(TIMES)]
        cpu_ms = (self._cpu_s() - cpu) / TIMES * 1000
        note = f"{size / 1000:,.0f} kB, CPU {cpu_ms:.1f} ms, the first time {first_ms:.1f} ms"
        details = {"path": path.partition("?")[0], "first_ms": first_ms, "cpu_ms": cpu_ms, "bytes": size}
        return Line(what, median(times), "ms", None, below(limit_ms), note, details)

    def first(self, what: str, path: str, limit_ms: float) -> tuple[Line, int]:
        """The first call alone, and the size of its answer."""
        cpu = self._cpu_s()
        first_ms, size = self._timed(path)
        note = f"CPU {(self._cpu_s() - cpu) * 1000:.1f} ms"
        return Line(what, first_ms, "ms", None, below(limit_ms), note), size

    def complete(self, what: str, path: str) -> Line:
        """The CPU of server and store until the answer is complete; calls before that are answered with a part."""
        cpu, calls = self._cpu_s(), 1
        while not json.loads(self._client.fetch(path))["complete"]:
            calls += 1
            time.sleep(0.05)
        cpu_ms = (self._cpu_s() - cpu) * 1000
        return Line(what, cpu_ms, "ms CPU", None, below(CALL_MS), f"{calls} calls more")

    def walks(self) -> int:
        """How many commands that walk the store has run since the start."""
        return self._walks() - self._walked

    def close(self) -> None:
        self._client.close()

    def _timed(self, path: str) -> tuple[float, int]:
        begun_s = time.perf_counter()
        size = len(self._client.fetch(path))
        return (time.perf_counter() - begun_s) * 1000, size

    def _cpu_s(self) -> float:
        return sum(cpu_s(pid) for pid in self._pids)

    def _walks(self) -> int:
        commands = self._store.info("commandstats").items()
        walking = (text for name, text in commands if name.removeprefix("cmdstat_").partition("|")[0] in WALKING)
        return sum(int(text.partition("calls=")[2].partition(",")[0]) for text in walking)


def dashboard(sizes: Sizes) -> list[Line]:
    with server() as one:
        client = one.client()
        id, cursor = _fill(one, client, sizes)
        store = one.store()
        store.settle()
        calls = _Calls(one, store)
        now_ms = time.time_ns() // 1_000_000
        hours = ",".join(str(now_ms + n * HOUR_MS) for n in range(64))
        scrape, size = calls.first("/metrics, the first time", "/metrics", SCRAPE_MS)
        forecast, _ = calls.first("forecast over all topics, the first time", f"/v1/forecast?edges_ms={hours}", CALL_MS)
        whole = calls.complete("forecast over all topics, until it is complete", f"/v1/forecast?edges_ms={hours}")
        lines = [calls.line(*page) for page in _pages(id, cursor, now_ms, hours)]
        again = calls.line("/metrics", "/metrics", SCRAPE_MS)
        walks = calls.walks()
        calls.close()
        client.close()
    full = f"{sizes.dashboard_jobs:,} pending jobs, {sizes.dashboard_topics:,} topics"
    return [
        *lines,
        forecast,
        whole,
        scrape,
        again,
        Line("/metrics: size", size / 1000, "kB", None, below(SCRAPE_BYTES / 1000), full),
        Line("store commands that walk", walks, "", None, at_most(0), full),
    ]


def _pages(id: str, cursor: str, now_ms: int, hours: str) -> list[tuple[str, str]]:
    big = "/v1/topics/big"
    due = f"due_after_ms={now_ms + 12 * HOUR_MS}&due_before_ms={now_ms + 13 * HOUR_MS}"
    bands = ",".join(str(n * HOUR_MS) for n in range(1, 61))
    return [
        ("overview: readiness", "/readyz"),
        ("overview: charts", "/v1/charts?hours=24"),
        ("overview, topics: 500 topics", "/v1/topics?limit=500"),
        ("topics: a later page", f"/v1/topics?limit=500&cursor={cursor}"),
        ("topic", big),
        ("topic: forecast by bands", f"{big}?bands_ms={bands}"),
        ("topic: forecast", f"{big}/forecast?edges_ms={hours}"),
        ("forecast over all topics", f"/v1/forecast?edges_ms={hours}"),
        ("jobs: any state", f"{big}/jobs?limit=50&body=1"),
        ("jobs: scheduled", f"{big}/jobs?state=scheduled&limit=50&body=1"),
        ("jobs: ready", f"{big}/jobs?state=ready&limit=50&body=1"),
        ("jobs: of a tag", f"{big}/jobs?tag=vip&limit=50&body=1"),
        ("jobs: due within an hour", f"{big}/jobs?state=scheduled&{due}&limit=50&body=1"),
        ("job", f"{big}/jobs/{id}"),
        ("job: history", f"{big}/jobs/{id}/history"),
        ("dead letters: by reason", f"{big}/dead?limit=1&body=0"),
        ("dead letters: the newest", f"{big}/dead?newest=1&limit=500&body=1"),
        ("dead letters: of a tag", f"{big}/dead?tag=vip&limit=500&body=1"),
        ("push target", f"{big}/push"),
        ("push attempts", f"{big}/push/attempts?limit=100"),
        ("push attempts: of a job", f"{big}/push/attempts?id={id}&limit=50"),
        ("merge groups", f"{big}/groups?limit=50"),
        ("workers", "/v1/workers"),
        ("schedules", "/v1/schedules?limit=500"),
        ("schedule", "/v1/schedules/s7"),
        ("schedule: next runs", "/v1/schedules/s7/next?count=10"),
        ("namespaces", "/v1/namespaces?limit=200"),
        ("store: info", "/v1/info"),
        ("tokens", "/v1/tokens?limit=500"),
        ("audit log", "/v1/audit?limit=100"),
        ("events: a page", "/v1/events?wait_ms=0"),
    ]


def _fill(one: Server, client: Client, sizes: Sizes) -> tuple[str, str]:
    """Fill the store. Returns the id of a job, and a cursor in the middle of the topics."""
    count = sizes.dashboard_topics - 1  # and "big": a forecast over more topics than 5,000 is never complete
    run(Orders("topics", port=one.port, topic="many", connections=64, count=count))
    bulk = Orders("bulk", port=one.port, topic="big", delay_ms=(HOUR_MS, 30 * DAY_MS), connections=8)
    run(msgspec.structs.replace(bulk, count=sizes.dashboard_jobs, jobs_per_call=500))
    big = "/v1/topics/big"
    for at in range(0, TAGGED, 500):
        jobs = [{"id": f"vip-{at + n}", "body": {"n": n}, "delay_ms": DAY_MS + n, "tags": ["vip"]} for n in range(500)]
        client.call("POST", f"{big}/jobs", jobs)
    client.call("POST", f"{big}/jobs", [{"body": {"n": n}} for n in range(DEAD + 50)])
    held: list[dict[str, Any]] = client.call("POST", f"{big}/pull", {"max": DEAD})["jobs"]
    if len(held) != DEAD:
        raise Broken(f"{len(held)} jobs were pulled")
    dead = [{"id": job["id"], "lease": job["lease"], "discard": True, "error": "no such order"} for job in held]
    client.call("POST", f"{big}/release", {"jobs": dead})
    client.call("PUT", f"{big}/push", {"service": "billing", "paused": True})
    for n in range(100):
        client.call("PUT", f"/v1/schedules/s{n}", {"topic": "t", "cron": "0 0 1 1 *", "job": {"body": n}})
    merge = {"quiet_ms": HOUR_MS, "max_items": 100}
    grouped = [{"body": {"n": n}, "merge": {"key": f"k{n}", **merge}} for n in range(GROUPS)]
    client.call("POST", f"{big}/jobs", grouped)
    for n in range(WORKERS):
        about = {"host": "shop", "pid": n + 1, "version": "1", "topics": ["big"], "concurrency": 10, "started_at_ms": 1}
        client.call("PUT", f"/v1/workers/w{n}", about)
    page = client.call("GET", "/v1/topics?limit=500")
    return "vip-7", page["next_cursor"] or ""
