"""The Spring dialect, service mode. Its courier makes the deliveries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...engine.errors import DuelineError
from ...push.courier import Courier
from ..contract import Dialect, DialectContext
from ..http import Request, Response, Route
from . import decode, encode
from .courier import SpringCourier
from .groups import COURIER
from .handlers import SpringHandlers
from .routes import routes
from .settings import SpringSettings


class SpringDialect(Dialect):
    """See `routes` for the surface."""

    space = ""  # its paths have no common prefix, so it owns all paths only on a listener of its own

    def __init__(self, settings: SpringSettings, context: DialectContext) -> None:
        self.namespace = settings.namespace
        self._routes = routes(SpringHandlers(context.engine, settings, context.resolver, context.push))
        self._courier = SpringCourier(context.resolver)

    def routes(self) -> Sequence[Route]:
        return self._routes

    def couriers(self) -> Mapping[str, Courier]:
        return {COURIER: self._courier}

    def respelled(self, path: str) -> str:
        return decode.lookup_path(path)

    def moved(self, request: Request, path: str) -> None:
        """No redirect: every spelling is answered directly."""

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.failed(request, error)
