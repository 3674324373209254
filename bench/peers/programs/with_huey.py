"""huey: `schedule(delay=...)`. It has no bulk call for delayed tasks."""
# pyright: basic, reportMissingImports=false

from __future__ import annotations

import time

import contest
from huey import RedisHuey

huey = RedisHuey("contest", url=contest.STORE_URL)


@huey.task()
def record(due_ms: int) -> None:
    contest.record(due_ms)


@huey.task()
def close(order: dict[str, object]) -> None: ...


def send() -> None:
    close.schedule((contest.BODY,), delay=contest.DELAY_S)


def send_due(due_ms: int) -> None:
    record.schedule((due_ms,), delay=due_ms / 1000 - time.time())  # a local `eta` loses its fraction of a second


WAYS = {"one": contest.one(send), "fifty": contest.threads(send)}
