"""What a job costs a Python worker and its server: a worker in its own process, whose handler only counts, takes jobs
that are all due. One thread, ten threads, coroutines."""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median

from ..broken import Broken
from ..report import Line
from ..servers import Server, server
from ..sizes import Sizes
from ..usage import cpu_s

KINDS = (("one thread", "thread", 1), ("ten threads", "thread", 10), ("coroutines", "async", 100))
SENT = 500  # jobs per call


def worker(sizes: Sizes) -> list[Line]:
    lines: list[Line] = []
    count = int(sizes.round_s * 2_000)
    for name, mode, concurrency in KINDS:
        with server() as one:
            rounds = [_round(one, count, mode, concurrency) for _ in range(sizes.rounds)]
        per_s, own_us, product_us = (median(values) for values in zip(*rounds, strict=True))
        note = f"CPU per job: worker {own_us:.0f} us, server and store {product_us:.0f} us"
        details = {"worker_us": own_us, "product_us": product_us, "rounds": rounds}
        lines.append(Line(f"jobs of a worker, {name}", per_s, "/s", None, None, note, details))
    return lines


def _round(one: Server, count: int, mode: str, concurrency: int) -> tuple[float, float, float]:
    """Jobs per second; CPU us per job of the worker, and of server and store."""
    client, store = one.client(), one.store()
    for begin in range(0, count, SENT):
        jobs = [{"body": number} for number in range(begin, min(begin + SENT, count))]
        client.call("POST", "/v1/topics/work/jobs", jobs)
    client.close()
    pids = (one.pid, int(store.info("server")["process_id"]))
    before_s = sum(map(cpu_s, pids))
    done = subprocess.run(
        (sys.executable, "-m", "bench.consumer", str(one.port), str(count), mode, str(concurrency)),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Broken(f"the worker said: {done.stderr[-2000:]}")
    spent_s = sum(map(cpu_s, pids)) - before_s
    found = json.loads(done.stdout.splitlines()[-1])
    return count / found["seconds"], found["cpu_s"] / count * 1e6, spent_s / count * 1e6
