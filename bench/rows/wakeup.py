"""How soon a parked poll is answered when another process gets the send: from the send's first byte to the job."""

from __future__ import annotations

import time

from ..broken import Broken
from ..report import Line, middle, percentile
from ..servers import Client, folder, server
from ..sizes import Sizes

PARKED_S = 0.05  # the poll is parked by then, so that only the send is measured


def wakeup(sizes: Sizes) -> list[Line]:
    with folder() as place, server(place / "a") as a, server(place / "b", store=a.store_url) as b:
        poll, near, far = a.client(), a.client(), b.client()
        across: list[float] = []
        within: list[float] = []
        for number in range(sizes.wakeups + 2):
            apart_ms, same_ms = _woken_ms(poll, far), _woken_ms(poll, near)
            if number >= 2:  # the first ones make the topic known and subscribe
                across.append(apart_ms)
                within.append(same_ms)
        for client in (poll, near, far):
            client.close()
    note = f"base: both in one process; p99 {percentile(across, 0.99):.1f} ms; {len(across)} wake-ups, two fsyncs each"
    details = {"p99_ms": percentile(across, 0.99), "base_p99_ms": percentile(within, 0.99)}
    return [Line("poll woken by another process, median", middle(across), "ms", middle(within), None, note, details)]


def _woken_ms(poll: Client, sender: Client) -> float:
    poll.start("POST", "/v1/topics/wake/pull", {"max": 1, "wait_ms": 10_000})
    time.sleep(PARKED_S)
    begun_s = time.perf_counter()
    sender.start("POST", "/v1/topics/wake/jobs", {"body": 1})
    status, answer = poll.finish()
    woken_ms = (time.perf_counter() - begun_s) * 1000
    if status != 200 or len(answer["jobs"]) != 1:
        raise Broken(f"the parked poll was answered {status}: {answer}")
    if sender.finish()[0] != 201:
        raise Broken("the send that should wake the poll was refused")
    [job] = answer["jobs"]
    poll.call("POST", "/v1/topics/wake/ack", {"jobs": [{"id": job["id"], "lease": job["lease"]}]})
    return woken_ms
