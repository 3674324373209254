"""Celery: `apply_async(countdown=...)`, its broker on the store, no result backend (the faster choice)."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from datetime import UTC, datetime

import contest
from celery import Celery, group

app = Celery("contest", broker=contest.STORE_URL)
app.conf.update(broker_connection_retry_on_startup=True)


@app.task(name="record", ignore_result=True)
def record(due_ms: int) -> None:
    contest.record(due_ms)


@app.task(name="close", ignore_result=True)
def close(order: dict[str, object]) -> None: ...


def send() -> None:
    close.apply_async((contest.BODY,), countdown=contest.DELAY_S)


def send_many(jobs: int) -> None:
    group(close.s(contest.BODY) for _ in range(jobs)).apply_async(countdown=contest.DELAY_S)


def send_due(due_ms: int) -> None:
    record.apply_async((due_ms,), eta=datetime.fromtimestamp(due_ms / 1000, UTC))


WAYS = {"one": contest.one(send), "fifty": contest.threads(send), "bulk": contest.bulk(send_many)}
