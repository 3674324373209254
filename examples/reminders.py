"""Reminders 15 and 3 days before a subscription expires. A year in a few milliseconds.

    python examples/reminders.py

A reminder's id consists of user and days, so buying twice does not remind twice, and a renewal replaces the planned
reminders (`on_conflict="replace"`). A reminder is useless once the subscription is over, so its ttl ends with the
subscription.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dueline.testing.queue import VirtualQueue
from dueline.worker import Worker

DAYS_BEFORE = (15, 3)

worker = Worker()
mails: list[str] = []


@dataclass
class Reminder:
    user: str
    days: int
    expires: datetime


@worker.handles("subscription.remind", retry=["5m", "1h", "6h"])
def remind(reminder: Reminder) -> None:
    mails.append(f"{reminder.user}: {reminder.days} days left, until {reminder.expires:%d %b %Y}")


def subscribed(user: str, now: datetime, expires: datetime) -> None:
    """Plan the reminders, or replace them after a renewal. One that would be in the past is left out."""
    for days in DAYS_BEFORE:
        moment = expires - timedelta(days=days)
        if moment > now:
            remind.at(
                moment,
                Reminder(user, days, expires),
                id=f"remind-{user}-{days}",
                ttl=timedelta(days=days),
                on_conflict="replace",
            )


def left(user: str) -> None:
    """Cancel the reminders of a user who has left."""
    for days in DAYS_BEFORE:
        remind.cancel(f"remind-{user}-{days}", missing_ok=True)  # it may be sent already, or never planned


def play() -> list[str]:
    lines: list[str] = []
    with VirtualQueue(start=datetime(2030, 1, 1, tzinfo=UTC)) as queue:
        clock = queue.clock
        queue.work(worker)
        subscribed("ann", clock.now, clock.now + timedelta(days=30))
        subscribed("bob", clock.now, clock.now + timedelta(days=10))
        subscribed("cyd", clock.now, clock.now + timedelta(days=30))

        def until(day: int) -> None:
            clock.advance_to(datetime(2030, 1, 1, tzinfo=UTC) + timedelta(days=day))
            lines.extend(f"{clock.now:%d %b}  {mail}" for mail in mails)
            mails.clear()

        for day in range(1, 17):
            until(day)
        left("cyd")
        subscribed("ann", clock.now, clock.now + timedelta(days=365))
        lines.append(f"{clock.now:%d %b}  ann renews, cyd leaves")
        for day in range(17, 400):
            until(day)
    return lines


if __name__ == "__main__":
    print("\n".join(play()))
