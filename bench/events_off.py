"""CPU of the batching path of a send: with the hook of the event stream, nobody listening, against without it.

    python -m bench.events_off

Both forms run in turns in one process; the median of the ratios is what counts. There is no store: the run of a batch
returns at once, so the share of the hook is as large as it can be.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from dueline.engine.limits import Limits
from dueline.engine.store import Ref
from dueline.store.valkey import batching

CALLS, ROUNDS = 20_000, 15


class Bare(batching.Batcher[Any, Any]):
    """The same batcher without the test."""

    async def _work(self, lane: int) -> None:
        loop = asyncio.get_running_loop()
        last: Any = batching._nothing
        try:
            while self._queue and (len(self._tasks) == 1 or self._jobs >= batching.SECOND_LANE_JOBS):
                batch, items = self._take(lane)
                if not batch:
                    break
                if last is batching._nothing:
                    results = await batching._result(self._run(items, lane))
                else:
                    call = loop.create_task(batching._result(self._run(items, lane)))
                    last()
                    results = await call
                last = batching.partial(batching._settle, batch, results)
        finally:
            del self._tasks[lane]
            self._flying.pop(lane, None)
            if not self._tasks:
                self._idle()
            last()


async def spent_s(kind: type[batching.Batcher[Any, Any]]) -> float:
    async def run(items: list[Any], lane: int) -> list[Any]:
        return items

    batcher = kind(run, lambda item: item.id, lambda item: 64, lambda: None, Limits())
    item = [Ref("a")]
    begun_s = time.process_time()
    for _ in range(CALLS):
        await batcher.call(item)
    return time.process_time() - begun_s


async def main() -> None:
    await spent_s(Bare)
    pairs = [(await spent_s(Bare), await spent_s(batching.Batcher)) for _ in range(ROUNDS)]
    bare, hooked = (statistics.median(one[i] for one in pairs) / CALLS * 1e6 for i in (0, 1))
    ratio = statistics.median(one[1] / one[0] for one in pairs)
    print(f"us per batch of one: without the hook {bare:.2f}, with it {hooked:.2f}; ratio (median) {ratio:.3f}")


if __name__ == "__main__":
    asyncio.run(main())
