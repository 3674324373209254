"""What many schedules cost while none of them comes: one job's memory each, and nothing else.

The base is an ordinary job with the same id, a tag of the same size and as many bytes of body as the stored form of the
schedule has, in the same store.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dueline.engine.commands import Send
from dueline.engine.job import BodyKind, Partition
from dueline.engine.limits import INTERNAL_NAMESPACE
from dueline.engine.schedule import Schedule
from dueline.engine.stored_schedule import TAG, StoredSchedule, home_topic, pack
from dueline.store.valkey.keys import partition_keys

from ..broken import Broken
from ..report import Line, at_most, below
from ..servers import Client, Server, StoreConnection, server
from ..sizes import Sizes
from .idle import idle_cost

NAMESPACE = "default"
CONNECTIONS = 32
JOBS_PER_CALL = 100
CRON, ZONE = "0 0 1 1 *", "Europe/Madrid"  # next year; if a year begins in this run, the run is no good
TEMPLATE = {"body": {"kind": "daily"}}
DUE_MS = 30 * 86_400_000


def resting(sizes: Sizes) -> list[Line]:
    count = sizes.resting_schedules
    stored = pack(StoredSchedule(Schedule("t", Send(None, b'{"kind":"daily"}', BodyKind.JSON), CRON, ZONE), 2**40))
    body = base64.b64encode(stored).decode()

    def put(client: Client, first: int, last: int) -> None:
        for number in range(first, last):
            client.call("PUT", f"/v1/schedules/s{number:07}", {"topic": "t", "cron": CRON, "tz": ZONE, "job": TEMPLATE})

    def send(client: Client, first: int, last: int) -> None:
        for at in range(first, last, JOBS_PER_CALL):
            jobs = [
                {"id": f"s{number:07}", "body_base64": body, "delay_ms": DUE_MS, "tags": [TAG]}
                for number in range(at, min(at + JOBS_PER_CALL, last))
            ]
            client.call("POST", "/v1/topics/ordinary/jobs", jobs)

    with server() as one:
        _make(one, send, count)
        begun_s = time.monotonic()
        _make(one, put, count)
        per_s = count / (time.monotonic() - begun_s)
        cost = idle_cost(one, sizes.quiet_s)
        store = one.store()
        each_job = _bytes_of(store, Partition(NAMESPACE, "ordinary")) / count
        each = _bytes_of(store, Partition(INTERNAL_NAMESPACE, home_topic(NAMESPACE))) / count
        client = one.client()
        found = len(client.call("GET", "/v1/schedules?limit=500")["schedules"])
        client.close()
    if found != min(count, 500):
        raise Broken(f"{found} schedules are listed")
    note = f"{count:,} schedules, {cost.seconds:.0f} s"
    details = {"schedules": count, "made_per_s": per_s, "stored_bytes": len(stored)}
    return [
        Line("resting schedule: memory", each, "B", each_job, at_most(1.1), f"base: a job of {len(stored)} B", details),
        Line("resting schedules: store commands", cost.commands_per_s, "/s", None, below(5), note),
        Line("resting schedules: server CPU", cost.server_cpu, "%", None, below(1), note),
        Line("resting schedules: store CPU", cost.store_cpu, "%", None, None, note),
    ]


def _make(one: Server, make: Callable[[Client, int, int], None], count: int) -> None:
    clients = [one.client() for _ in range(CONNECTIONS)]
    edges = [count * part // CONNECTIONS for part in range(CONNECTIONS + 1)]
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for done in [threads.submit(make, *each) for each in zip(clients, edges[:-1], edges[1:], strict=True)]:
            done.result()
    for client in clients:
        client.close()


def _bytes_of(store: StoreConnection, partition: Partition) -> int:
    """The memory of all keys of a partition. What the store has besides, such as the audit log, is not counted."""
    keys = partition_keys("dueline", partition).keys
    return sum(int(store.ask("MEMORY", "USAGE", key, "SAMPLES", "0") or 0) for key in keys)
