"""Payment notifications by a ladder: 2m, 10m, 10m, 1h, 2h, 6h, 15h. A day of retries in a second.

    python examples/payment_notification.py

A payment platform notifies merchants that an order was paid. A merchant's server may be down, so a notification is
retried after 2 minutes, then 10, 10, 1 hour, 2, 6 and 15 hours. That makes eight attempts in a little more than a day.
If none succeeds, the notification goes to the topic `notifications-failed`, where a person can look at it.

This uses the real engine and the real dispatcher, on the reference store, with a clock that only this program moves.
Only the network is simulated: `Merchants` answers in place of the merchants' servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import urlsplit

from dueline.durations import duration_text
from dueline.engine.commands import Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.job import BodyKind
from dueline.engine.policy import Ladder, OnDead, TopicPolicy, duration_ms
from dueline.engine.push_target import PushTarget
from dueline.push.discovery.static import StaticResolver
from dueline.push.dispatcher import PushContext
from dueline.push.hosts import Hosts
from dueline.push.http_couriers import HttpCourier
from dueline.push.manager import PushManager
from dueline.push.outgoing_calls import Call, CallFailed, Response
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer

LADDER = Ladder(tuple(duration_ms(wait) for wait in ("2m", "10m", "10m", "1h", "2h", "6h", "15h")))
NAMESPACE = "default"
FAILED = "notifications-failed"
HOUR_MS = 3_600_000

Server = Callable[[int], int | None]  # the time since the start in ms -> a status, or None if it does not answer

MERCHANTS: dict[str, Server] = {
    "books.example": lambda now_ms: 200,
    "shoes.example": lambda now_ms: None if now_ms < HOUR_MS else 200,
    "flowers.example": lambda now_ms: 500 if now_ms < 24 * HOUR_MS else 200,
    "ghost.example": lambda now_ms: 503,
}


class Merchants:
    """The merchants' servers. Each call is recorded with its time."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.start_ms = clock.now_ms
        self.calls: dict[str, list[tuple[int, str]]] = {name: [] for name in MERCHANTS}

    async def call(self, call: Call) -> Response:
        host = urlsplit(call.url).hostname or ""
        now_ms = self.clock.now_ms - self.start_ms
        status = MERCHANTS[host](now_ms)
        self.calls[host].append((now_ms, "no answer" if status is None else str(status)))
        if status is None:
            raise CallFailed("connect", "the server does not answer")
        return Response(status, {}, "", 0)


async def notify(engine: Engine, merchant: str) -> None:
    """Each merchant has its own topic, and so its own target, ladder and breaker. No merchant waits for another's
    server."""
    await engine.set_topic(NAMESPACE, merchant, TopicPatch(TopicPolicy(on_dead=OnDead(FAILED))))
    await engine.set_push(NAMESPACE, merchant, PushTarget(url=f"https://{merchant}/paid", retry=LADDER))
    await engine.send(NAMESPACE, merchant, Send(f"paid-{merchant}", b'{"order": 1042}', BodyKind.JSON))


async def run() -> list[str]:
    """Run it for a day and two hours. Returns what happened, line by line."""
    clock = VirtualClock()
    timer = VirtualTimer(clock)
    store = MemoryStore(clock)
    engine = Engine(store, timer=timer)
    merchants = Merchants(clock)
    courier = HttpCourier(StaticResolver({}), store.now_ms)
    manager = PushManager(PushContext(engine, merchants, {"http": courier}, Hosts(16), timer))
    await engine.start()
    manager.start()
    for merchant in MERCHANTS:
        await notify(engine, merchant)
    await timer.advance(26 * HOUR_MS)

    lines = [f"ladder {' '.join(duration_text(wait_ms) for wait_ms in LADDER.waits_ms)}"]
    for merchant, calls in merchants.calls.items():
        lines += ["", merchant]
        lines += [f"  {number}  {clock_time(at_ms)}  {answer}" for number, (at_ms, answer) in enumerate(calls, 1)]
        view = await engine.topic(NAMESPACE, merchant)
        live = view.scheduled + view.ready + view.leased
        lines.append("  still trying" if live else f"  {'notified' if calls[-1][1] == '200' else 'given up'}")
    failed = await engine.topic(NAMESPACE, FAILED)
    lines += ["", f"{FAILED}: {failed.ready}"]

    await manager.stop(0)
    await engine.stop()
    return lines


def clock_time(ms: int) -> str:
    """Hours, minutes and seconds since the payment."""
    seconds, rest_ms = divmod(ms, 1000)
    assert rest_ms == 0, "to the second"
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


if __name__ == "__main__":
    print("\n".join(asyncio.run(run())))
