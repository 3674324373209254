"""The EXFE dialect: `ExfeDialect(engine, options, check_url)`. The courier "carried" of the push package makes the
callbacks. The Redis actions of the same service are a library, `dueline.exfe`."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.engine import Engine
from ...engine.errors import DuelineError
from ..http import Request, Response, Route
from . import encode
from .handlers import ExfeHandlers
from .options import CheckUrl, ExfeOptions
from .routes import SPACE, routes


class ExfeDialect:
    """See `routes` for the surface."""

    name = "exfe"
    space = SPACE

    def __init__(self, engine: Engine, options: ExfeOptions, check_url: CheckUrl) -> None:
        self._routes = routes(ExfeHandlers(engine, options, check_url))

    def routes(self) -> Sequence[Route]:
        return self._routes

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.failed(error)
