"""The application behind library HTTP servers: the same wiring as `dueline serve`, without our own HTTP front end.

BENCH_STORE=unix://... python -m uvicorn --factory bench.fronts:asgi
BENCH_STORE=unix://... python -m granian --interface rsgi --factory bench.fronts:rsgi
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from dueline.config.settings import Settings, Store
from dueline.dialects.http import Request
from dueline.runtime.locations import ExternalStore
from dueline.server.app import App
from dueline.server.asgi import AsgiApp
from dueline.server.head import Headers, join_headers


def _app() -> App:
    url = os.environ["BENCH_STORE"]
    return App(Settings(store=Store(url=url)), ExternalStore(url))


def asgi() -> AsgiApp:
    app = _app()

    async def shutdown() -> None:
        await app.stop(asyncio.Event())

    return AsgiApp(app.fronts[0].router, answered=app.http.answered, startup=app.open, shutdown=shutdown)


class RsgiApp:
    """Granian's own interface, which avoids ASGI's messages. Only what the benchmark needs; long polls do not work."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._router = app.fronts[0].router
        self._answered = app.http.answered

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_until_complete(self._app.open())

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_until_complete(self._app.stop(asyncio.Event()))

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        raw = join_headers([(name.encode(), value.encode()) for name, value in scope.headers.items()])
        url = f"{scope.path}?{scope.query_string}" if scope.query_string else scope.path
        method, path, query, found = self._router.locate(scope.method.encode(), url.encode())
        body = await protocol()
        answer = await self._router.respond(found, Request(method, path, query, Headers(raw), body, found.params))
        self._answered(found.route.name, method, answer.status, loop.time() - begun_s)
        head = [("content-length", str(len(answer.body))), ("content-type", answer.content_type), *answer.headers]
        protocol.response_bytes(answer.status, head, answer.body)


def rsgi() -> RsgiApp:
    return RsgiApp(_app())
