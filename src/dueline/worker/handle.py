"""The object that `@worker.handles` puts in place of a function. It can be called as before, and can send jobs.

    close_order.send(Order(7), delay="30m")              from threads, processes and plain programs: blocks until stored
    await close_order.asend(Order(7), delay="30m")       from coroutines

The body has the type of the handler's parameter. A handler with several parameters takes an object with these fields.

The decorator's policy (`max_attempts`, `retry`, `lease`, `ttl`) becomes the topic's policy, so it applies to jobs from
any sender (`topic_policies`). Options of a single send take precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, overload

from ..api.answers import Job, Outcome, Sent
from ..client.sending import SendOptions, with_attempts
from ..client.times import Duration, Moment
from .handlers import Handler
from .queue import Queue

if TYPE_CHECKING:
    from .context import Context
    from .worker import Worker

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B")


class Handle(Generic[P, T]):
    """A handler of a worker. Calling it calls the undecorated function. `inner`: the handle below, if a handle was
    decorated again."""

    def __init__(
        self,
        worker: Worker,
        handler: Handler,
        function: Callable[P, T],
        inner: Handle[P, T] | None = None,
    ) -> None:
        self.worker = worker
        self.handler = handler
        self.function = function
        self.inner = inner
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

    # Blocking calls.

    @overload
    def send(self: NoBody, body: Any = None, **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    def send(self: OfGroup[B], body: B | list[B], **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    def send(self: OfBody[B], body: B, **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    def send(self: OfFields, body: Mapping[str, Any], **options: Unpack[SendOptions]) -> Sent: ...
    def send(self, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """Send a job to this handler. It is stored when this returns. Options: as for `Client.send`."""
        return self._send(body, options, "asend")

    @overload
    def at(self: NoBody, moment: Moment, body: Any = None, **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    def at(self: OfGroup[B], moment: Moment, body: B | list[B], **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    def at(self: OfBody[B], moment: Moment, body: B, **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    def at(self: OfFields, moment: Moment, body: Mapping[str, Any], **options: Unpack[SendOptions]) -> Sent: ...
    def at(self, moment: Moment, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """Send a job that is due at a moment."""
        return self._send(body, cast("SendOptions", {**options, "at": moment}), "aat")

    def cancel(self, id: str, missing_ok: bool = False) -> Outcome:
        """Cancel a job, even one that is running: its coroutine is cancelled and its outcome dropped. Raises NotFound,
        or AlreadyDone if it has already ended. With `missing_ok` neither is raised; the outcome is then not `ok`."""
        return self.worker.do(lambda queue: queue.cancel(self.topic, id, missing_ok), "acancel")

    def reschedule(self, id: str, delay: Duration | None = None, at: Moment | None = None) -> Job:
        """Move the due time of a job that is not leased."""
        return self.worker.do(lambda queue: queue.reschedule(self.topic, id, delay, at), "areschedule")

    # The same calls for coroutines.

    @overload
    async def asend(self: NoBody, body: Any = None, **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    async def asend(self: OfGroup[B], body: B | list[B], **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    async def asend(self: OfBody[B], body: B, **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    async def asend(self: OfFields, body: Mapping[str, Any], **options: Unpack[SendOptions]) -> Sent: ...
    async def asend(self, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """`send` for coroutines."""
        return await self._asend(body, options)

    @overload
    async def aat(self: NoBody, moment: Moment, body: Any = None, **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    async def aat(self: OfGroup[B], moment: Moment, body: B | list[B], **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    async def aat(self: OfBody[B], moment: Moment, body: B, **options: Unpack[SendOptions]) -> Sent: ...
    @overload
    async def aat(self: OfFields, moment: Moment, body: Mapping[str, Any], **options: Unpack[SendOptions]) -> Sent: ...
    async def aat(self, moment: Moment, body: Any = None, **options: Unpack[SendOptions]) -> Sent:
        """`at` for coroutines."""
        return await self._asend(body, cast("SendOptions", {**options, "at": moment}))

    async def acancel(self, id: str, missing_ok: bool = False) -> Outcome:
        """`cancel` for coroutines."""
        return await self.worker.ado(lambda queue: queue.cancel(self.topic, id, missing_ok))

    async def areschedule(self, id: str, delay: Duration | None = None, at: Moment | None = None) -> Job:
        """`reschedule` for coroutines."""
        return await self.worker.ado(lambda queue: queue.reschedule(self.topic, id, delay, at))

    def _send(self, body: Any, options: SendOptions, instead: str) -> Sent:
        return self.worker.do(lambda queue: self._sent(queue, body, options), instead)

    async def _asend(self, body: Any, options: SendOptions) -> Sent:
        return await self.worker.ado(lambda queue: self._sent(queue, body, options))

    async def _sent(self, queue: Queue, body: Any, options: SendOptions) -> Sent:
        carried = await self.worker.topic_policies.carried(queue, self.topic)
        return await queue.send(self.topic, body, **cast("SendOptions", {**carried, **with_attempts(options)}))


if TYPE_CHECKING:
    # The bodies a handle accepts, by its handler's parameters (see `handlers`). A group's items are sent one by one.
    NoBody = Handle[[], Any] | Handle[[Context], Any]
    OfGroup = Handle[[list[B]], Any] | Handle[[list[B], Context], Any]
    OfBody = Handle[[B], Any] | Handle[[B, Context], Any]
    OfFields = Handle[Concatenate[Any, Any, ...], Any]
