"""The EXFE dialect. The courier "carried" of the push package makes the callbacks."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.errors import DuelineError
from ..contract import Dialect, DialectContext
from ..http import Request, Response, Route
from . import encode
from .handlers import ExfeHandlers
from .routes import SPACE, routes
from .settings import ExfeSettings


class ExfeDialect(Dialect):
    """See `routes` for the surface."""

    space = SPACE

    def __init__(self, settings: ExfeSettings, context: DialectContext) -> None:
        self.namespace = settings.namespace
        handlers = ExfeHandlers(context.engine, settings, context.push.url)
        self._routes = routes(handlers)

    def routes(self) -> Sequence[Route]:
        return self._routes

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.failed(error)
