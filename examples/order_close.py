"""An order is closed after 30 minutes unless it is paid. Half an hour in a millisecond.

    python examples/order_close.py

The job is the alarm clock, the shop's database is the truth: the handler looks before it closes, so it does not matter
when a payment and the alarm come in the same moment. Cancelling spares the work; correctness does not hang on it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dueline.testing.queue import VirtualQueue
from dueline.worker import Worker

worker = Worker()  # DUELINE_URL says where the queue is; default http://127.0.0.1:9277
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
    """False: too late, it is closed."""
    if database[order] == "closed":
        return False
    database[order] = "paid"
    close.cancel(f"close-{order}", missing_ok=True)  # it may have run: then it has seen that the order is paid
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
