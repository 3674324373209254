"""Ids that the engine makes, and the way from an id to its partition. No I/O.

An id of ours is a UUIDv7 as 32 hex characters: ordered by the time of its making and packed to 16 bytes by the store.
An id stands in one of 1,024 cells, and a partition holds a run of cells, so that cells can be moved one by one later.
"""

from __future__ import annotations

import random
import time
from zlib import crc32

from .limits import CELLS

_VERSION_AND_VARIANT = (7 << 76) | (2 << 62)
_RANDOM_BITS = ((1 << 76) - (1 << 64)) | ((1 << 62) - 1)


def new_id() -> str:
    """A fresh id. The module's generator is seeded by the system and again in every forked process."""
    bits = (time.time_ns() // 1_000_000 << 80) | _VERSION_AND_VARIANT | (random.getrandbits(76) & _RANDOM_BITS)
    return f"{bits:032x}"


def partition_of(id: str, partitions: int) -> int:
    """The partition that holds this id."""
    return 0 if partitions == 1 else (crc32(id.encode()) & (CELLS - 1)) * partitions // CELLS
