"""How many pending jobs affect the cost of a send and a pull: two servers, one with few and one with many, in turns.

    life    whole HTTP lives (send, pull, ack) at the head of the full topic; the number of pending jobs stays the same
    send    single sends with random due times, into the middle of the topic
    store   the store's own time for such sends, 100 per call so that both sides have the same batches

The shallow side uses a fresh topic of its size for every round, because a few thousand sends would make it deep.
"""

from __future__ import annotations

import msgspec

from ..loading import Orders, run
from ..report import Line, at_most, middle
from ..servers import Server, server
from ..sizes import Sizes

LIFE_S = 1.5
SINGLE_SENDS = 5_000
STORE_SENDS = 4_000
RANDOM_MS = (3_600_000, 86_400_000)


class _Side:
    """One server whose topics hold `jobs` each."""

    def __init__(self, one: Server, jobs: int, fresh: bool) -> None:
        self._server = one
        self._client = one.client()
        self._store = one.store()
        self._jobs = jobs
        self._fresh = fresh
        self.life_us: list[float] = []
        self.send_us: list[float] = []
        self.store_us: list[float] = []

    def fill(self, topic: str) -> None:
        # Without tombstones, because ended jobs would also add depth.
        self._client.call("PUT", f"/v1/topics/{topic}", {"retain_ms": 0})
        self._run("bulk", topic, connections=4, count=self._jobs, jobs_per_call=500)
        self._store.settle()

    def round(self, number: int) -> None:
        topic = f"depth-{number}" if self._fresh else "depth"
        if self._fresh:
            self.fill(topic)
        self.life_us.append(1e6 / self._run("life", topic, seconds=LIFE_S, warm_s=0.2))
        self.send_us.append(1e6 / self._run("send", topic, count=SINGLE_SENDS))
        before = self._script_us()
        self._run("bulk", topic, connections=1, count=STORE_SENDS)
        self.store_us.append((self._script_us() - before) / STORE_SENDS)

    def close(self) -> None:
        self._client.close()

    def _run(
        self,
        work: str,
        topic: str,
        *,
        connections: int = 64,
        count: int | None = None,
        seconds: float = 0.0,
        warm_s: float = 0.0,
        jobs_per_call: int = 100,
    ) -> float:
        orders = Orders(work, port=self._server.port, topic=topic, delay_ms=RANDOM_MS, connections=connections)
        return run(
            msgspec.structs.replace(orders, count=count, seconds=seconds, warm_s=warm_s, jobs_per_call=jobs_per_call)
        ).per_s

    def _script_us(self) -> int:
        calls = self._store.info("commandstats").get("cmdstat_evalsha", "")
        return int(dict(pair.split("=") for pair in calls.split(",") if pair).get("usec", 0))


def depth(sizes: Sizes) -> list[Line]:
    with server() as small, server() as large:
        shallow, deep = _Side(small, sizes.shallow_jobs, fresh=True), _Side(large, sizes.deep_jobs, fresh=False)
        deep.fill("depth")
        for number in range(sizes.depth_rounds):
            shallow.round(number)
            deep.round(number)
        shallow.close()
        deep.close()
    many = f"{sizes.deep_jobs:,} pending against {sizes.shallow_jobs:,}"
    return [
        _line("cost of a life (send, pull, ack)", deep.life_us, shallow.life_us, 1.5, many),
        _line("cost of a send at a random time", deep.send_us, shallow.send_us, 1.5, many),
        _line("store time of a send at a random time", deep.store_us, shallow.store_us, 2.5, many),
    ]


def _line(what: str, deep: list[float], shallow: list[float], target: float, note: str) -> Line:
    details = {"rounds": deep, "base_rounds": shallow}
    return Line(what, middle(deep), "us", middle(shallow), at_most(target), note, details)
