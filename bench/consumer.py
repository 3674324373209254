"""A worker in its own process, whose handler only counts. Started by the row "worker".

    python -m bench.consumer PORT COUNT MODE CONCURRENCY     prints one line of JSON: {"seconds": ..., "cpu_s": ...}

The time begins with the first job. PREFETCH in the environment: the worker's `prefetch`; "none": it does not have one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from dueline.worker import Worker

TOPIC = "work"
PATIENCE_S = 120.0


async def main(port: int, count: int, mode: Any, concurrency: int) -> None:
    prefetch = os.environ.get("PREFETCH", "")
    options: dict[str, Any] = {} if prefetch in ("", "none") else {"prefetch": int(prefetch)}
    worker = Worker(f"http://127.0.0.1:{port}", **options)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    done, began_s, began_cpu_s = 0, 0.0, 0.0

    def counted() -> None:
        nonlocal done, began_s, began_cpu_s
        if not done:
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
        done += 1
        if done == count:
            loop.call_soon_threadsafe(ended.set)

    async def coroutine(body: bytes) -> None:
        counted()

    def function(body: bytes) -> None:
        counted()

    worker.handles(TOPIC, mode=mode, concurrency=concurrency)(coroutine if mode == "async" else function)
    await worker.start()
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()
    await worker.stop()  # with the last acks
    print(json.dumps({"seconds": time.perf_counter() - began_s, "cpu_s": time.process_time() - began_cpu_s}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
