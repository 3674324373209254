"""What somebody brings along who has a worker live with him: a queue, and the threads that wait and that run functions.

A worker on its own connects to its URL and has threads and processes of its own. In a test it lives in the test's queue
(`dueline.testing`), where all of it happens in virtual time: see `Worker.live_in`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .queue import Queue

if TYPE_CHECKING:
    from .runner import Middleware

T = TypeVar("T")


class Host(Protocol):
    """Where a worker lives. Its queue is neither started nor closed by the worker."""

    @property
    def queue(self) -> Queue: ...
    @property
    def middleware(self) -> Sequence[Middleware]:
        """Around that of the worker."""
        ...

    def do(self, ask: Callable[[Queue], Coroutine[Any, Any, T]]) -> T:
        """Ask the queue something and wait for it, in a thread that may wait."""
        ...

    async def ado(self, ask: Callable[[Queue], Coroutine[Any, Any, T]]) -> T:
        """Ask the queue something, in any event loop."""
        ...

    @property
    def here(self) -> bool:
        """Whether this is the thread of the event loop that the worker runs on."""
        ...

    async def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on that event loop, from another one. This thread may run plain functions meanwhile."""
        ...

    async def call(self, work: Callable[[], Any]) -> Any:
        """Run a plain function: handlers whose mode is thread or process."""
        ...
