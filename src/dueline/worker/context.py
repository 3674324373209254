"""What a handler can learn about its job, and how it can extend its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from ..api.answers import LeasedJob
from ..client.times import Duration, duration_ms


class HandlerLease(Protocol):
    """The lease of a handler's job. It is renewed by this process or by its parent."""

    @property
    def lease_until_ms(self) -> int: ...
    @property
    def stopping(self) -> bool: ...
    async def extend(self, lease_ms: int | None) -> None:
        """Extend the lease to lease_ms from now (None: the worker's lease), from any event loop. Raises LeaseLost."""
        ...

    def extend_blocking(self, lease_ms: int | None) -> None:
        """The same, from a thread that may block because no event loop runs in it."""
        ...


class Context:
    """The second parameter of a handler. The lease is renewed automatically while the handler runs."""

    def __init__(self, job: LeasedJob, lease: HandlerLease) -> None:
        self.job = job
        self.lease = lease

    @property
    def id(self) -> str:
        return self.job.id

    @property
    def topic(self) -> str:
        return self.job.topic

    @property
    def attempt(self) -> int:
        """1 for the first attempt. Deliveries that were given back uncounted are not included."""
        return self.job.attempt

    @property
    def max_attempts(self) -> int | None:
        return self.job.max_attempts

    @property
    def delivery(self) -> int:
        """The number of this delivery. Every delivery of the job has its own."""
        return self.job.delivery

    @property
    def due_at_ms(self) -> int:
        return self.job.due_at_ms

    @property
    def due_at(self) -> datetime:
        return self.job.due_at

    @property
    def created_at_ms(self) -> int:
        return self.job.created_at_ms

    @property
    def headers(self) -> Mapping[str, str]:
        return self.job.headers

    @property
    def tags(self) -> tuple[str, ...]:
        return self.job.tags

    @property
    def merge_key(self) -> str | None:
        return self.job.merge_key

    @property
    def items(self) -> list[Any] | None:
        """The items of a merge group, in send order; None for other jobs."""
        items = self.job.items
        return [msgspec.json.decode(bytes(item)) for item in items] if isinstance(items, tuple) else None

    @property
    def body(self) -> Raw | None:
        """The body as JSON text; None if it is not JSON."""
        return self.job.body if isinstance(self.job.body, Raw) else None

    @property
    def lease_until_ms(self) -> int:
        """The end of the lease as currently known, on the store's clock."""
        return self.lease.lease_until_ms

    @property
    def stopping(self) -> bool:
        """Whether the worker is stopping. A long handler can then end early with Snooze(0), which costs no attempt."""
        return self.lease.stopping

    def extend(self, lease: Duration | None = None) -> None:
        """Extend the lease to `lease` from now. For plain functions; coroutines await `aextend`. Raises LeaseLost."""
        refuse_in_loop("context.aextend")
        self.lease.extend_blocking(None if lease is None else duration_ms(lease, "lease"))

    async def aextend(self, lease: Duration | None = None) -> None:
        """`extend` for coroutines."""
        await self.lease.extend(None if lease is None else duration_ms(lease, "lease"))


def refuse_in_loop(instead: str) -> None:
    """Raise RuntimeError in a thread with an event loop, which a blocking call would stop. Names the async method."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"this blocks, and an event loop runs in this thread: use `await {instead}(...)`")
