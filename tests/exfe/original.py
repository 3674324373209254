"""A client of the original, as plain Redis commands: what the specification says its scripts do, faults included."""

from __future__ import annotations

from typing import Any

from dueline.exfe import Objects


class Original:
    """`raw` decodes its answers. The originals keep their own clock: every time is an argument."""

    def __init__(self, raw: Any, prefix: str, timeout: int) -> None:
        self.raw = raw
        self.names = Objects(prefix)
        self.timeout = timeout

    def push(self, key: str, task: str, data: dict[str, str], ontime: int, overwrite: str) -> None:
        raw, names = self.raw, self.names
        if overwrite == "always" or raw.llen(names.queue(key)) == 0 or raw.exists(names.overwrite(key)):
            raw.zadd(names.timer, {key: ontime})
        raw.delete(names.overwrite(key))
        raw.rpush(names.queue(key), task)
        for field, value in data.items():
            raw.hset(names.data(key), field, value)
        raw.publish(names.channel, "insert")

    def get(self, key: str, number: int, random: str, now: int) -> list[str] | None:
        """None is the error reply `locked`."""
        raw, names = self.raw, self.names
        raw.set(names.locker(key), random, ex=self.timeout, nx=True)
        if raw.get(names.locker(key)) != random:
            return None
        raw.delete(names.start(key))
        raw.set(names.overwrite(key), "1")
        raw.zadd(names.timer, {key: now + self.timeout})
        return raw.lrange(names.queue(key), 0, number - 1 if number > 0 else number)

    def complete(self, key: str, number: int) -> None:
        """Without looking at the locker: the original's fault."""
        raw, names = self.raw, self.names
        raw.delete(names.overwrite(key))
        raw.ltrim(names.queue(key), number, -1)
        if raw.llen(names.queue(key)) == 0:
            raw.delete(names.data(key))
            raw.zrem(names.timer, key)
        raw.delete(names.locker(key))

    def release(self, key: str, ontime: int) -> None:
        self.raw.delete(self.names.locker(key))
        self.raw.zadd(self.names.timer, {key: ontime})

    def schedule(self, now: int) -> tuple[int, str]:
        raw, names = self.raw, self.names
        while True:
            first = raw.zrange(names.timer, 0, 0, withscores=True)
            if not first:
                return -1, ""
            key, score = first[0]
            if score > now:
                return int(score) - now, ""
            started = raw.get(names.start(key))
            if started is None or now - int(started) < 5:
                raw.set(names.start(key), now, nx=True)
                return 0, key
            raw.delete(names.queue(key), names.start(key), names.data(key))
            raw.zrem(names.timer, key)
