"""The routes of the server itself, outside its dialects: health, readiness, metrics, OpenAPI, docs.

How server/app creates them:

    SystemRoutes(version, reasons=health.reasons, warnings=health.warnings, metrics=metrics)

`reasons()` returns why the process is not ready; it is empty when the process is ready. `warnings()` returns problems
that do not affect readiness. The items are anything that msgspec can encode: a text, or a struct with code and message.
`await metrics(accept)` returns (body, content type) for the given Accept header.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from ..api.answers import Readiness
from ..dialects.http import PUBLIC, Request, Response, Route, TokenPlace
from ..dialects.native import encode
from ..engine.errors import DuelineError
from ..rights import ALL, Right
from .docs_page import docs_routes
from .openapi import document

Reasons = Callable[[], Sequence[Any]]
Metrics = Callable[[str], Awaitable[tuple[bytes, str]]]


class SystemRoutes:
    """`documents` adds the OpenAPI and docs pages of the native API."""

    namespace = ALL

    def __init__(
        self, version: str, reasons: Reasons, warnings: Reasons, metrics: Metrics, documents: bool = True
    ) -> None:
        self._version = version
        self._reasons = reasons
        self._warnings = warnings
        self._metrics = metrics
        self._documents = documents
        self._document: bytes | None = None

    def routes(self) -> Sequence[Route]:
        always = (
            Route("GET", "/healthz", self.healthz, "healthz", *PUBLIC, is_health=True),
            Route("GET", "/readyz", self.readyz, "readyz", *PUBLIC, is_health=True),
            Route("GET", "/metrics", self.metrics, "metrics", Right.READ, TokenPlace.HEADER, is_health=True),
        )
        if not self._documents:
            return always
        return (*always, Route("GET", "/openapi.json", self.openapi, "openapi", *PUBLIC), *docs_routes())

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.response(encode.refused(error))

    async def healthz(self, _request: Request) -> Response:
        return Response(200, b'{"alive":true}')

    async def readyz(self, _request: Request) -> Response:
        reasons = tuple(self._reasons())
        body = msgspec.json.encode(Readiness(not reasons, reasons, tuple(self._warnings())))
        return Response(503, body, headers=(("retry-after", "1"),)) if reasons else Response(200, body)

    async def metrics(self, request: Request) -> Response:
        request.check_all_topics()
        body, content_type = await self._metrics(request.headers.get("accept", ""))
        return Response(200, body, content_type)

    async def openapi(self, _request: Request) -> Response:
        if self._document is None:
            self._document = document(self._version)
        return Response(200, self._document)
