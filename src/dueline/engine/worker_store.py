"""The workers of a namespace, as they report themselves: the store interface. No I/O here.

A worker *beats*: every 10 s it reports what it is and what it runs. One without a beat for FORGET_MS is forgotten. A
worker that stops reports that, and is shown as stopped until it is forgotten.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

BEAT_MS = 10_000
FORGET_MS = 60_000
MAX_WORKERS = 10_000  # of a namespace
WORKER_PAGE = 200
MAX_WORKER_BYTES = 16_384


class WorkerEntry(msgspec.Struct, frozen=True):
    """One worker. `data` is opaque to the store."""

    name: str
    seen_at_ms: int
    stopped: bool
    data: bytes


class WorkerStore(Protocol):
    """Each method is one atomic call, and safe to repeat."""

    async def beat(self, namespace: str, name: str, data: bytes) -> bool:
        """Register a worker, or renew it. False: there are too many."""
        ...

    async def leave(self, namespace: str, name: str) -> bool:
        """Mark a worker as stopped. False: there is no such worker."""
        ...

    async def get(self, namespace: str, name: str) -> WorkerEntry | None:
        """One worker, unless it is forgotten."""
        ...

    async def page(self, namespace: str, start: int) -> tuple[list[WorkerEntry], int | None]:
        """Up to WORKER_PAGE workers, the longest silent first, and where the next page begins. One that beats in
        between may be on two pages, or on none."""
        ...
