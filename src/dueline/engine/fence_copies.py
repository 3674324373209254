"""Copies the fences of schedules to the new partitions of a topic (engine.fence, engine.expansion).

The old partition is closed first, so no occurrence is decided there any more. The new one accepts no sends until it has
the config, and it gets the config after the fences. If two processes copy at once, the later fence stays.
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
