"""Workers to be killed: they report the begin and the end of every run of a handler to a socket.

Started by `dueline work tests.faults.worker_app:worker`; the variables say how.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec

from dueline.worker import CallNext, Context, Middleware, Worker
from dueline.worker.queue import connect

WORK_S = float(os.environ.get("WORK_S", "0.02"))


def tell(what: str, context: Context) -> None:
    """To the test, in one datagram."""
    message = {"what": what, "id": context.id, "attempt": context.attempt, "delivery": context.delivery}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(msgspec.json.encode({**message, "pid": os.getpid()}), os.environ["EVENTS"])


async def ack_first(context: Context, call_next: CallNext) -> Any:
    """What a worker must never do: the job is done before it is done."""
    queue = connect(os.environ["DUELINE_URL"])
    await queue.ack([context.job])
    await queue.close()
    return await call_next(context)


BROKEN: dict[str, Middleware] = {"ack_first": ack_first}

worker = Worker(
    processes=2,
    threads=4,
    concurrency=8,
    lease="2s",
    grace=os.environ.get("GRACE", "20s"),
    middleware=[BROKEN[os.environ["BROKEN"]]] if "BROKEN" in os.environ else [],
)


def work(sleep: Callable[[float], Any], context: Context) -> Any:
    tell("begin", context)
    return sleep(WORK_S)


@worker.handles("processes", mode="process")
def in_a_process(n: int, context: Context) -> None:
    work(time.sleep, context)
    tell("end", context)


@worker.handles("threads")
def in_a_thread(n: int, context: Context) -> None:
    work(time.sleep, context)
    tell("end", context)


@worker.handles("coroutines")
async def in_the_loop(n: int, context: Context) -> None:
    await work(asyncio.sleep, context)
    tell("end", context)
