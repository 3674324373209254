"""A request on a connection with its state, and the parsed heads that readers remember. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..dialects.http import Line, Request, Response
from ..engine.errors import DuelineError
from ..engine.outcomes import Actor
from ..engine.queue_limit import QueueLimit
from ..rights import Grant
from .quotas import Quota
from .router import Found, fixed_route, internal_error

MALFORMED = Found(fixed_route("malformed", internal_error()), None)
NO_REQUEST = Request("-", "", "", {}, b"")
MAX_KNOWN_HEAD_BYTES = 1024
UNUSUAL = ("expect", "upgrade", "transfer-encoding")


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


class KnownHead(msgspec.Struct, frozen=True):
    """The parsed form of a head that may occur again. `body_bytes` is the exact size of the body that follows it."""

    found: Found
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body_bytes: int
    grant: Grant
    quota: Quota | None
    line: Line | None

    @staticmethod
    def of(exchange: Exchange) -> KnownHead:
        request, make = exchange.request, exchange.found.route.line
        if make is not None and exchange.line is None and request.method != "HEAD":
            try:
                exchange.line = make(request)
            except DuelineError:
                pass  # every request with this head is refused
        return KnownHead(
            exchange.found,
            request.method,
            request.path,
            request.query,
            request.headers,
            len(request.body),
            request.grant,
            exchange.quota,
            exchange.line,
        )


def is_usual(head: bytes, exchange: Exchange) -> bool:
    """Whether the same head always means the same request, with a body of the same size."""
    headers = exchange.request.headers
    return (
        len(head) <= MAX_KNOWN_HEAD_BYTES
        and exchange.keep_alive
        and not exchange.old
        and headers.get("content-length", "0") == str(len(exchange.request.body))
        and not any(name in headers for name in UNUSUAL)
    )
