"""The native dialect: JSON over HTTP, with everything that Dueline can do.

server/app creates it: `NativeDialect(engine, limits, info, push)`. `info` is called for each GET /v1/info and returns
an InfoView, whose namespace is replaced by that of the request. `push` checks push targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...engine.engine import Engine
from ...engine.errors import DuelineError, InvalidField, UnknownOutcome
from ...engine.limits import Limits
from ..http import Request, Response, Route
from . import decode, encode
from .answers import InfoView
from .handlers import NativeHandlers
from .push_handlers import PushHandlers
from .push_rules import PushRules
from .routes import routes


class NativeDialect:
    """See `routes.OPERATIONS` for the surface."""

    name = "native"

    def __init__(
        self, engine: Engine, limits: Limits, info: Callable[[], InfoView], push: PushRules = PushRules()
    ) -> None:
        self._routes = routes(NativeHandlers(engine, info, push), PushHandlers(engine, push), limits.max_request_bytes)

    def routes(self) -> Sequence[Route]:
        return self._routes

    def failed(self, request: Request, error: DuelineError) -> Response:
        if isinstance(error, UnknownOutcome) and error.id is None and len(request.params) == 2:
            error.id = request.params[1]
        if isinstance(error, InvalidField):
            decode.as_written(request, error)
        return encode.failed(error)
