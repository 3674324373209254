"""How many replicas of a primary must have a change before it is answered.

All that follow the primary closely, because any of them may be the next primary. One is not enough: in a failover while
the primary is alive (by hand, or a false alarm) one replica is promoted, and for a second or so the others still follow
the old primary. Changes that these two accept are lost.

So if fewer replicas confirm than before, the missing one may have been promoted. Changes then wait, and meanwhile the
link asks who is the primary. Only after `SHORTFALL_S` it counts as an ordinary loss of a replica, and fewer are enough.
"""

from __future__ import annotations

import re

ASK_EVERY_S = 0.1  # a replica that has just come back may be the next primary, too
SHORTFALL_S = 3.0  # sentinels name a promoted replica after about a second; the patience of a call is longer than this
_FOLLOWER = re.compile(rb"^slave\d+:.*\bstate=online\b.*\blag=([01])\b", re.MULTILINE)


class ReplicaCount:
    """The replicas that must confirm for one primary, over all connections to it."""

    def __init__(self) -> None:
        self.needed = 1
        self._short_since_s: float | None = None
        self._asked_at_s = -ASK_EVERY_S

    def should_ask(self, now_s: float) -> bool:
        """Whether it is time to ask for `INFO replication`. Pass the reply to `heard`."""
        if now_s - self._asked_at_s < ASK_EVERY_S:
            return False
        self._asked_at_s = now_s
        return True

    def heard(self, info: bytes) -> None:
        """Take the number of replicas that follow closely, if it is larger than before. Only `enough` lowers it."""
        self.needed = max(self.needed, len(_FOLLOWER.findall(info)))

    def enough(self, confirmed: int, now_s: float) -> bool:
        """Whether a change that this many replicas have is replicated."""
        if confirmed >= self.needed:
            self._short_since_s = None
            return True
        if confirmed == 0:
            return False
        if self._short_since_s is None:
            self._short_since_s = now_s
        if now_s - self._short_since_s < SHORTFALL_S:
            return False
        self.needed, self._short_since_s = confirmed, None
        return True
