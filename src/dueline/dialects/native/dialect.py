"""The native dialect: JSON over HTTP, with everything that Dueline can do.

The namespace of the context's InfoView is replaced by that of the request.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.errors import DuelineError, InvalidField, UnknownOutcome
from ..contract import Dialect, DialectContext
from ..http import Request, Response, Route
from ..settings import DialectSettings
from . import decode, encode
from .handlers import NativeHandlers
from .push_handlers import PushHandlers
from .routes import routes


class NativeDialect(Dialect):
    """See `routes.OPERATIONS` for the surface."""

    def __init__(self, settings: DialectSettings, context: DialectContext) -> None:
        engine, push = context.engine, context.push
        handlers = NativeHandlers(engine, context.info, push)
        self._routes = routes(handlers, PushHandlers(engine, push), engine.limits.max_request_bytes)

    def routes(self) -> Sequence[Route]:
        return self._routes

    def failed(self, request: Request, error: DuelineError) -> Response:
        if isinstance(error, UnknownOutcome) and error.id is None and len(request.params) == 2:
            error.id = request.params[1]
        if isinstance(error, InvalidField):
            decode.as_written(request, error)
        return encode.failed(error)
