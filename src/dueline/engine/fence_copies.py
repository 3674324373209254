"""Copies the fences of schedules to the new partitions of a topic (engine.fence, engine.expansion).

An old partition is closed before, so no occurrence is decided there any more. A new one takes no sends before it knows
the config, which it gets afterwards. So whoever opens it has copied the fences, and the later one of two stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .job import Partition
from .store import Store


async def copy_fences(store: Store, old: Sequence[Partition], new: Sequence[Partition]) -> None:
    for partition in old:
        cursor: bytes | None = b""
        while cursor is not None:
            page, cursor = await store.fences(partition, cursor)
            if page:
                await asyncio.gather(*(store.fence(one, page) for one in new))
