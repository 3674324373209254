"""arq: `enqueue_job(_defer_by=...)`. It has no bulk call."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

from datetime import UTC, datetime

import contest
from arq.connections import ArqRedis, RedisSettings, create_pool

pool: ArqRedis


async def start() -> None:
    global pool
    pool = await create_pool(WorkerSettings.redis_settings)


async def record(context: dict[str, object], due_ms: int) -> None:
    contest.record(due_ms)


async def send() -> None:
    await pool.enqueue_job("close", contest.BODY, _defer_by=contest.DELAY_S)


async def send_due(due_ms: int) -> None:
    await pool.enqueue_job("record", due_ms, _defer_until=datetime.fromtimestamp(due_ms / 1000, UTC))


class WorkerSettings:
    redis_settings = RedisSettings.from_dsn(contest.STORE_URL)
    functions = (record,)


WAYS = {"one": contest.one_awaited(send), "fifty": contest.tasks(send)}
