"""How the cost of an operation grows: CPU time of server and store against pending jobs, topics, waiting pulls, the
size of a body and the size of a batch.

    pending   sends at random times into one topic, and whole lives at its head
    topics    sends to one topic after another, of a number that have jobs; each is its own script call
    waiters   whole lives while a number of pulls wait for the jobs of the topic
    body      whole lives with bodies of a number of bytes
    batch     sends of a number of jobs per call, and pulls and acks of the same number

A curve may grow with the logarithm of its number, because jobs are kept in order. With the size of a body it may grow
by so much a byte. The cost of a job in a batch may only fall. Each is judged at its worst points; 15 % are noise.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from ..broken import Broken
from ..loading import Load, Orders, run
from ..report import Line, at_most
from ..servers import Server, server
from ..sizes import Sizes
from ..usage import Meter, Usage, cpu_s, median

RANDOM_MS = (3_600_000, 86_400_000)
NOISE = 1.15
READY_S = 60.0
LOOK_S = 0.05
MOST_BYTES = 100_000_000  # of all bodies of a round
IN_FLIGHT_BYTES = 4 << 20
"""Of all bodies that are sent at once: a quarter of `limits.max_queued_bytes`, above which sends are refused."""
LINEAR_FROM = 16_384
"""Below this size, the rest of a call hides what its bytes cost."""
ALL_CONNECTIONS = {"DUELINE_SERVER__MAX_CONNECTIONS": "18000", "DUELINE_SERVER__MAX_CONNECTIONS_PER_ADDRESS": "18000"}


class Point(msgspec.Struct, frozen=True):
    """The cost at one number."""

    n: int
    server_us: float
    store_us: float

    @property
    def us(self) -> float:
        return self.server_us + self.store_us


def growth(sizes: Sizes) -> list[Line]:
    curves: dict[str, list[Point]] = {}
    for measure in (_pending, _topics, _waiters, _body, _batch):
        curves.update(measure(sizes))
    return [growth_line(what, points, JUDGES.get(what, logarithmic)) for what, points in curves.items()]


def logarithmic(points: Sequence[Point]) -> float:
    """The worst growth between any two points, as a share of the growth of the logarithm."""
    return max(
        later.us / sooner.us / (math.log(later.n + 2) / math.log(sooner.n + 2))
        for sooner, later in itertools.combinations(points, 2)
    )


def linear(points: Sequence[Point]) -> float:
    """The worst cost of a byte, as a share of that in the middle of the curve."""
    first = points[0]
    per_byte = [(point.us - first.us) / (point.n - first.n) for point in points[1:] if point.n >= LINEAR_FROM]
    return max(per_byte) / per_byte[0] if per_byte and per_byte[0] > 0 else 1.0


def falling(points: Sequence[Point]) -> float:
    """The worst cost of a job, as a share of the cost in a smaller batch."""
    return max(later.us / sooner.us for sooner, later in itertools.pairwise(points))


JUDGES: Mapping[str, Callable[[Sequence[Point]], float]] = {
    "a life by bytes of body": linear,
    "a sent job by batch": falling,
    "a pulled and acked job by batch": falling,
}


def growth_line(what: str, points: Sequence[Point], judge: Callable[[Sequence[Point]], float]) -> Line:
    shown = ", ".join(f"{point.n:,}: {point.server_us:.0f} + {point.store_us:.0f}" for point in points)
    curve = [[point.n, point.server_us, point.store_us] for point in points]
    details = {"points": curve, "linear": judge is linear}
    note = f"us of server + store at {shown}"
    return Line(f"growth of {what}, of what is allowed", judge(points), "x", None, at_most(NOISE), note, details)


def _point(n: int, rounds: Sequence[Usage]) -> Point:
    used = median(rounds)
    return Point(n, used.cpu_us["server"], used.cpu_us["store"])


def _rounds(meter: Meter, orders: Orders, sizes: Sizes) -> list[Usage]:
    return [meter.run(orders) for _ in range(sizes.growth_rounds)]


def _pending(sizes: Sizes) -> dict[str, list[Point]]:
    sends, lives, filled = list[Point](), list[Point](), 0
    with server() as one:
        meter = Meter(one)
        orders = _retaining_nothing(one, "deep").counting(sizes.growth_calls)
        for n in sizes.growth_pending:
            run(msgspec.structs.replace(orders, work="bulk", connections=4, count=n - filled, jobs_per_call=500))
            filled = n + sizes.growth_rounds * sizes.growth_calls
            sends.append(_point(n, _rounds(meter, orders, sizes)))
            lives.append(_point(n, _rounds(meter, msgspec.structs.replace(orders, work="life"), sizes)))
    return {"a send by pending jobs": sends, "a life by pending jobs": lives}


def _topics(sizes: Sizes) -> dict[str, list[Point]]:
    points = list[Point]()
    with server() as one:
        meter = Meter(one)
        for n in sizes.growth_topics:
            orders = Orders("topics", port=one.port, topic="many", topics=n, count=n)
            run(orders)  # one job in each
            points.append(_point(n, _rounds(meter, orders.counting(sizes.growth_calls), sizes)))
    return {"a send by topics": points}


def _waiters(sizes: Sizes) -> dict[str, list[Point]]:
    points = list[Point]()
    with server(environment=ALL_CONNECTIONS) as one:
        for n in sizes.growth_waiters:
            points.append(_waited(one, n, sizes))
    return {"a life by waiting pulls": points}


def _waited(one: Server, n: int, sizes: Sizes) -> Point:
    """Jobs sent to a topic for which this many pulls wait."""
    topic, client = f"waited-{n}", one.client()
    client.call("PUT", f"/v1/topics/{topic}", {"retain_ms": 0})
    waiting = Load(Orders("wait", port=one.port, topic=topic, connections=n))
    pids = Meter(one).pids
    try:
        _until(lambda: _waiting(client.fetch("/metrics")) >= n, f"{n} pulls wait")
        before_s = {name: cpu_s(pid) for name, pid in pids.items()}
        count = sizes.growth_calls
        run(Orders("send", port=one.port, topic=topic, delay_ms=(0, 0), count=count))
        _until(lambda: not any(client.call("GET", f"/v1/topics/{topic}")["counts"].values()), "all jobs are acked")
        spent_us = {name: 1e6 * (cpu_s(pid) - before_s[name]) / count for name, pid in pids.items()}
    finally:
        waiting.kill()
    _until(lambda: _waiting(client.fetch("/metrics")) == 0, "no pull waits")
    client.close()
    return Point(n, spent_us["server"], spent_us["store"])


def _waiting(metrics: bytes) -> float:
    found = [line for line in metrics.decode().splitlines() if line.startswith("dueline_longpoll_waiters")]
    return sum(float(line.split()[-1]) for line in found)


def _until(is_true: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + READY_S
    while not is_true():
        if time.monotonic() > until_s:
            raise Broken(f"still waiting until {what}")
        time.sleep(LOOK_S)


def _body(sizes: Sizes) -> dict[str, list[Point]]:
    points = list[Point]()
    with server() as one:
        meter, orders = Meter(one), _retaining_nothing(one, "bodies")
        for size in sizes.growth_bodies:
            count = max(100, min(sizes.growth_calls, MOST_BYTES // size))
            at_once = min(orders.connections, IN_FLIGHT_BYTES // size)
            lives = msgspec.structs.replace(orders, work="life", body_bytes=size, count=count, connections=at_once)
            points.append(_point(size, _rounds(meter, lives, sizes)))
    return {"a life by bytes of body": points}


def _batch(sizes: Sizes) -> dict[str, list[Point]]:
    sends, takes = list[Point](), list[Point]()
    with server() as one:
        meter, orders = Meter(one), _retaining_nothing(one, "batches")
        for n in sizes.growth_batches:
            count = max(sizes.growth_calls, 16 * n)
            bulk = msgspec.structs.replace(orders, work="bulk", count=count, connections=16, jobs_per_call=n)
            due = msgspec.structs.replace(bulk, delay_ms=(0, 0))
            take = msgspec.structs.replace(due, work="consume")
            sends.append(_point(n, _rounds(meter, bulk, sizes)))
            taken = list[Usage]()
            for _ in range(sizes.growth_rounds):
                run(due)
                taken.append(meter.run(take))
            takes.append(_point(n, taken))
    return {"a sent job by batch": sends, "a pulled and acked job by batch": takes}


def _retaining_nothing(one: Server, topic: str) -> Orders:
    """Orders for a topic whose ended jobs leave nothing behind, because that would add depth."""
    client = one.client()
    client.call("PUT", f"/v1/topics/{topic}", {"retain_ms": 0})
    client.close()
    return Orders("send", port=one.port, topic=topic, delay_ms=RANDOM_MS)
