"""The Youzan-style dialect."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.errors import DuelineError
from ..contract import Dialect, DialectContext
from ..http import Request, Response, Route
from . import encode
from .handlers import YouzanHandlers
from .routes import routes
from .settings import YouzanSettings


class YouzanDialect(Dialect):
    """See `routes` for the surface."""

    def __init__(self, settings: YouzanSettings, context: DialectContext) -> None:
        self.namespace = settings.namespace
        self._routes = routes(YouzanHandlers(context.engine, settings))

    def routes(self) -> Sequence[Route]:
        return self._routes

    def respelled(self, path: str) -> str:
        return path.removesuffix("/") or "/"

    def moved(self, request: Request, path: str) -> None:
        """No redirect: both spellings are answered directly."""

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.failed(error)
