"""The environment a worker can be embedded in: a queue, and threads that wait for it and run functions.

A standalone worker connects to its URL and has its own threads and processes. In a test, it uses the test's queue
(`dueline.testing`), where everything happens in virtual time. See `Worker.live_in`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .queue import Queue

if TYPE_CHECKING:
    from .runner import Middleware

T = TypeVar("T")


class Host(Protocol):
    """The environment of an embedded worker. The worker neither starts nor closes its queue."""

    @property
    def queue(self) -> Queue: ...
    @property
    def middleware(self) -> Sequence[Middleware]:
        """Middleware that wraps the worker's own."""
        ...

    def do(self, ask: Callable[[Queue], Coroutine[Any, Any, T]]) -> T:
        """Run an operation on the queue and wait for its result, in a thread that may block."""
        ...

    async def ado(self, ask: Callable[[Queue], Coroutine[Any, Any, T]]) -> T:
        """Run an operation on the queue, from any event loop."""
        ...

    @property
    def here(self) -> bool:
        """Whether this is the thread of the event loop that the worker runs on."""
        ...

    async def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on that event loop, from another one. This thread may run plain functions in the meantime."""
        ...

    async def call(self, work: Callable[[], Any]) -> Any:
        """Run a plain function, such as a handler whose mode is thread or process."""
        ...
