"""The names of the seven documented objects. No other module builds them.

    push channel  prefix:action:push             pub/sub; the payload is `insert`
    timer         prefix:timer                   sorted set; key -> due time, unix seconds
    queue         prefix:queue:KEY               list of tasks
    data          prefix:queue:KEY:data          hash
    locker        prefix:queue:KEY:locker        string: the holder's random, with the lease as its ttl
    overwrite     prefix:queue:KEY:overwrite     string `1`
    start         prefix:queue:KEY:start         string: unix seconds

EXFE's document calls the last four "Set". It means the verb, not the Redis type: the original's scripts fail on any
other type than the ones above.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Objects:
    """The object names of one prefix."""

    prefix: str

    DATA: ClassVar[str] = ":data"
    LOCKER: ClassVar[str] = ":locker"
    OVERWRITE: ClassVar[str] = ":overwrite"
    START: ClassVar[str] = ":start"
    ENDINGS: ClassVar[tuple[str, ...]] = (DATA, LOCKER, OVERWRITE, START)

    @property
    def channel(self) -> str:
        return f"{self.prefix}:action:push"

    @property
    def timer(self) -> str:
        return f"{self.prefix}:timer"

    def queue(self, key: str) -> str:
        return f"{self.prefix}:queue:{key}"

    def data(self, key: str) -> str:
        return self.queue(key) + self.DATA

    def locker(self, key: str) -> str:
        return self.queue(key) + self.LOCKER

    def overwrite(self, key: str) -> str:
        return self.queue(key) + self.OVERWRITE

    def start(self, key: str) -> str:
        return self.queue(key) + self.START
