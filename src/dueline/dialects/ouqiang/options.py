"""The options of the ouqiang dialect, in our units."""

from __future__ import annotations

import msgspec


class OuqiangOptions(msgspec.Struct, frozen=True):
    """`hold_ms`: how long a pop waits when nothing is ready (the original's queue_block_timeout), at most
    limits.max_wait_ms."""

    namespace: str = "ouqiang"
    hold_ms: int = 178_000
