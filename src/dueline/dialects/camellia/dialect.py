"""The camellia dialect: forms in, JSON out, the protocol of camellia-delay-queue and its Java SDK.

server/app creates it: `CamelliaDialect(engine, limits, options, node)`. It calls `monitor.start()` when the server
begins to serve, and `monitor.stop()` when it stops.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.engine import Engine
from ...engine.errors import DuelineError
from ...engine.limits import Limits
from ..http import Request, Response, Route
from . import encode
from .handlers import CamelliaHandlers
from .monitor import Monitor
from .options import CamelliaOptions
from .pages import CamelliaPages, Node
from .routes import SPACE, routes


class CamelliaDialect:
    """See `routes` for the surface."""

    name = "camellia"
    space = SPACE

    def __init__(self, engine: Engine, limits: Limits, options: CamelliaOptions, node: Node) -> None:
        self.options = options
        self.monitor = Monitor(options.namespace, options.monitor_window_ms, engine.store.now_ms, engine.metrics)
        self.pages = CamelliaPages(engine, options.namespace, node)
        self._routes = routes(CamelliaHandlers(engine, limits, options, self.monitor), self.pages)

    def routes(self) -> Sequence[Route]:
        return self._routes

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.failed(request, error)
