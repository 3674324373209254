"""Processes that wait: no process sleeps past the first moment at which it could be served.

Each process has a store of its own, pulls until there is nothing, and sleeps until the time it was given, or until a
wake-up. The reference says at every moment when a pull could give something; a sleeper that was given a later time and
has not been woken has been forgotten.
"""

from __future__ import annotations

from typing import Any

import redis
from hypothesis.stateful import initialize, invariant

from dueline.engine.store import Credit, Pull
from dueline.store.valkey.keys import partition_keys

from .machine import JobMachine
from .twins import Twins

WAIT_MS = 60_000


class Listener:
    """Hears the wake-ups of a partition. `heard` asks over the same connection, so nothing published before is
    missed."""

    def __init__(self, url: str, channel: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._subscriber: Any = self._client.pubsub()
        self._subscriber.ssubscribe(channel)
        self.heard()

    def heard(self) -> bool:
        self._subscriber.ping()
        heard = False
        while (message := self._subscriber.get_message(timeout=5.0))["type"] != "pong":
            heard = heard or message["type"] == "smessage"
        return heard

    def close(self) -> None:
        self._subscriber.close()
        self._client.close()


class Process:
    """One server process with a parked waiter."""

    def __init__(self, twins: Twins, store: Any) -> None:
        self._twins, self._store = twins, store
        self.until_ms = 0

    def look(self) -> None:
        """Pull until there is nothing, then sleep until the time that the last answer named."""
        pulled = self._twins.pull(Pull((Credit(2, None),), 15, WAIT_MS), self._store)
        while pulled.jobs or pulled.more:
            pulled = self._twins.pull(Pull((Credit(2, None),), 15, WAIT_MS), self._store)
        end_ms = pulled.now_ms + WAIT_MS
        self.until_ms = end_ms if pulled.next_ms is None else min(pulled.next_ms, end_ms)


class Sleepers(JobMachine):
    """The life cycle with two waiting processes beside the caller."""

    listener: Listener
    processes: list[Process]

    @initialize()
    def begin(self) -> None:
        self.twins = Twins(self.shared)
        self.listener = Listener(self.shared.url, partition_keys("dueline", self.twins.partition).channel)
        self.processes = [Process(self.twins, store) for store in self.shared.sleepers]

    @invariant()
    def nobody_sleeps_past_the_moment_at_which_he_could_be_served(self) -> None:
        heard, now_ms = self.listener.heard(), self.shared.clock.now_ms
        for process in self.processes:
            if heard or process.until_ms <= now_ms:
                process.look()
        for process in self.processes:
            first_ms = self.twins.model.next_ms(self.twins.partition)
            assert first_ms is None or process.until_ms <= first_ms, (
                f"asleep until {process.until_ms}, but could be served at {first_ms}, now {now_ms}"
            )

    def teardown(self) -> None:
        if hasattr(self, "listener"):
            self.listener.close()
