"""What an EXFE queue service can be told, in our units, and what it asks about addresses."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...engine.policy import Ladder

LADDER = Ladder((10_000, 60_000, 300_000, 1_800_000, 7_200_000))

CheckUrl = Callable[[str], None]
"""Raises InvalidField for what is no URL, EgressRefused for one that this server must not call."""


class ExfeOptions(msgspec.Struct, frozen=True):
    """`retry`: the waits between tries of a callback; None: one try and the group is gone, as in the original.
    `concurrency`: calls at a time, of all processes together; per host there is a smaller limit (push.per_host)."""

    namespace: str = "exfe"
    retry: Ladder | None = LADDER
    timeout_ms: int = 30_000
    concurrency: int = 256
