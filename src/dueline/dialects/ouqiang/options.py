"""What an ouqiang server can be told, in our units."""

from __future__ import annotations

import msgspec


class OuqiangOptions(msgspec.Struct, frozen=True):
    """`hold_ms`: how long a pop is held when nothing is ready (the original's queue_block_timeout), limits.max_wait_ms
    at the most."""

    namespace: str = "ouqiang"
    hold_ms: int = 178_000
