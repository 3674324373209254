"""The docs page at /docs: our own page, which reads /openapi.json. It works offline and under a strict CSP.

The files are a fixed list of names, read once from the package, so no path is ever built from a request.
"""

from __future__ import annotations

from importlib.resources import files

from ..dialects.http import PUBLIC, Browser, Handler, Request, Response, Route

HEADERS = (
    ("content-security-policy", "default-src 'self'; object-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
)
FILES = {
    "/docs": ("docs.html", "text/html; charset=utf-8", Browser.ANY_LINK),
    "/docs/docs.js": ("docs.js", "text/javascript; charset=utf-8", Browser.OWN_PAGES),
    "/docs/docs.css": ("docs.css", "text/css; charset=utf-8", Browser.OWN_PAGES),
}


def docs_routes() -> list[Route]:
    """The page and its two files."""
    folder = files("dueline.server").joinpath("static")
    return [
        Route("GET", path, _file(folder.joinpath(name).read_bytes(), content_type), "docs", *PUBLIC, browser=browser)
        for path, (name, content_type, browser) in FILES.items()
    ]


def _file(content: bytes, content_type: str) -> Handler:
    response = Response(200, content, content_type, HEADERS)

    async def serve(_request: Request) -> Response:
        return response

    return serve
