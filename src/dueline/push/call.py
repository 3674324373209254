"""A call and its outcome, as values. No I/O here: `outgoing_calls` makes calls, and is imported only when needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Kind = Literal["refused", "limited", "resolve", "connect", "timeout", "protocol"]

STOPPING = "the server is stopping"  # the message of calls that are aborted at shutdown


class Call(msgspec.Struct, frozen=True):
    """One call to make. `timeout_ms` covers the whole call, from the name lookup to the last byte read. With None the
    call may last as long as its connection. `namespace`: of the job; the dispatcher sets it."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    timeout_ms: int | None = 30_000
    namespace: str = ""


class Response(msgspec.Struct, frozen=True):
    """A response. Header names are in lower case. `excerpt` is the beginning of the body as text."""

    status: int
    headers: Mapping[str, str]
    excerpt: str
    duration_ms: int


class CallFailed(Exception):
    """The call got no response.

    kind      refused   the egress rule forbids it; nothing was connected
              limited   the job's namespace has too many look-ups; try again in `wait_ms`; nothing was connected
              resolve   the name has no address
              connect   no connection could be made, for any reason
              timeout   connected, but no complete response in time
              protocol  the data received is not a response, or is cut off
    """

    def __init__(self, kind: Kind, message: str, duration_ms: int = 0, wait_ms: int = 0) -> None:
        self.kind: Kind = kind
        self.wait_ms = wait_ms
        self.message = message
        self.duration_ms = duration_ms
        super().__init__(message)
