"""What `@worker.handles` leaves in place of a function: the function, and the means to send it jobs.

    close_order.send({"order": 7}, delay="30m")          from threads, processes and plain programs: blocks until kept
    await close_order.asend({"order": 7}, delay="30m")   from coroutines

The policy that the decorator names (`max_attempts`, `retry`, `lease`, `ttl`) is that of the jobs sent here; what a send
says itself counts more. Jobs that others send have the policy that they were sent with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

from ..client.results import Job, Outcome, Sent
from ..client.sending import Policy, SendOptions
from ..client.times import Duration, Moment
from .handlers import Handler

if TYPE_CHECKING:
    from .worker import Worker

P = ParamSpec("P")
T = TypeVar("T")


class Handle(Generic[P, T]):
    """A handler of a worker. Calling it calls the function, as if it had not been decorated. `inner`: the handle that
    was decorated once more to make this one."""

    def __init__(
        self,
        worker: Worker,
        handler: Handler,
        function: Callable[P, T],
        policy: Policy,
        inner: Handle[P, T] | None = None,
    ) -> None:
        self.worker = worker
        self.handler = handler
        self.function = function
        self.inner = inner
        self._policy = policy
        self.__name__: str = getattr(function, "__name__", handler.name)
        self.__qualname__: str = getattr(function, "__qualname__", handler.name)
        self.__module__: str = function.__module__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<handler of {self.topic}: {self.handler.name}>"

    @property
    def topic(self) -> str:
        return self.handler.topic

    # Plain calls: they block until it is done.

    def send(self, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """Send a job to this handler; it is kept when this returns. Options: as of `Client.send`."""
        return self._send(body, options, "asend")

    def at(self, moment: Moment, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """Send a job that is due at a moment."""
        return self._send(body, cast("SendOptions", {**options, "at": moment}), "aat")

    def cancel(self, id: str, missing_ok: bool = False) -> Outcome:
        """Withdraw a job, even one that is being worked on: its coroutine is cancelled, its outcome dropped. Raises
        NotFound, or AlreadyDone when it had ended; with `missing_ok` neither: the outcome is not `ok` then."""
        return self.worker.do(lambda queue: queue.cancel(self.topic, id, missing_ok), "acancel")

    def reschedule(self, id: str, delay: Duration | None = None, at: Moment | None = None) -> Job:
        """Move the due time of a job that nobody holds."""
        return self.worker.do(lambda queue: queue.reschedule(self.topic, id, delay, at), "areschedule")

    # The same for coroutines.

    async def asend(self, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """`send` for coroutines."""
        options = self._options(options)
        return await self.worker.ado(lambda queue: queue.send(self.topic, body, **options))

    async def aat(self, moment: Moment, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """`at` for coroutines."""
        return await self.asend(body, **cast("SendOptions", {**options, "at": moment}))

    async def acancel(self, id: str, missing_ok: bool = False) -> Outcome:
        """`cancel` for coroutines."""
        return await self.worker.ado(lambda queue: queue.cancel(self.topic, id, missing_ok))

    async def areschedule(self, id: str, delay: Duration | None = None, at: Moment | None = None) -> Job:
        """`reschedule` for coroutines."""
        return await self.worker.ado(lambda queue: queue.reschedule(self.topic, id, delay, at))

    def _send(self, body: Any, options: SendOptions, instead: str) -> Sent:
        options = self._options(options)
        return self.worker.do(lambda queue: queue.send(self.topic, body, **options), instead)

    def _options(self, options: SendOptions) -> SendOptions:
        return cast("SendOptions", {**self._policy, **options})
