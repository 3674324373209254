"""RQ: `enqueue_in` and `enqueue_at`; in bulk through the Redis pipeline that they accept."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import contest
from redis import Redis
from rq import Queue

connection = Redis.from_url(contest.STORE_URL)
queue = Queue(connection=connection)
delay = timedelta(seconds=contest.DELAY_S)


def record(due_ms: int) -> None:
    contest.record(due_ms)


def close(order: dict[str, object]) -> None: ...


def send() -> None:
    queue.enqueue_in(delay, "with_rq.close", contest.BODY)


def send_many(jobs: int) -> None:
    with connection.pipeline() as pipeline:
        for _ in range(jobs):
            queue.enqueue_in(delay, "with_rq.close", contest.BODY, pipeline=pipeline)
        pipeline.execute()


def send_due(due_ms: int) -> None:
    queue.enqueue_at(datetime.fromtimestamp(due_ms / 1000, UTC), "with_rq.record", due_ms)


WAYS = {"one": contest.one(send), "fifty": contest.threads(send), "bulk": contest.bulk(send_many)}
