"""The options of the EXFE dialect, in our units, and the type of its address check."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...engine.policy import Ladder

LADDER = Ladder((10_000, 60_000, 300_000, 1_800_000, 7_200_000))

CheckUrl = Callable[[str], None]
"""Raises InvalidField for an invalid URL, EgressRefused for one that this server must not call."""


class ExfeOptions(msgspec.Struct, frozen=True):
    """`retry`: the waits between attempts of a callback; None: a single attempt, as in the original. `concurrency`: the
    number of concurrent calls over all processes; push.per_host is the smaller limit per host."""

    namespace: str = "exfe"
    retry: Ladder | None = LADDER
    timeout_ms: int = 30_000
    concurrency: int = 256
