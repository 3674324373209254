"""The posted calls of a store whose own calls are coroutines: the reference model, and stores that tests wrap."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from .completion import Done, leave
from .job import Partition
from .store import Outcome, Pull, PullOutcome, Ref, SendItem, SendOutcome


class _Awaited(Protocol):
    def send(
        self, partition: Partition, items: Sequence[SendItem], policy_version: int = 0
    ) -> Awaitable[list[SendOutcome]]: ...
    def pull(self, partition: Partition, pull: Pull) -> Awaitable[PullOutcome]: ...
    def ack(self, partition: Partition, items: Sequence[Ref]) -> Awaitable[list[Outcome]]: ...


class PostedByTask:
    """A task for each posted call."""

    def post_send(
        self: _Awaited, partition: Partition, items: Sequence[SendItem], policy_version: int, done: Done
    ) -> None:
        leave(_awaited(self.send, partition, items, policy_version), done)

    def post_pull(self: _Awaited, partition: Partition, pull: Pull, done: Done) -> None:
        leave(_awaited(self.pull, partition, pull), done)

    def post_ack(self: _Awaited, partition: Partition, items: Sequence[Ref], done: Done) -> None:
        leave(_awaited(self.ack, partition, items), done)


async def _awaited(call: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    return await call(*args)
