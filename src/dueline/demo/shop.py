"""What is in the shop when the demo opens: orders that wait for money, reminders, payments to confirm, comments to
digest, letters that nobody could deliver, and a few things that need a person."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from ..client import Client, new_job
from ..client.calls import NewJob
from .receiver import PAYMENT_STORY, STORY

LADDER = ["2m", "10m", "10m", "1h", "2h", "6h", "15h"]
NAMES = ("ann", "bob", "carol", "dmitri", "emre", "fang", "grace", "hugo")
WITHIN_S = 60.0

# topic, ids, how many, whether a consumer rejected them, and the error
DEAD = (
    ("emails", "mail", 9, False, "SMTP 421: too many connections from this host"),
    ("emails", "welcome", 6, True, "no such user: user{n}@example.com"),
    ("emails", "shipped", 3, False, "template order-shipped has no field total (line {n})"),
    ("invoices", "invoice", 8, False, "the payment provider answered 503"),
    ("invoices", "credit-note", 3, False, "customer {n} has no address"),
)


class Shop:
    """Fills an empty server. `receiver_url` is where its push targets point."""

    def __init__(self, url: str, receiver_url: str, seed: int) -> None:
        self._url = url
        self._client = Client(url)
        self._receiver_url = receiver_url
        self._chance = random.Random(seed)

    def fill(self) -> None:
        """Send yesterday's failures, and jobs that are due later. Called before the workers start."""
        with self._client:
            self._orders()
            self._reminders()
            self._dead_letters()
            self._digests()
            self._neglected()
            self._schedules()
            self._push()

    def open(self) -> None:
        """Send jobs that take long. Called when the workers run; waits until they have leased these jobs."""
        with Client(self._url) as client:
            client.send("reports", {"month": "2026-10"}, id="monthly-2026-10")
            client.send("videos", {"film": "unboxing"}, id="unboxing-1080p")
            for topic in ("reports", "videos"):
                _until(lambda one=topic: client.topic(one).counts.leased == 1)

    def _orders(self) -> None:
        chance, client = self._chance, self._client
        client.set_topic("order-timeouts", lease="1m")
        orders = [
            new_job(
                {"order": 10_000 + n, "customer": chance.choice(NAMES), "total": round(9 + chance.random() * 190, 2)},
                id=f"order-{10_000 + n}",
                delay=900 + self._busy_hours() * 3600,
                tags=["order", *(["vip"] if n % 12 == 0 else [])],
            )
            for n in range(1400)
        ]
        client.send_many("order-timeouts", orders)
        client.send(
            "order-timeouts",
            {
                "order": 12345678901234567890,
                "customer": {"name": "Ann Lee", "vip": True, "城市": "上海"},
                "items": [{"sku": "A-7", "count": 2, "price": 19.9}, {"sku": "B-12", "count": 1, "price": 149.0}],
                "coupon": None,
            },
            id="order-4711",
            delay="45m",
            tags=["order", "vip"],
            headers={"source": "web shop", "trace": "7f3a9c21"},
        )
        client.reschedule("order-timeouts", "order-4711", delay="2h")

    def _busy_hours(self) -> float:
        """Hours from now, more often in the evening than at night."""
        while True:
            hours = self._chance.random() * 23.7
            hour = (datetime.now(UTC).hour + hours) % 24
            if self._chance.random() < 0.25 + 0.75 * max(0.0, math.sin((hour - 7) / 16 * math.pi)):
                return hours

    def _reminders(self) -> None:
        """Most are for nine in the morning, so one hour has far more than the others."""
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        sent: list[NewJob] = []
        for n in range(700):
            day = self._chance.randrange(7)
            hour = 9.0 + self._chance.random() / 60 if n % 3 == 0 else self._chance.uniform(7, 21)
            at = midnight + timedelta(days=day, hours=hour)
            at += timedelta(days=7 if at < datetime.now(UTC) else 0)
            sent.append(new_job({"to": self._chance.choice(NAMES), "number": n}, id=f"remind-{n}", at=at))
        self._client.send_many("reminders", sent)

    def _dead_letters(self) -> None:
        for topic, name, count, discard, error in DEAD:
            jobs = [new_job({"number": 100 + n}, id=f"{name}-{100 + n}", max_attempts=1) for n in range(count)]
            self._client.send_many(topic, jobs)
            for job in self._client.pull(topic, max=count):
                number = job.id.rpartition("-")[2]
                self._client.release(job, error=error.replace("{n}", number), discard=discard)
        self._client.send_many("emails", [new_job({"number": n}, id=f"flash-sale-{n}", ttl="1ms") for n in range(4)])

    def _digests(self) -> None:
        self._client.set_topic("digests", merge={"quiet": "20m", "max_wait": "2h", "max_items": 50})
        for name in NAMES:
            comments = range(self._chance.randrange(2, 47))
            self._client.send_many("digests", [new_job({"post": 7, "comment": n}, merge=name) for n in comments])

    def _neglected(self) -> None:
        """A topic without consumers, a paused one, and names that are hard to show."""
        self._client.send_many("thumbnails", [new_job({"image": n}, id=f"image-{n}") for n in range(37)])
        self._client.send_many(
            "coupons", [new_job({"coupon": n}, id=f"coupon-{n}", delay=600 + n * 240) for n in range(180)]
        )
        self._client.pause("coupons")

    def _schedules(self) -> None:
        put = self._client.put_schedule
        put("daily-report", "reports", {"kind": "daily"}, cron="0 9 * * MON-FRI", tz="Europe/Madrid", tags=["report"])
        put("stock-sync", "stock", {"warehouse": "all"}, every="15m", overlap="skip", max_attempts=3)
        put("month-end-invoices", "invoices", {"kind": "month-end"}, cron="0 6 L * *", tz="Asia/Shanghai", retry=LADDER)
        put("newsletter", "emails", {"number": 1, "template": "newsletter"}, cron="30 10 * * TUE", jitter="20m")
        put("clean-carts", "carts", {"older_than": "30d"}, cron="0 3 * * *")
        self._client.pause_schedule("newsletter")

    def _push(self) -> None:
        """Payments are confirmed by calls that sometimes fail; a partner is down, so its breaker opens."""
        client = self._client
        client.set_push("payment-notify", f"{self._receiver_url}/payments", retry=LADDER, concurrency=16, timeout="5s")
        client.set_push(
            "partner-orders",
            f"{self._receiver_url}/partner",
            retry=["1m", "10m"],
            breaker={"failures": 3, "open_ms": 600_000},
        )
        body = {"amount": 4_990, "currency": "EUR", "merchant": "m-118"}
        client.send("payment-notify", body, id=STORY, tags=["payment"])
        amounts = {20_500 + n: 990 + n * 13 for n in range(140)}
        payments = [new_job({**body, "amount": amounts[n]}, id=f"pay-{n}", tags=["payment"]) for n in amounts]
        client.send_many("payment-notify", payments)
        client.send_many("partner-orders", [new_job({"order": n}, id=f"partner-{n}") for n in range(12)])
        for attempt in range(1, len(PAYMENT_STORY) + 1):
            _until(lambda wanted=attempt: self._failed(STORY, wanted))
            if attempt < len(PAYMENT_STORY):
                client.fire("payment-notify", STORY)
        _until(lambda: client.push("partner-orders").state == "open")
        _until(lambda: client.topic("payment-notify").counts.ready + client.topic("payment-notify").counts.leased == 0)

    def _failed(self, id: str, attempts: int) -> bool:
        job = self._client.get("payment-notify", id)
        return job.state == "scheduled" and job.attempts == attempts


def _until(true: Callable[[], bool]) -> None:
    """Wait until `true` returns true, which another process causes. Raises TimeoutError."""
    end_s = time.monotonic() + WITHIN_S
    while not true():
        if time.monotonic() > end_s:
            raise TimeoutError("the demo's server does not deliver its jobs")
        time.sleep(0.05)


class Customers:
    """What keeps coming while the demo runs: a few jobs with each call of `next`."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed + 1)
        self._number = 50_000

    def next(self) -> Iterator[tuple[str, Sequence[NewJob]]]:
        """Topics, and jobs for them."""
        chance = self._chance
        for topic, most, key in (
            ("emails", 4, "number"),
            ("order-timeouts", 2, "order"),
            ("payment-notify", 2, "amount"),
        ):
            jobs: list[NewJob] = []
            for _ in range(chance.randrange(most + 1)):
                self._number += 1
                delay = chance.uniform(1, 40) if topic != "payment-notify" else 0
                jobs.append(new_job({key: self._number}, id=f"{topic}-{self._number}", delay=delay, tags=["live"]))
            if jobs:
                yield topic, jobs
        if chance.random() < 0.3:
            yield "digests", [new_job({"post": 7, "comment": self._number}, merge=chance.choice(NAMES))]
