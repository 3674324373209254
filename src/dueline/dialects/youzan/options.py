"""The options of the Youzan-style dialect, in our units."""

from __future__ import annotations

import msgspec


class YouzanOptions(msgspec.Struct, frozen=True):
    """`empty_pop_success`: whether a pop that finds nothing is a success (id and value null) or an error."""

    namespace: str = "youzan"
    ttr_ms: int = 60_000
    empty_pop_success: bool = True
