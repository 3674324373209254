"""Handlers that child processes find again. They report what they do to the topic "reports"."""

from __future__ import annotations

import os
import sys
import time

from dueline.worker import Context, Discard, Retry, TaskWorker, Worker

worker = Worker(os.environ.get("APP_URL", "http://127.0.0.1:1"), processes=1, lease="2s", namespace="app")


def report(**what: object) -> None:
    """To the test, through the worker's own queue."""
    worker.do(lambda queue: queue.send("reports", what), "ado")


@worker.handles("say", mode="process")
def say(n: int, context: Context) -> None:
    before = context.lease_until_ms
    context.extend("5m")
    extended = context.lease_until_ms - before > 200_000
    report(n=n, pid=os.getpid(), parent=os.getppid(), extended=extended)


@worker.handles("say.here", mode="process")
@worker.handles("say.there", mode="process")
def say_where(n: int, context: Context) -> None:
    report(n=n, topic=context.topic)


@worker.handles("say.async", mode="process")
async def say_async(n: int, context: Context) -> None:
    await context.aextend("5m")
    await worker.ado(lambda queue: queue.send("reports", {"n": n, "pid": os.getpid()}))


@worker.handles("fails", mode="process", max_attempts=1)
def fails(word: str) -> None:
    if word == "exit":
        sys.exit(7)
    if word == "die":
        os._exit(7)
    if word == "discard":
        raise Discard("no such order")
    if word == "retry":
        raise Retry("later", delay="1h")
    raise LookupError("no such order")


@worker.handles("hangs", mode="process", max_attempts=1, timeout="1s")
def hangs(n: int) -> None:
    time.sleep(600)


@worker.handles("sleeps", mode="process", max_attempts=1)
def sleeps(n: int) -> None:
    report(pid=os.getpid())
    time.sleep(600)


@worker.handles("waits", mode="process", max_attempts=1)
def waits(n: int, context: Context) -> None:
    report(pid=os.getpid())
    while not context.stopping:
        time.sleep(0.01)


class Task(TaskWorker):
    type = "task"
    mode = "process"

    def invoke(self, params: list[int]) -> None:
        report(sum=sum(params), pid=os.getpid())


worker.bind(Task)
