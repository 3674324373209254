"""The native API without a transport: one handler per operation, from a request struct to a reply.

HTTP (`dialect`) reads the struct from bytes and writes the reply. A client in the same process calls `answer` with the
struct itself. Handlers, checks and errors are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ...api.answers import Info, Sent
from ...api.operations import BY_NAME, EVENTS, OPERATIONS, OVERVIEW, PUSH, SCHEDULES, TOKENS, WORKERS, Operation
from ...api.reply import Reply
from ...api.requests import NewJob
from ...engine.audit import GONE, LOCAL, AuditNote
from ...engine.engine import Engine
from ...engine.errors import DuelineError, InvalidField, UnknownOutcome
from ...engine.job import Partition
from ...engine.store import SendItem, SendOutcome
from ..contract import PushRules
from ..http import note_path
from . import decode, encode
from .audit import note_reply, note_request
from .event_handlers import EventHandlers
from .handlers import NativeHandlers
from .overview_handlers import OverviewHandlers
from .push_handlers import PushHandlers
from .schedule_handlers import ScheduleHandlers
from .token_handlers import TokenHandlers
from .wire import DEFAULT_NAMESPACE, as_written, caller_of, checked, plain_name
from .worker_handlers import WorkerHandlers

Handle = Callable[..., Coroutine[Any, Any, Reply]]
"""handle(caller, request struct, *placeholders of the path). Raises DuelineError, to be completed by `complete`."""

SendNow = Callable[[Partition, SendItem, int], SendOutcome | None]


class NativeApi:
    """`info` is called for each `info` operation; the namespace of its answer is replaced by that of the request."""

    def __init__(self, engine: Engine, info: Callable[[], Info], rules: PushRules = PushRules()) -> None:
        handlers = NativeHandlers(engine, info, rules)
        groups = {
            PUSH: PushHandlers(engine, rules),
            OVERVIEW: OverviewHandlers(engine),
            SCHEDULES: ScheduleHandlers(engine.schedules),
            TOKENS: TokenHandlers(engine.tokens, rules),
            EVENTS: EventHandlers(engine),
            WORKERS: WorkerHandlers(engine),
        }
        self._engine = engine
        self._max_request_bytes = engine.limits.max_request_bytes
        self.handlers: dict[str, Handle] = {
            one.name: getattr(groups.get(one.group, handlers), one.name) for one in OPERATIONS
        }

    def answer(
        self, operation: str, namespace: str | None, params: tuple[str, ...], request: Any
    ) -> Coroutine[Any, Any, Reply]:
        """The reply to a caller in this process, even if it is a refusal. `request` is the operation's struct, or a
        value with the same JSON."""
        if BY_NAME[operation].audited:
            return self._audited(BY_NAME[operation], namespace, params, request)
        return self._answer(operation, namespace, params, request)

    async def _audited(
        self, operation: Operation, namespace: str | None, params: tuple[str, ...], request: Any
    ) -> Reply:
        note = AuditNote(operation.name, LOCAL, namespace=namespace or DEFAULT_NAMESPACE)
        note_path(note, operation.pattern, params)
        try:
            reply = await self._answer(operation.name, namespace, params, request, note)
        except asyncio.CancelledError:  # it may have taken effect
            note.code = GONE
            self._engine.audit.write_later(note)
            raise
        note_reply(note, reply)
        note.status = reply.status
        await self._engine.audit.write(note)
        return reply

    async def _answer(
        self,
        operation: str,
        namespace: str | None,
        params: tuple[str, ...],
        request: Any,
        note: AuditNote | None = None,
    ) -> Reply:
        try:
            caller, request = caller_of(namespace), self.checked(operation, request)
            if note is not None:
                note_request(note, request)
            return await self.handlers[operation](caller, request, *params)
        except DuelineError as error:
            complete(error, params, request)
            return encode.refused(error)

    def checked(self, operation: str, request: Any) -> Any:
        """The request struct, checked as if it had come by HTTP. Raises DuelineError."""
        return checked(operation, request, self._max_request_bytes)

    def send_now(self, store: SendNow, namespace: str | None, topic: str, job: NewJob) -> Sent | Reply | None:
        """Send through `store` from a thread without an event loop. Returns the stored job, or the Reply of a refusal,
        or None if the job was not sent this way or the outcome is unknown."""
        try:
            command = decode.send(self.checked("send", job))
            sent = self._engine.send_now(store, caller_of(namespace).namespace, plain_name(topic, "topic"), command)
        except UnknownOutcome:
            return None
        except DuelineError as error:
            complete(error, (topic,), job)
            return encode.refused(error)
        return None if sent is None else encode.sent(sent)


def complete(error: DuelineError, params: tuple[str, ...], request: Any) -> None:
    """Add to an error what only the request knows: the field as it was written, and the id of the job."""
    if isinstance(error, InvalidField):
        as_written(request, error)
    elif isinstance(error, UnknownOutcome) and error.id is None and len(params) == 2:
        error.id = params[1]
