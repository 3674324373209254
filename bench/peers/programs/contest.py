"""The shared part of every contestant's program. It reads orders and writes answers, one JSON line each. Standard
library only, because it runs in every peer's environment.

    python contest.py with_celery

A contestant's module defines `WAYS` (how it sends one at a time, 50 at once and in bulk, made by the functions below)
and `send_due(due_ms)`, which schedules its task `record` for that time. It is imported by its own name, so that its
tasks have the same names here and in its worker. It may define `start()`, which is awaited first.

order {"do": "send", "way": "one", "seconds": 1.0}   answer {"sent": 1234, "seconds": 1.0003, "cpu_s": 0.7}
      {"do": "due", "at_ms": [...]}                         {"sent": 30}
      {"do": "stored"}                                      {"stored": 5678}; Dueline only, see `sending`
      {"do": "versions", "of": ["celery", ...]}             {"celery": "5.7.0", ...}
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

STORE_URL = os.environ.get("CONTEST_STORE", "redis://127.0.0.1:6379/0")
BODY = {"order": 1234567, "customer": "0f8c4b1e-5f0a-4d57-9f8e-0c9f6b1d2a3c", "amount": "129.90", "currency": "EUR"}
DELAY_S = 3600
AT_ONCE = 50
BULK_JOBS = 1000

Sent = tuple[int, float]
Way = Callable[[float], "Sent | Awaitable[Sent]"]


def one(send: Callable[[], object]) -> Way:
    """One after the other, from one thread."""

    def way(seconds: float) -> Sent:
        sent, begun = 0, time.perf_counter()
        end = begun + seconds
        while time.perf_counter() < end:
            send()
            sent += 1
        return sent, time.perf_counter() - begun

    return way


def one_awaited(send: Callable[[], Awaitable[object]]) -> Way:
    """One after the other, from one task."""

    async def way(seconds: float) -> Sent:
        sent, begun = 0, time.perf_counter()
        end = begun + seconds
        while time.perf_counter() < end:
            await send()
            sent += 1
        return sent, time.perf_counter() - begun

    return way


def threads(send: Callable[[], object]) -> Way:
    """50 threads, each sending one after the other."""

    def way(seconds: float) -> Sent:
        counts = [0] * AT_ONCE
        failed: list[BaseException] = []
        begun = time.perf_counter()
        end = begun + seconds

        def run(place: int) -> None:
            try:
                while time.perf_counter() < end:
                    send()
                    counts[place] += 1
            except BaseException as error:
                failed.append(error)

        running = [threading.Thread(target=run, args=(place,)) for place in range(AT_ONCE)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        if failed:
            raise failed[0]
        return sum(counts), time.perf_counter() - begun

    return way


def tasks(send: Callable[[], Awaitable[object]]) -> Way:
    """50 asyncio tasks, each sending one after the other."""

    async def way(seconds: float) -> Sent:
        begun = time.perf_counter()
        end = begun + seconds

        async def run() -> int:
            sent = 0
            while time.perf_counter() < end:
                await send()
                sent += 1
            return sent

        counts = await asyncio.gather(*(run() for _ in range(AT_ONCE)))
        return sum(counts), time.perf_counter() - begun

    return way


def bulk(send_many: Callable[[int], object]) -> Way:
    """Calls of 1000 jobs, one after the other; `send_many` may be a coroutine function."""

    async def way(seconds: float) -> Sent:
        sent, begun = 0, time.perf_counter()
        end = begun + seconds
        while time.perf_counter() < end:
            result = send_many(BULK_JOBS)
            if inspect.isawaitable(result):
                await result
            sent += BULK_JOBS
        return sent, time.perf_counter() - begun

    return way


def all_ok(results: Iterable[Any]) -> None:
    """Check that every job of a bulk call was accepted. Raises RuntimeError."""
    refused = next((result for result in results if not result.ok), None)
    if refused is not None:
        raise RuntimeError(f"refused: {refused}")


def record(due_ms: int) -> None:
    """The task of the lateness row: record when it started, in one atomic write."""
    line = f"{due_ms} {time.time() * 1000:.3f}\n"
    file = os.open(os.environ["CONTEST_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


async def _answer(module: Any, order: dict[str, Any]) -> dict[str, Any]:
    if order["do"] == "send":
        cpu_s = time.process_time()
        done: Any = module.WAYS[order["way"]](order["seconds"])
        sent, seconds = await done if inspect.isawaitable(done) else done
        return {"sent": sent, "seconds": seconds, "cpu_s": time.process_time() - cpu_s}
    if order["do"] == "due":
        for due_ms in order["at_ms"]:
            done = module.send_due(due_ms)
            if inspect.isawaitable(done):
                await done
        return {"sent": len(order["at_ms"])}
    if order["do"] == "stored":
        return {"stored": module.stored()}
    return {name: importlib.metadata.version(name) for name in order["of"]}


async def _main(name: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep what a library prints out of the answers
    module = importlib.import_module(name)
    if hasattr(module, "start"):
        await module.start()
    print(json.dumps({"ways": list(module.WAYS)}), file=answers, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            answer = await _answer(module, json.loads(line))
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
