"""The ouqiang dialect: JSON in and out, Go's rules, Chinese messages. `OuqiangDialect(engine, options)`."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.engine import Engine
from ...engine.errors import DuelineError
from ..http import Request, Response, Route
from . import decode, encode
from .handlers import OuqiangHandlers
from .options import OuqiangOptions
from .routes import routes


class OuqiangDialect:
    """See `routes` for the surface."""

    name = "ouqiang"
    space = ""  # its paths are common words, so it owns all paths only on a listener of its own

    def __init__(self, engine: Engine, options: OuqiangOptions) -> None:
        self._routes = routes(OuqiangHandlers(engine, options))

    def routes(self) -> Sequence[Route]:
        return self._routes

    def respelled(self, path: str) -> str:
        return decode.clean_path(path)

    def moved(self, request: Request, path: str) -> Response:
        return encode.moved(request, path)

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.failed(error)
