"""The two workers of the shop. What a handler does follows from the number in its job, so that two runs are alike."""

from __future__ import annotations

import asyncio
from typing import Any

from ..worker import Discard, Worker

LONG_S = 3600.0  # a report and a video that are never done while somebody looks


def workers(url: str) -> tuple[Worker, Worker]:
    """`mailer-1` sends messages, `orders-1` closes orders and makes reports."""
    return _mailer(url), _clerk(url)


def _mailer(url: str) -> Worker:
    mailer = Worker(url, name="mailer-1", concurrency=8, threads=1, processes=1)

    @mailer.handles("emails", max_attempts=3, retry=["30s", "5m"])
    async def email(mail: dict[str, Any]) -> None:
        number = int(mail["number"])
        await asyncio.sleep(0.02 + number % 7 * 0.05)
        if number % 19 == 0:
            raise Discard(f"no such user: user{number}@example.com")
        if number % 7 == 0:
            raise ConnectionError("SMTP 421: too many connections from this host")

    @mailer.handles("reminders")
    async def remind(reminder: dict[str, Any]) -> None:
        await asyncio.sleep(0.1)

    @mailer.handles("digests")
    async def digest(comments: list[dict[str, Any]]) -> None:
        await asyncio.sleep(0.2)

    @mailer.handles("videos")
    async def video(film: dict[str, Any]) -> None:
        await asyncio.sleep(LONG_S)

    return mailer


def _clerk(url: str) -> Worker:
    clerk = Worker(url, name="orders-1", concurrency=4, threads=1, processes=1)

    @clerk.handles("order-timeouts", max_attempts=5, retry=["10s", "1m", "10m", "1h"])
    async def close_order(order: dict[str, Any]) -> None:
        await asyncio.sleep(0.05)
        if int(order["order"]) % 13 == 0:
            raise TimeoutError(f"the stock of order {order['order']} is locked by another transaction")

    @clerk.handles("reports")
    async def report(which: dict[str, Any]) -> None:
        await asyncio.sleep(LONG_S)

    return clerk
