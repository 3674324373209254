"""The camellia dialect. The monitor is its background work; its pages and metrics cover the whole server (`node`)."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.errors import DuelineError
from ..contract import Dialect, DialectContext
from ..http import Request, Response, Route
from . import encode
from .handlers import CamelliaHandlers
from .metrics_page import CamelliaMetrics
from .monitor import Monitor
from .node import CamelliaNode
from .pages import CamelliaPages
from .routes import SPACE, routes
from .settings import CamelliaSettings


class CamelliaDialect(Dialect):
    """See `routes` for the surface."""

    space = SPACE

    def __init__(self, settings: CamelliaSettings, context: DialectContext) -> None:
        engine = context.engine
        self.namespace = settings.namespace
        self._monitor = Monitor(settings.namespace, settings.monitor_window_ms, engine.store.now_ms, engine.metrics)
        node = CamelliaNode(context.folder, context.ready, context.samples)
        pages = CamelliaPages(engine, settings.namespace, node)
        self._routes = routes(CamelliaHandlers(engine, engine.limits, settings, self._monitor), pages)
        self.metrics = CamelliaMetrics(self._monitor, pages, context.store_answers)

    def routes(self) -> Sequence[Route]:
        return self._routes

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.failed(request, error)

    async def start(self) -> None:
        self._monitor.start()

    async def stop(self) -> None:
        self._monitor.stop()
