"""A limit and its use, as `/v1/info` shows it."""

from __future__ import annotations

import msgspec


class LimitUse(msgspec.Struct, frozen=True):
    """A limit, what is used of it now, and how often it has refused since the start of the process that answers.
    `namespace` None: a limit of client addresses; `used` is that of the address with the most."""

    limit: str
    max: float
    used: float | None = None
    refused: int = 0
    namespace: str | None = None
    token_id: str | None = None
