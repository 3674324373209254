"""The native dialect: JSON over HTTP, with everything that Dueline can do. See `api.operations` for the surface."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...api.answers import Info
from ...api.operations import OPERATIONS, Operation
from ...engine.engine import Engine
from ...engine.errors import DuelineError
from ...engine.limits import Limits
from ..http import Handler, Request, Response, Route
from . import encode
from .api import NativeApi
from .push_rules import PushRules
from .wire import caller_of, reader

OFTEN = frozenset({"send", "ack", "release", "extend"})  # the calls of every job that do not park


class NativeDialect:
    """The routes of the native API on an engine."""

    name = "native"

    def __init__(self, engine: Engine, limits: Limits, info: Callable[[], Info], push: PushRules = PushRules()) -> None:
        """`info` is called for each GET /v1/info; its namespace is replaced by that of the request. `push` checks push
        targets."""
        api = NativeApi(engine, info, push)
        self._routes = tuple(
            Route(
                one.method,
                one.pattern,
                _handler(api, one),
                one.name,
                one.parks,
                limits.max_request_bytes,
                taskless=one.name in OFTEN,
            )
            for one in OPERATIONS
        )

    def routes(self) -> Sequence[Route]:
        return self._routes

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.response(encode.refused(error))


def _handler(api: NativeApi, operation: Operation) -> Handler:
    """The handler of a route: read the request struct, call the API, write the reply."""
    name, call, read = operation.name, api.call, reader(operation)

    async def handle(request: Request) -> Response:
        caller = caller_of(request.headers.get("dueline-namespace"), request.namespace)
        return encode.response(await call(name, caller, request.params, read(request)))

    return handle
