"""Single calls in rounds: sends, pulls and acks of one protocol on one server, and whole lives of the native API.

Pulls find jobs that are already due; acks end what those pulls have leased.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from .loading import Orders, run
from .servers import Server, StoreConnection
from .usage import Meter, Usage

CONNECTIONS = 64
LATEST_DUE_S = 1.5  # a protocol with delays in seconds has none below 1


class CallRounds:
    """The rounds of one server, by kind of call."""

    def __init__(
        self,
        one: Server,
        place: Path,
        works: Sequence[str],
        protocol: str = "native",
        store: StoreConnection | None = None,
    ) -> None:
        self._meter = Meter(one, store)
        acks = str(place / f"acks-{one.port}-{protocol}")
        self._orders = Orders("send", protocol=protocol, port=one.port, connections=CONNECTIONS, acks=acks)
        self.used: dict[str, list[Usage]] = {work: [] for work in works}

    def round(self, number: int, calls: int) -> None:
        """The first round, number 0, warms up and does not count."""
        calls = calls if number else max(CONNECTIONS, calls // 4)
        for work, used in self.used.items():
            topic = f"{self._orders.protocol}-{number}-{'pull' if work == 'ack' else work}"
            orders = msgspec.structs.replace(self._orders, topic=topic, count=calls)
            if work == "pull":
                self._fill(orders)
            count = calls // 2 if work in ("life", "chained") else calls
            found = self._meter.run(msgspec.structs.replace(orders, work=work, count=count))
            if number:
                used.append(found)

    def _fill(self, orders: Orders) -> None:
        """Send as many jobs, due now."""
        now = msgspec.structs.replace(orders, delay_ms=(0, 0))
        if orders.protocol == "native":
            run(msgspec.structs.replace(now, work="bulk", connections=4))
        else:
            run(now)
            time.sleep(LATEST_DUE_S)
