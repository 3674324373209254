"""Dueline through its HTTP client: `Client` one at a time and in bulk, `AsyncClient` for 50 at once."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import contest

from dueline import AsyncClient, Client, new_job
from dueline.worker import Worker

URL = os.environ["CONTEST_SERVER"]
client = Client(URL)
many = AsyncClient(URL)
worker = Worker(URL)


@worker.handles("contest.http.record")
async def record(due_ms: int) -> None:
    contest.record(due_ms)


def send() -> None:
    client.send("contest.http", contest.BODY, delay=contest.DELAY_S)


async def send_at_once() -> None:
    await many.send("contest.http", contest.BODY, delay=contest.DELAY_S)


def send_many(jobs: int) -> None:
    contest.all_ok(
        client.send_many("contest.http", (new_job(contest.BODY, delay=contest.DELAY_S) for _ in range(jobs)))
    )


def send_due(due_ms: int) -> None:
    client.send(record.topic, due_ms, at=datetime.fromtimestamp(due_ms / 1000, UTC))


def stored() -> int:
    return client.topic("contest.http").counts.scheduled


WAYS = {"one": contest.one(send), "fifty": contest.tasks(send_at_once), "bulk": contest.bulk(send_many)}
