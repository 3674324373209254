"""Ask two payment providers whether an order is paid, at growing intervals, until it is. A topic for each provider.

    python examples/payment_polling.py

"Not yet" raises `Retry`: the job is retried by its ladder, as it is when the provider does not answer. Each provider
has its own topic, so that one that hangs does not delay the other. After the last attempt a person has to look at it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dueline.testing.queue import VirtualQueue
from dueline.worker import Context, Discard, Handle, Retry, Worker

LADDER = ["5s", "10s", "30s", "1m", "5m", "15m", "1h", "6h"]  # 9 questions in 7 h 21 min 45 s

POLICY: dict[str, Any] = {"retry": LADDER, "timeout": "10s", "concurrency": 4}

worker = Worker()
providers: dict[str, Callable[[int], bool]] = {}  # name -> whether an order is paid there; asks the provider's API
paid: dict[int, str] = {}  # order -> provider
to_look_at: list[int] = []


@dataclass
class Question:
    order: int


def poll(provider: str, order: int, context: Context) -> None:
    """One question. If the provider does not answer, the exception leads to the next retry too."""
    if providers[provider](order):
        paid[order] = provider
    elif context.attempt <= len(LADDER):
        raise Retry(f"{provider} has no payment for order {order} yet")
    else:
        to_look_at.append(order)
        raise Discard("not paid after all the questions")


@worker.handles("poll.north", **POLICY)
def poll_north(question: Question, context: Context) -> None:
    poll("north", question.order, context)


@worker.handles("poll.south", **POLICY)
def poll_south(question: Question, context: Context) -> None:
    poll("south", question.order, context)


def watch(order: int, handle: Handle[..., None]) -> None:
    """Start asking. One order is one job, so starting twice has no further effect."""
    handle.send(Question(order), id=f"order-{order}", delay="5s", on_conflict="keep")


def play() -> list[str]:
    lines: list[str] = []
    with VirtualQueue() as queue:
        start_ms = queue.clock.now_ms

        def north(order: int) -> bool:
            return order == 1 and queue.clock.now_ms - start_ms >= 20_000

        def south(order: int) -> bool:
            if queue.clock.now_ms - start_ms < 120_000:
                raise ConnectionError("south does not answer")
            return order == 2

        providers.update(north=north, south=south)
        queue.work(worker)
        watch(1, poll_north)
        watch(2, poll_south)
        watch(3, poll_north)
        queue.clock.advance("1d")
        for order, topic in ((1, "poll.north"), (2, "poll.south"), (3, "poll.north")):
            runs = [run for run in queue.recorder.handled(topic) if run.id == f"order-{order}"]
            asked = " ".join(f"{(run.at_ms - start_ms) // 1000}s" for run in runs)
            lines.append(f"order {order}  asked at {asked}: {runs[-1].outcome}")
    lines.append(f"paid {paid}   to look at {to_look_at}")
    return lines


if __name__ == "__main__":
    print("\n".join(play()))
