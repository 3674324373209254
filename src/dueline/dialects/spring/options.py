"""What a Spring queue server can be told, in our units, and what it asks of discovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from ...engine.policy import Ladder
from ...push.discovery import Instance

LADDER = Ladder((5_000, 30_000, 120_000, 600_000, 1_800_000, 7_200_000))


class SpringOptions(msgspec.Struct, frozen=True):
    """`retry`: the waits between tries; None: one try. `timeout_ms`: of one call; None: as long as its connection
    lives, because a worker answers when its work is done, and another one must not begin it meanwhile. `limit_ms`: a
    job that is not delivered so long after its time is dead (expired); None: it waits without end."""

    namespace: str = "spring"
    retry: Ladder | None = LADDER
    timeout_ms: int | None = None
    limit_ms: int | None = None


class Services(Protocol):
    """Discovery, as far as this dialect shows it."""

    async def __call__(self) -> Mapping[str, Sequence[Instance]]:
        """All services that are known, by name."""
        ...
