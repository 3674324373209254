"""How late the job of an occurrence is beside an ordinary job that is due at the same moment, in one run.

Schedules come every second. For each second, as many ordinary jobs were sent two seconds before. Both kinds are pulled
by long polls from topics of their own, and acked. Lateness is the time from the occurrence to the answer of the pull,
with the fsync of the pull. The job of an occurrence is sent ahead, so both should be equal.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from ..broken import Broken
from ..machine import fsync_ms
from ..report import Line, percentile
from ..servers import Client, Server, server
from ..sizes import Sizes

SCHEDULES = 50
LEAD_S = 2
WAIT_MS = 1_000


def schedules(sizes: Sizes) -> list[Line]:
    with server() as one:
        fsync = fsync_ms(one.data)
        client = one.client()
        for number in range(SCHEDULES):
            client.call("PUT", f"/v1/schedules/s{number}", {"topic": "occurring", "every": "1s", "job": {"body": 1}})
        first_s = int(time.time()) + LEAD_S + 1
        last_s = first_s + int(sizes.lateness_s) - 1
        pulls = [_Pulls(one, topic, first_s, last_s) for topic in ("occurring", "ordinary")]
        for one_topic in pulls:
            one_topic.start()
        for second in range(first_s, last_s + 1):
            _send_ordinary(client, second)
        for one_topic in pulls:
            one_topic.join()
        client.close()
    return _lines(pulls[0].late_ms, pulls[1].late_ms, SCHEDULES * int(sizes.lateness_s), fsync)


class _Pulls(threading.Thread):
    """Long polls of one topic, until all jobs of these seconds have come. Jobs of other seconds are not measured."""

    def __init__(self, one: Server, topic: str, first_s: int, last_s: int) -> None:
        super().__init__(daemon=True)
        self.late_ms: list[float] = []
        self._client = one.client()
        self._path = f"/v1/topics/{topic}"
        self._first_ms, self._last_ms = first_s * 1000, last_s * 1000

    def run(self) -> None:
        count = ((self._last_ms - self._first_ms) // 1000 + 1) * SCHEDULES
        end_s = self._last_ms / 1000 + 30
        while len(self.late_ms) < count and time.time() < end_s:
            jobs = self._client.call("POST", f"{self._path}/pull", {"max": 100, "wait_ms": WAIT_MS})["jobs"]
            now_ms = time.time_ns() / 1e6
            moments_ms = [_moment_ms(job) for job in jobs]
            self.late_ms += [now_ms - at_ms for at_ms in moments_ms if self._first_ms <= at_ms <= self._last_ms]
            if jobs:
                refs = [{"id": job["id"], "lease": job["lease"]} for job in jobs]
                self._client.call("POST", f"{self._path}/ack", {"jobs": refs})
        self._client.close()


def _moment_ms(job: dict[str, Any]) -> int:
    """When the job was wanted. An occurrence's job that was sent too late has a later due time: when it was sent."""
    _, at, occurrence = job["id"].rpartition("@")
    return int(occurrence) if at else job["due_at_ms"]


def _send_ordinary(client: Client, second: int) -> None:
    time.sleep(max(0.0, second - LEAD_S - time.time()))
    jobs = [{"at_ms": second * 1000, "body": 1} for _ in range(SCHEDULES)]
    client.call("POST", "/v1/topics/ordinary/jobs", jobs)


def _lines(occurring: list[float], ordinary: list[float], count: int, fsync: float) -> list[Line]:
    if (len(occurring), len(ordinary)) != (count, count):
        raise Broken(f"{len(occurring)} jobs of occurrences and {len(ordinary)} ordinary ones of {count} each")
    early = sum(late_ms < 0 for late_ms in (*occurring, *ordinary))
    if early:
        raise Broken(f"{early} jobs were delivered early, by up to {-min(*occurring, *ordinary):.1f} ms")
    note = f"base: ordinary jobs due at the same moments; {SCHEDULES} each per second, fsync median {fsync:.2f} ms"
    return [
        Line(
            f"job of an occurrence, lateness p{share * 100:.0f}",
            percentile(occurring, share),
            "ms",
            percentile(ordinary, share),
            None,
            note if share == 0.5 else "",
            {"jobs": count, "early": early, "worst_ms": max(occurring), "base_worst_ms": max(ordinary)},
        )
        for share in (0.5, 0.99)
    ]
