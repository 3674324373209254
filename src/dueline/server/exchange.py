"""A request on a connection with its state. No I/O."""

from __future__ import annotations

import msgspec

from ..dialects.http import Line, Request, Response
from ..engine.outcomes import Actor
from ..engine.queue_limit import QueueLimit
from .quotas import Quota
from .router import Found, fixed_route, internal_error

MALFORMED = Found(fixed_route("malformed", internal_error()), None)
NO_REQUEST = Request("-", "", "", {}, b"")


class Exchange(msgspec.Struct):
    """One request and how to answer it. `answer` is already set if the request was refused while it was read."""

    found: Found
    request: Request
    keep_alive: bool
    old: bool = False  # HTTP/1.0
    answer: Response | None = None
    begun_s: float = 0.0
    quota: Quota | None = None
    streams: bool = False  # its answer has begun and comes in pieces
    line: Line | None = None  # of its head, if that is known
    actor: Actor | None = None  # while it is answered on the line
    polls: bool = False  # it counts as a poll of its quota

    @property
    def queue(self) -> QueueLimit | None:
        """The limit of queued jobs of the caller's token."""
        return None if self.quota is None else self.quota.queue
