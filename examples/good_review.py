"""An order gets a good review after five days, unless the buyer has written one.

    python examples/good_review.py

The job's id contains the order's number, so an order has one job, however often it is sent. When the delivery is late,
the job is rescheduled; when the buyer writes a review, it is cancelled.
"""

from __future__ import annotations

from dataclasses import dataclass

from dueline.testing.queue import VirtualQueue
from dueline.worker import Worker

worker = Worker()
reviews: dict[int, str] = {}  # order -> text


@dataclass
class Order:
    number: int


@worker.handles("review.default", retry=["1m", "1h", "6h"])
def review(order: Order) -> None:
    reviews.setdefault(order.number, "good (by default)")


def delivered(number: int) -> None:
    """May be called twice, because the same order is the same job."""
    review.send(Order(number), id=f"review-{number}", delay="5d", on_conflict="keep")


def delivered_late(number: int) -> None:
    """The five days start again."""
    review.reschedule(f"review-{number}", delay="5d")


def write(number: int, text: str) -> None:
    """The buyer's own review takes precedence."""
    reviews[number] = text
    review.cancel(f"review-{number}", missing_ok=True)  # the default may be written already; it is overwritten


def play() -> list[str]:
    lines: list[str] = []
    with VirtualQueue() as queue:
        queue.work(worker)
        for number in (1, 2, 3):
            delivered(number)
        delivered(1)
        queue.clock.advance("2d")
        write(2, "too small")
        delivered_late(3)
        queue.clock.advance("3d")
        lines.append(f"day 5  {reviews}")
        queue.clock.advance("2d")
        lines.append(f"day 7  {reviews}")
        write(1, "very good")
        lines.append(f"then   {reviews}")
    return lines


if __name__ == "__main__":
    print("\n".join(play()))
