"""A prefix of its own on the private store, the client under test, and a raw client that sees and does everything."""

from __future__ import annotations

import threading
import time
from typing import Any

import redis

from dueline.exfe import ExfeQueue, Objects

LONG = 600  # seconds: a lease that cannot end during a test


class ExfeKit:
    def __init__(self, url: str, prefix: str) -> None:
        self.url = url
        self.prefix = prefix
        self.raw: Any = redis.Redis.from_url(url, decode_responses=True, protocol=2)
        self.names = Objects(prefix)
        self._opened: list[ExfeQueue] = []

    def queue(self, timeout: int = LONG, **options: Any) -> ExfeQueue:
        queue = ExfeQueue(self.url, self.prefix, timeout, **options)
        self._opened.append(queue)
        return queue

    def state(self) -> dict[str, Any]:
        """Every object below the prefix by its short name, as Redis shows it. A ttl is shown as `name ttl`: True."""
        return state_of(self.raw, self.prefix)

    def now(self) -> int:
        return int(self.raw.time()[0])

    def listener(self) -> Listener:
        return Listener(self.raw, self.names.channel)

    def close(self) -> None:
        for queue in self._opened:
            queue.close()
        self.raw.close()


class Listener:
    """Hears the push channel as any client would."""

    def __init__(self, raw: Any, channel: str) -> None:
        self._pubsub = raw.pubsub()
        self._pubsub.subscribe(channel)
        assert self._pubsub.get_message(timeout=30)["type"] == "subscribe"

    def heard(self, count: int) -> list[str]:
        """The next `count` payloads."""
        payloads: list[str] = []
        while len(payloads) < count:
            message = self._pubsub.get_message(timeout=30)
            assert message is not None, f"only {payloads} came"
            payloads.append(message["data"])
        return payloads

    def close(self) -> None:
        self._pubsub.close()


def state_of(raw: Any, prefix: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for name in sorted(raw.scan_iter(f"{prefix}:*", count=1000)):
        kind = raw.type(name)
        short = name.removeprefix(prefix + ":")
        if kind == "zset":
            seen[short] = {member: int(score) for member, score in raw.zrange(name, 0, -1, withscores=True)}
        elif kind == "list":
            seen[short] = raw.lrange(name, 0, -1)
        elif kind == "hash":
            seen[short] = raw.hgetall(name)
        elif kind == "string":
            seen[short] = raw.get(name)
        if raw.pttl(name) >= 0:
            seen[f"{short} ttl"] = True
    return seen


def say_when_heard(raw: Any, channel: str, payload: str) -> threading.Thread:
    """Say one word as soon as somebody hears it."""

    def say() -> None:
        until = time.monotonic() + 60
        while raw.publish(channel, payload) == 0 and time.monotonic() < until:
            time.sleep(0.01)

    thread = threading.Thread(target=say, daemon=True)
    thread.start()
    return thread
