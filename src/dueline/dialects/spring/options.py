"""The options of the Spring dialect, in our units, and what it needs from discovery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from ...engine.policy import Ladder
from ...push.discovery import Instance

LADDER = Ladder((5_000, 30_000, 120_000, 600_000, 1_800_000, 7_200_000))


class SpringOptions(msgspec.Struct, frozen=True):
    """`retry`: the waits between attempts; None: a single attempt. `timeout_ms`: of one call; None: as long as its
    connection is open, because a worker answers when its work is done, and no other worker must start it meanwhile.
    `limit_ms`: a job that is not delivered this long after its due time is dead (expired); None: it waits for ever."""

    namespace: str = "spring"
    retry: Ladder | None = LADDER
    timeout_ms: int | None = None
    limit_ms: int | None = None


class Services(Protocol):
    """Discovery, as far as this dialect shows it."""

    async def __call__(self) -> Mapping[str, Sequence[Instance]]:
        """All known services, by name."""
        ...
