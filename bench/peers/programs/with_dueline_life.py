"""Dueline's Python library for one measurement, in one process, as `with_bullmq.mjs` does it: a client that sends one
job a call, 64 at once, and for whole lives a worker with the same concurrency. A tenth of the jobs come first, to warm
up. The URL is that of a server, or that of a store, which is used without a server then.

    python with_dueline_life.py '{"work": "life", "url": "http://127.0.0.1:9277", "at_once": 64, "count": 20000,
                                  "body_bytes": 100}'
    prints one line of JSON: {"done": 20000, "seconds": 3.2, "cpu_s": 2.8}
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from dueline.worker import Worker, connect


async def main(orders: dict[str, Any]) -> None:
    is_life, at_once = orders["work"] == "life", orders["at_once"]
    topic, body = f"library-{orders['work']}", "x" * (orders["body_bytes"] - 2)
    delay = 0 if is_life else "1h"
    queue = connect(orders["url"])
    worker = Worker(queue=queue, concurrency=at_once)
    missing, finished = 0, asyncio.Event()

    @worker.handles(topic)
    async def handle(body: str) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            finished.set()

    async def run(count: int) -> dict[str, float]:
        nonlocal missing
        missing, left = count, iter(range(count))
        finished.clear()

        async def sends() -> None:
            for _ in left:
                await queue.send(topic, body, delay=delay)

        begun_s, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(sends() for _ in range(at_once)))
        if is_life:
            await finished.wait()
        return {"seconds": time.perf_counter() - begun_s, "cpu_s": time.process_time() - cpu_s}

    await queue.start()
    if is_life:
        await worker.start()
    await run(-(-orders["count"] // 10))
    found = await run(orders["count"])
    if is_life:
        await worker.stop()
    await queue.close()
    print(json.dumps({"done": orders["count"], **found}))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
