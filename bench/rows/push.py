"""Push to a target on the same two cores: calls per second, and how late a job's call arrives.

Lateness is measured at the target, from the due time to the moment when the call was read. It includes the pull with
its fsync and the call itself. It is measured twice: alone, and while another topic's target hangs with all its slots
taken. A call before the due time is an error.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec

from dueline.testing.process import free_port

from ..broken import Broken
from ..report import Line, percentile
from ..servers import Client, Server, folder
from ..sizes import Sizes
from ..usage import Meter, cpu_s

HOOK = Path(__file__).parents[1] / "hook.py"
CONCURRENCY = 64
JOBS_PER_CALL = 500
LEAD_S = 1.5
HANGING_JOBS = 64


class Hook:
    """A target that exits after `count` calls."""

    def __init__(self, count: int) -> None:
        self.port = free_port()
        words = [sys.executable, "-S", "-E", str(HOOK), str(self.port), str(count)]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it listens

    def result(self) -> dict[str, Any]:
        out, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise Broken(f"the push target ended with {self._process.returncode}")
        return msgspec.json.decode(out)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def push(sizes: Sizes) -> list[Line]:
    per_s, cpu_us = _throughput(sizes)
    alone = _lateness(sizes, hang=False)
    beside = _lateness(sizes, hang=True)
    note = f"{sizes.push_due_per_s:,} due/s, at the target, early 0"
    return [
        Line("push calls/s to one target", per_s, "/s", note=f"{sizes.push_jobs:,} jobs, {CONCURRENCY} at once"),
        Line("CPU of a push call, server", cpu_us["server"], "us", note=f"store {cpu_us['store']:.0f} us"),
        Line("push lateness p50", percentile(alone, 0.5), "ms", note=note, details={"worst_ms": max(alone)}),
        Line("push lateness p99", percentile(alone, 0.99), "ms"),
        Line(
            "push lateness p50, another target hangs",
            percentile(beside, 0.5),
            "ms",
            percentile(alone, 0.5),
            note=f"{HANGING_JOBS} jobs of the hanging target wait, 16 of its calls are open",
            details={"worst_ms": max(beside)},
        ),
        Line("push lateness p99, another target hangs", percentile(beside, 0.99), "ms", percentile(alone, 0.99)),
    ]


@contextlib.contextmanager
def _server() -> Generator[Server]:
    """A server that may call this machine."""
    with folder() as place:
        config = place / "bench.toml"
        config.write_text('[push]\nallow = ["127.0.0.1"]\n')
        one = Server(place / "data", arguments=("--config", str(config)))
        try:
            one.start()
            yield one
        finally:
            one.stop()


def _throughput(sizes: Sizes) -> tuple[float, dict[str, float]]:
    """Calls per second from resuming a paused target to the last call, with all jobs already due; CPU us per call."""
    hook = Hook(sizes.push_jobs)
    try:
        with _server() as one:
            client = one.client()
            target = {"url": f"http://127.0.0.1:{hook.port}/", "concurrency": CONCURRENCY, "paused": True}
            client.call("PUT", "/v1/topics/fast/push", target)
            for start in range(0, sizes.push_jobs, JOBS_PER_CALL):
                size = min(JOBS_PER_CALL, sizes.push_jobs - start)
                client.call("POST", "/v1/topics/fast/jobs", [{"body": "x" * 98}] * size)
            pids = Meter(one).pids
            before_s = {name: cpu_s(pid) for name, pid in pids.items()}
            begun_ns = time.time_ns()
            client.call("POST", "/v1/topics/fast/push/resume", {})
            at_ns: list[int] = hook.result()["at_ns"]
            _all_done(client, "fast")
            cpu_us = {name: 1e6 * (cpu_s(pid) - before_s[name]) / sizes.push_jobs for name, pid in pids.items()}
            client.close()
    finally:
        hook.kill()
    return sizes.push_jobs / ((at_ns[-1] - begun_ns) / 1e9), cpu_us


def _lateness(sizes: Sizes, hang: bool) -> list[float]:
    count = int(sizes.push_due_per_s * sizes.lateness_s)
    hook = Hook(count)
    try:
        with _server() as one:
            client = one.client()
            if hang:
                url = f"http://127.0.0.1:{hook.port}/hang"
                client.call("PUT", "/v1/topics/hanging/push", {"url": url, "concurrency": 16, "timeout_ms": 300_000})
                client.call("POST", "/v1/topics/hanging/jobs", [{"body": "x"}] * HANGING_JOBS)
            target = {"url": f"http://127.0.0.1:{hook.port}/", "concurrency": CONCURRENCY}
            client.call("PUT", "/v1/topics/timely/push", target)
            _send_due(client, count, sizes.push_due_per_s)
            found = hook.result()
            client.close()
    finally:
        hook.kill()
    if hang and found["hanging"] != 16:
        raise Broken(f"{found['hanging']} calls hang, and 16 should")
    late_ms = [late_us / 1000 for late_us in found["late_us"]]
    if min(late_ms) < 0:
        raise Broken(f"a job was called in {-min(late_ms):.3f} ms early")
    return late_ms


def _send_due(client: Client, count: int, per_s: int) -> None:
    first_ms = time.time() * 1000 + (LEAD_S + count / 4_000) * 1000
    for start in range(0, count, JOBS_PER_CALL):
        places = range(start, min(start + JOBS_PER_CALL, count))
        jobs = [{"at_ms": int(first_ms + place * 1000 / per_s), "body": "x" * 98} for place in places]
        client.call("POST", "/v1/topics/timely/jobs", jobs)
    if time.time() * 1000 > first_ms:
        raise Broken(f"{count} jobs were not sent before the first of them was due: this machine is too busy")


def _all_done(client: Client, topic: str) -> None:
    """All calls were answered; wait until the last acks are in the store too."""
    counts: dict[str, int] = {}
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        counts = client.call("GET", f"/v1/topics/{topic}")["counts"]
        if not counts["ready"] and not counts["leased"] and not counts["scheduled"]:
            return
        time.sleep(0.05)
    raise Broken(f"jobs are left over after their calls: {counts}")
