"""An order is closed after 30 minutes unless it is paid. Half an hour in a millisecond.

    python examples/order_close.py

The job only triggers the check; the shop's database decides. The handler looks before it closes the order, so a payment
at the same moment does no harm. Cancelling the job saves work, but correctness does not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dueline.testing.queue import VirtualQueue
from dueline.worker import Worker

worker = Worker()  # DUELINE_URL is the queue's address; default http://127.0.0.1:9277
database: dict[int, str] = {}  # order -> open | paid | closed


@dataclass
class Close:
    order: int


@worker.handles("order.close", retry=["10s", "1m", "10m", "1h"], timeout="30s")
def close(job: Close) -> None:
    """Runs at least once, 30 minutes after the order; a second run changes nothing."""
    if database[job.order] == "open":
        database[job.order] = "closed"


def place(order: int) -> None:
    database[order] = "open"
    close.send(Close(order), id=f"close-{order}", delay="30m")


def pay(order: int) -> bool:
    """False if it is too late, because the order is closed."""
    if database[order] == "closed":
        return False
    database[order] = "paid"
    close.cancel(f"close-{order}", missing_ok=True)  # if it has run already, it saw that the order is paid
    return True


def play() -> list[str]:
    """Two orders, one of them paid, on a queue in virtual time."""
    lines: list[str] = []
    with VirtualQueue() as queue:
        queue.work(worker)
        place(1)
        place(2)
        queue.clock.advance("10m")
        lines.append(f"after 10m  pay order 1: {pay(1)}   {database}")
        queue.clock.advance("19m")
        lines.append(f"after 29m  {database}")
        queue.clock.advance("1m")
        lines.append(f"after 30m  {database}")
        lines.append(f"after 30m  pay order 2: {pay(2)}")
    return lines


if __name__ == "__main__":
    print("\n".join(play()))
