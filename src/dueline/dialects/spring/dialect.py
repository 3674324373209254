"""The Spring dialect, service mode: `SpringDialect(engine, options, services)`. Its courier makes the deliveries."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.engine import Engine
from ...engine.errors import DuelineError
from ..http import Request, Response, Route
from . import decode, encode
from .handlers import SpringHandlers
from .options import Services, SpringOptions
from .routes import routes


class SpringDialect:
    """See `routes` for the surface."""

    name = "spring"
    space = ""  # its paths have no common prefix, so it owns all paths only on a listener of its own

    def __init__(self, engine: Engine, options: SpringOptions, services: Services) -> None:
        self._routes = routes(SpringHandlers(engine, options, services))

    def routes(self) -> Sequence[Route]:
        return self._routes

    def respelled(self, path: str) -> str:
        return decode.lookup_path(path)

    def moved(self, request: Request, path: str) -> None:
        """No redirect: every spelling is answered directly."""

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.failed(request, error)
