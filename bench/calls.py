"""Single calls in rounds: sends, pulls and acks of one protocol on one server, and whole lives of the native API.

Pulls find jobs that are already due; acks end what those pulls have leased.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from .loading import Orders, run

Figure = TypeVar("Figure")

CONNECTIONS = 64
LATEST_DUE_S = 1.5  # a protocol with delays in seconds has none below 1


class CallRounds(Generic[Figure]):
    """The rounds of one server, by kind of call. `measured` runs a load and returns what it used."""

    def __init__(
        self,
        measured: Callable[[Orders], Figure],
        port: int,
        place: Path,
        works: Sequence[str],
        protocol: str = "native",
    ) -> None:
        self._measured = measured
        acks = str(place / f"acks-{port}-{protocol}")
        self._orders = Orders("send", protocol=protocol, port=port, connections=CONNECTIONS, acks=acks)
        self.used: dict[str, list[Figure]] = {work: [] for work in works}

    def round(self, number: int, calls: int) -> None:
        """The first round, number 0, warms up and does not count."""
        calls = calls if number else max(CONNECTIONS, calls // 4)
        for work, used in self.used.items():
            topic = f"{self._orders.protocol}-{number}-{'pull' if work == 'ack' else work}"
            orders = msgspec.structs.replace(self._orders, topic=topic, count=calls)
            if work == "pull":
                self._fill(orders)
            count = calls // 2 if work in ("life", "chained") else calls
            found = self._measured(msgspec.structs.replace(orders, work=work, count=count))
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
