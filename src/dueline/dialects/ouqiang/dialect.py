"""The ouqiang dialect: JSON in and out, Go's rules, Chinese messages."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.errors import DuelineError
from ..contract import Dialect, DialectContext
from ..http import Request, Response, Route
from . import decode, encode
from .handlers import OuqiangHandlers
from .routes import routes
from .settings import OuqiangSettings


class OuqiangDialect(Dialect):
    """See `routes` for the surface."""

    space = ""  # its paths are common words, so it owns all paths only on a listener of its own

    def __init__(self, settings: OuqiangSettings, context: DialectContext) -> None:
        self.namespace = settings.namespace
        self._routes = routes(OuqiangHandlers(context.engine, settings))

    def routes(self) -> Sequence[Route]:
        return self._routes

    def respelled(self, path: str) -> str:
        return decode.clean_path(path)

    def moved(self, request: Request, path: str) -> Response:
        return encode.moved(request, path)

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.failed(error)
