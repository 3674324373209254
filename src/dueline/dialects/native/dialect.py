"""The native dialect: JSON over HTTP, with everything that Dueline can do. See `api.operations` for the surface."""

from __future__ import annotations

from collections.abc import Sequence

from ...api.operations import OPERATIONS, Operation
from ...engine.engine import Engine
from ...engine.errors import DuelineError
from ...rights import ALL, Right
from ..contract import Dialect, DialectContext
from ..http import Request, Response, Route, TokenPlace, on_line
from ..settings import DialectSettings
from . import encode
from .access import ASKS_FOR_RIGHTS, access_check, jobs_in
from .api import Handle, NativeApi, complete
from .audit import note_reply, note_request
from .event_handlers import begin_events
from .lines import Awaits, line_of
from .wire import caller_of, reader

OFTEN = frozenset({"release", "extend"})  # by the holder of a lease; sends, pulls and acks have lines


class NativeDialect(Dialect):
    """The routes of the native API on an engine. Its `info` names the namespace of the request."""

    def __init__(self, settings: DialectSettings, context: DialectContext) -> None:
        api = NativeApi(context.engine, context.info, context.push)
        self._routes = tuple(_route(one, api.handlers[one.name], context.engine) for one in OPERATIONS)

    def routes(self) -> Sequence[Route]:
        return self._routes

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.response(encode.refused(error))


def _route(operation: Operation, handle: Handle, engine: Engine) -> Route:
    handler = _handler(operation, handle, engine)
    line = line_of(operation.name, engine, handler)
    return Route(
        operation.method,
        operation.pattern,
        handler if line is None else on_line(line),
        operation.name,
        operation.right,
        TokenPlace.PAGES,
        operation.parks,
        engine.limits.max_request_bytes,
        audited=operation.audited,
        taskless=operation.name in OFTEN,
        line=line,
    )


def _handler(operation: Operation, handle: Handle, engine: Engine) -> Awaits:
    """The handler of a route: read the request struct, handle it, write the reply."""
    read, check = reader(operation), access_check(operation, engine)
    asks_for_rights, holds_jobs = operation.name in ASKS_FOR_RIGHTS, operation.right is not Right.PULL

    async def respond(request: Request) -> Response:
        note = request.note
        caller = caller_of(request.headers.get("dueline-namespace"), request.grant)
        asked = read(request)
        if note is not None:
            note_request(note, asked)
        if check is not None and (asks_for_rights or ALL not in request.grant.topics):
            check(caller, request.params, asked)
        if operation.name == "events" and asked.wait_ms is None:
            return await begin_events(engine, caller, asked, request.headers.get("last-event-id"))
        if request.queue is not None and holds_jobs and (jobs := jobs_in(asked)) > 1:
            request.hold_jobs(jobs)  # the router has counted one
        try:
            reply = await handle(caller, asked, *request.params)
        except DuelineError as error:
            complete(error, request.params, asked)
            raise
        if note is not None:
            note_reply(note, reply)
        return encode.response(reply)

    return respond
