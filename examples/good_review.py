"""Five days after an order it gets a good review, unless the buyer has written one.

    python examples/good_review.py

The id of the job is that of the order, so an order has one alarm, however often it is sent. When the buyer changes the
order's delivery date, the alarm moves along; when he writes a review, it is withdrawn.
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
    """May be called twice: the same order is the same job."""
    review.send(Order(number), id=f"review-{number}", delay="5d", on_conflict="keep")


def delivered_late(number: int) -> None:
    """The five days begin again."""
    review.reschedule(f"review-{number}", delay="5d")


def write(number: int, text: str) -> None:
    """The buyer's own words count."""
    reviews[number] = text
    review.cancel(f"review-{number}", missing_ok=True)  # the default may be there already: it is overwritten


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
