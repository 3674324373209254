"""A call and what came of it, as values. No I/O: `outgoing` makes calls, and is loaded only where they are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Kind = Literal["refused", "resolve", "connect", "timeout", "protocol"]

STOPPING = "the server is stopping"  # what a call says that is given up for it


class Call(msgspec.Struct, frozen=True):
    """One call to make. `timeout_ms` is for all of it: look-up, connect, and the last byte that is read. None: as long
    as the connection lives."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    timeout_ms: int | None = 30_000


class Answer(msgspec.Struct, frozen=True):
    """What was answered. Names of headers are in lower case. `excerpt`: the beginning of the body as text."""

    status: int
    headers: Mapping[str, str]
    excerpt: str
    duration_ms: int


class CallFailed(Exception):
    """No answer came.

    kind      refused   the egress rule forbids it; nothing was connected
              resolve   the name has no address
              connect   no connection came about, for whatever reason
              timeout   connected, and no whole answer in time
              protocol  what came was no answer, or ended in its middle
    """

    def __init__(self, kind: Kind, message: str, duration_ms: int = 0) -> None:
        self.kind: Kind = kind
        self.message = message
        self.duration_ms = duration_ms
        super().__init__(message)
