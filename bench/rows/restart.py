"""The time from restarting a killed server to its first answered pull.

The append-only file is in its worst allowed state: just below the growth that triggers a rewrite, and grown by single
sends, which are the slowest to load. The short form uses fewer jobs and scales the time beyond an empty start.
"""

from __future__ import annotations

import time

from ..broken import Broken
from ..loading import Orders, run
from ..report import Line, at_most, middle
from ..servers import Client, Server, StoreConnection, folder
from ..sizes import Sizes

PROMISED_JOBS = 1_000_000
GROWTH = 0.38  # of the 40 % at which the embedded store rewrites
PROBE_SENDS = 2_000
PATIENCE_S = 120.0
TIMES = 3


def restart(sizes: Sizes) -> list[Line]:
    with folder() as place:
        one = Server(place / "data")
        try:
            one.start()
            empty_s = middle([_restart_s(one) for _ in range(TIMES)])
            growth = _fill(one, sizes.restart_jobs)
            loaded_s = middle([_restart_s(one) for _ in range(TIMES)])
            pending = one.client().call("GET", "/v1/topics/bench")["counts"]["scheduled"]
        finally:
            one.stop()
    if pending != sizes.restart_jobs:
        raise Broken(f"{pending} jobs are pending after the restart, {sizes.restart_jobs} were sent")
    scaled_s = empty_s + max(0.0, loaded_s - empty_s) * PROMISED_JOBS / sizes.restart_jobs
    note = f"append-only file grown by {growth:.0%}; an empty start takes {empty_s:.2f} s"
    if sizes.restart_jobs != PROMISED_JOBS:
        note = f"scaled from {loaded_s:.2f} s with {sizes.restart_jobs:,}; {note}"
    details = {"jobs": sizes.restart_jobs, "seconds": loaded_s, "empty_s": empty_s, "growth": growth}
    return [Line(f"restart with {PROMISED_JOBS:,} pending", scaled_s, "s", None, at_most(5), note, details)]


def _fill(one: Server, jobs: int) -> float:
    """Fill the store until its file has grown by GROWTH since the last rewrite. Returns the growth reached."""
    store = one.store()
    half = jobs // 2
    _bulk(one, half)
    store.rewrite()
    per_job = _size(store, "aof_base_size") / half
    before = _size(store, "aof_current_size")
    run(Orders("send", port=one.port, count=PROBE_SENDS))
    per_single = (_size(store, "aof_current_size") - before) / PROBE_SENDS
    singles = int(GROWTH * jobs * per_job / (per_single + GROWTH * per_job))
    _bulk(one, jobs - half - PROBE_SENDS - singles)
    store.rewrite()
    run(Orders("send", port=one.port, count=singles))
    return _size(store, "aof_current_size") / _size(store, "aof_base_size") - 1


def _bulk(one: Server, count: int) -> None:
    run(Orders("bulk", port=one.port, connections=4, count=count, jobs_per_call=500))


def _size(store: StoreConnection, name: str) -> int:
    return store.number(name)


def _restart_s(one: Server) -> float:
    """Kill everything, start again, and pull until a job arrives."""
    client = one.client()
    client.call("POST", "/v1/topics/due/jobs", {"body": 1})
    client.close()
    one.kill()
    begun_s = time.perf_counter()
    one.launch()
    while time.perf_counter() - begun_s < PATIENCE_S:
        try:
            client = Client(one.port)
        except OSError:
            time.sleep(0.005)
            continue
        try:
            client.start("POST", "/v1/topics/due/pull", {"max": 1})
            status, answer = client.finish()
            if status == 200 and answer["jobs"]:
                return time.perf_counter() - begun_s
        except OSError:
            pass
        finally:
            client.close()
        time.sleep(0.005)
    raise Broken(f"no pull was answered {PATIENCE_S:.0f} s after the restart:\n{one.log()[-2000:]}")
