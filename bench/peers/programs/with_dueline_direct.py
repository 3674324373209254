"""Dueline directly on the store, without a server: `SyncQueue` one at a time, as a program without asyncio sends, and
`connect`, its asyncio interface, for 50 at once and in bulk."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import contest

from dueline import Client, new_job
from dueline.worker import SyncQueue, Worker, connect

queue = connect(contest.STORE_URL)
plain = SyncQueue(contest.STORE_URL)
worker = Worker(contest.STORE_URL)


@worker.handles("contest.direct.record")
async def record(due_ms: int) -> None:
    contest.record(due_ms)


async def start() -> None:
    await queue.start()


def send() -> None:
    plain.send("contest.direct", contest.BODY, delay=contest.DELAY_S)


async def send_at_once() -> None:
    await queue.send("contest.direct", contest.BODY, delay=contest.DELAY_S)


async def send_many(jobs: int) -> None:
    made = [new_job(contest.BODY, delay=contest.DELAY_S) for _ in range(jobs)]
    contest.all_ok(await queue.send_many("contest.direct", made))


async def send_due(due_ms: int) -> None:
    await queue.send(record.topic, due_ms, at=datetime.fromtimestamp(due_ms / 1000, UTC))


def stored() -> int:
    with Client(os.environ["CONTEST_SERVER"]) as client:
        return client.topic("contest.direct").counts.scheduled


WAYS = {"one": contest.one(send), "fifty": contest.tasks(send_at_once), "bulk": contest.bulk(send_many)}
