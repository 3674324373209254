"""The Youzan-style dialect: `YouzanDialect(engine, limits, options)`."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.engine import Engine
from ...engine.errors import DuelineError
from ...engine.limits import Limits
from ..http import Request, Response, Route
from . import encode
from .handlers import YouzanHandlers
from .options import YouzanOptions
from .routes import routes


class YouzanDialect:
    """See `routes` for the surface."""

    name = "youzan"

    def __init__(self, engine: Engine, limits: Limits, options: YouzanOptions) -> None:
        self._routes = routes(YouzanHandlers(engine, limits, options))

    def routes(self) -> Sequence[Route]:
        return self._routes

    def respelled(self, path: str) -> str:
        return path.removesuffix("/") or "/"

    def moved(self, request: Request, path: str) -> None:
        """No redirect: both spellings are answered directly."""

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.failed(error)
