"""dramatiq: `send_with_options(delay=...)`; in bulk by `group(...).run(delay=...)`, which enqueues one by one."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import time

import contest
import dramatiq
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=contest.STORE_URL))


@dramatiq.actor
def record(due_ms: int) -> None:
    contest.record(due_ms)


@dramatiq.actor
def close(order: dict[str, object]) -> None: ...


def send() -> None:
    close.send_with_options(args=(contest.BODY,), delay=contest.DELAY_S * 1000)


def send_many(jobs: int) -> None:
    dramatiq.group(close.message(contest.BODY) for _ in range(jobs)).run(delay=contest.DELAY_S * 1000)


def send_due(due_ms: int) -> None:
    record.send_with_options(args=(due_ms,), delay=round(due_ms - time.time() * 1000))


WAYS = {"one": contest.one(send), "fifty": contest.threads(send), "bulk": contest.bulk(send_many)}
