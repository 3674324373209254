"""The engine: decides everything that can be decided before the store call, and knows no wire word and no key.

    dialect --Command--> Engine --items--> Store (one atomic call per line)

It owns: validation against the limits, times and policies to numbers, ids, the choice of the partition, the cache of
topic configs, the waiters (engine.waiters), the cleaner (engine.cleaner) and the registration of topics
(engine.registrar). The life cycle itself is the contract of the store's operations.
"""

from __future__ import annotations

from collections.abc import Sequence

from .commands import Bulk, Filter, Patch, Pull, Send, Sent, TopicPatch, TopicView
from .errors import DuelineError
from .job import Held, Job
from .limits import Limits
from .store import Done, Extend, Page, Query, Ref, Release, Store


class Engine:
    """Every promise of the native API as a method. All topics are given as (namespace, topic)."""

    def __init__(self, store: Store, limits: Limits = Limits()) -> None: ...

    async def start(self) -> None: ...
    async def stop(self) -> None:
        """Drain: parked pulls are answered empty, new work is refused with Draining, loops end."""

    async def send(self, namespace: str, topic: str, command: Send) -> Sent:
        """Store one job. Raises a DuelineError when it was refused."""
        ...

    async def send_many(self, namespace: str, topic: str, commands: Sequence[Send]) -> list[Sent | DuelineError]:
        """Store many; each has its own result, in order. A malformed one raises (field "[3].id") and nothing is stored."""
        ...

    async def pull(self, command: Pull) -> list[Held]:
        """Due jobs under a lease; waits up to wait_ms. Cancelling the call takes the waiter out; a job that was already
        pulled for it is released without costing an attempt."""
        ...

    async def give_back(self, namespace: str, jobs: Sequence[Held]) -> None:
        """Release jobs whose answer could not be written, without costing an attempt."""

    async def ack(self, namespace: str, topic: str, refs: Sequence[Ref]) -> list[Done]: ...
    async def release(self, namespace: str, topic: str, items: Sequence[Release]) -> list[Done]: ...
    async def extend(self, namespace: str, topic: str, items: Sequence[Extend]) -> list[Done]: ...
    async def cancel(self, namespace: str, topic: str, ids: Sequence[str], forget: bool = False) -> list[Done]: ...
    async def cancel_matching(self, namespace: str, topic: str, which: Filter, dry_run: bool) -> Bulk: ...
    async def get(self, namespace: str, topic: str, id: str) -> Job: ...
    async def patch(self, namespace: str, topic: str, patch: Patch) -> Job: ...
    async def fire(self, namespace: str, topic: str, id: str) -> Done: ...
    async def list(self, namespace: str, topic: str, query: Query) -> Page:
        """Query.cursor and Page.cursor are the engine's own here (partition + the store's cursor)."""
        ...

    async def topics(self, namespace: str, after: str, limit: int) -> tuple[list[TopicView], str | None]: ...
    async def topic(self, namespace: str, topic: str) -> TopicView: ...
    async def set_topic(self, namespace: str, topic: str, patch: TopicPatch) -> tuple[TopicView, bool]:
        """The view, and whether the topic is new."""
        ...

    async def pause(self, namespace: str, topic: str, until_ms: int | None) -> None: ...
    async def resume(self, namespace: str, topic: str) -> None: ...
    async def revive(
        self,
        namespace: str,
        topic: str,
        ids: Sequence[str],
        delay_ms: int = 0,
        max_attempts: int | None = None,
        set_max_attempts: bool = False,
    ) -> list[Done]: ...
    async def revive_matching(
        self,
        namespace: str,
        topic: str,
        which: Filter,
        dry_run: bool,
        delay_ms: int = 0,
        max_attempts: int | None = None,
        set_max_attempts: bool = False,
    ) -> Bulk: ...
    async def purge(self, namespace: str, topic: str, ids: Sequence[str]) -> list[Done]: ...
    async def purge_matching(self, namespace: str, topic: str, which: Filter, dry_run: bool) -> Bulk: ...
