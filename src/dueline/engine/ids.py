"""Makes ids, and maps an id to its cell. No I/O.

A generated id is a UUIDv7 as 32 hex characters: it sorts by creation time, and the store packs it to 16 bytes.
Each id hashes to one of 1,024 cells, and each partition of a topic has a range of cells (engine.partition_map).
"""

from __future__ import annotations

import random
import time
from functools import lru_cache
from zlib import crc32

from .limits import CELLS

_VERSION_AND_VARIANT = (7 << 76) | (2 << 62)
_RANDOM_BITS = ((1 << 76) - (1 << 64)) | ((1 << 62) - 1)


def new_id() -> str:
    """A new id. The module's generator is seeded by the system, and again in every forked process."""
    bits = (time.time_ns() // 1_000_000 << 80) | _VERSION_AND_VARIANT | (random.getrandbits(76) & _RANDOM_BITS)
    return f"{bits:032x}"


def new_id_in(partition: int, partitions: int) -> str:
    """A new id that belongs to partition number `partition` of `partitions`.

    A CRC over texts of equal length is linear: the effect of changing the last characters does not depend on the
    characters before them. So a table gives the right ending, and no search is needed for any number of partitions.
    """
    first = -(-partition * CELLS // partitions)
    cell = random.randrange(first, -(-(partition + 1) * CELLS // partitions))
    head = new_id()[:-4]
    here = crc32(b"0000", crc32(head.encode())) & (CELLS - 1)
    return head + _ends()[here ^ cell]


@lru_cache(1)
def _ends() -> tuple[str, ...]:
    """The four characters for each difference between two cells: they cause it when they replace "0000"."""
    zero = crc32(b"0000")
    found: dict[int, str] = {}
    for number in range(1 << 16):
        end = f"{number:04x}"
        found.setdefault((crc32(end.encode()) ^ zero) & (CELLS - 1), end)
        if len(found) == CELLS:
            break
    return tuple(found[difference] for difference in range(CELLS))


def cell_of(text: str) -> int:
    """The cell of an id or a merge key."""
    return crc32(text.encode()) & (CELLS - 1)


def partition_of(text: str, partitions: int) -> int:
    """The number of the partition that an id or a merge key belongs to."""
    return 0 if partitions == 1 else cell_of(text) * partitions // CELLS
