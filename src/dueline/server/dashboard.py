"""The dashboard at /ui/: its files, its settings, and its login. The page itself uses the native API.

    GET  /               a browser is led to /ui/, a program gets a few words about this server
    GET  /ui/            the page; all of its views are behind "#", so that there is one page
    GET  /ui/assets/...  scripts and styles; their names change with their content
    GET  /ui/settings    what the page must know before a login
    POST /ui/login       {"token": "..."}: puts the token into a cookie that scripts cannot read
    POST /ui/logout      removes the cookie

The cookie is one more place for a token (TokenPlace.COOKIE). It is checked by server.authentication, like
every token, so a revoked or expired token ends its logins, too. The files are a fixed list of names, read
once from the package, so no path is ever built from a request. They are built by `make ui` from the folder `ui`.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files

import msgspec

from ..config.settings import Server
from ..dialects.http import PUBLIC, Browser, Request, Response, Route
from ..dialects.native import encode
from ..engine.errors import BadJson, DuelineError, Forbidden, NoRoute
from ..rights import ALL, Grant, Right
from .authentication import COOKIE

Login = Callable[[str], Grant]
"""What someone who logs in with a token may do. Raises Unauthorized or Unavailable."""

MAX_LOGIN_BYTES = 4096
COOKIE_S = 30 * 86_400  # then the browser asks for the token again
SECURITY = (
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
)
TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
ASK_AGAIN = ("cache-control", "no-cache")
FOREVER = ("cache-control", "public, max-age=31536000, immutable")
NO_STORE = (("cache-control", "no-store"),)


class _LoginRequest(msgspec.Struct, forbid_unknown_fields=True):
    token: str


class Dashboard:
    """The routes of the dashboard. `login` None: the server checks no tokens, so there is nothing to log in to."""

    namespace = ALL

    def __init__(self, settings: Server, version: str, login: Login | None) -> None:
        self._settings = settings
        self._version = version
        self._login = login
        self._decode = msgspec.json.Decoder(_LoginRequest).decode

    def routes(self) -> Sequence[Route]:
        root = Route("GET", "/", self.root, "root", *PUBLIC, browser=Browser.ANY_LINK, always=True)
        if not self._settings.ui:
            return (root,)
        pages = (
            Route(
                "GET",
                f"/ui/{'' if name == 'index.html' else name}",
                StaticFile(name, content).serve,
                "ui",
                *PUBLIC,
                browser=Browser.ANY_LINK if name == "index.html" else Browser.OWN_PAGES,
                always=True,
            )
            for name, content in ui_files().items()
        )
        most = MAX_LOGIN_BYTES
        return (
            root,
            Route("GET", "/ui", self.moved, "ui_moved", *PUBLIC, browser=Browser.ANY_LINK, always=True),
            *pages,
            Route("GET", "/ui/settings", self.settings, "ui_settings", *PUBLIC, always=True),
            Route("POST", "/ui/login", self.log_in, "ui_login", *PUBLIC, max_body_bytes=most),
            Route("POST", "/ui/logout", self.log_out, "ui_logout", *PUBLIC, max_body_bytes=most, always=True),
        )

    def failed(self, request: Request, error: DuelineError) -> Response:
        return encode.response(encode.refused(error))

    async def root(self, request: Request) -> Response:
        """A browser is led to the dashboard; a program gets JSON."""
        vary = ("vary", "accept")
        if self._settings.ui and "text/html" in request.headers.get("accept", ""):
            return Response(302, headers=(("location", "ui/"), vary, *NO_STORE))
        about = {
            "name": "dueline",
            "version": self._version,
            "about": "a delay queue",
            "api": "/v1",
            "openapi": "/openapi.json",
            "docs": "/docs",
            "dashboard": "/ui/" if self._settings.ui else None,
        }
        return Response(200, msgspec.json.encode(about), headers=(vary,))

    async def moved(self, _request: Request) -> Response:
        return Response(308, headers=(("location", "ui/"),))

    async def settings(self, _request: Request) -> Response:
        shown = {
            "version": self._version,
            "auth": self._settings.auth,
            "read_only": self._settings.ui_read_only,
            "environment": self._settings.ui_environment,
            "colour": self._settings.ui_colour,
        }
        return Response(200, msgspec.json.encode(shown), headers=NO_STORE)

    async def log_in(self, request: Request) -> Response:
        if self._login is None:
            raise NoRoute("This server does not check tokens; there is nothing to log in to.")
        try:
            token = self._decode(request.body).token
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise BadJson('Send {"token": "..."}.') from None
        grant = self._login(token)
        if not grant.allows(Right.READ):
            raise Forbidden("The dashboard needs a token with the right read.")
        return Response(204, content_type="", headers=(("set-cookie", cookie(request, token, COOKIE_S)), *NO_STORE))

    async def log_out(self, request: Request) -> Response:
        return Response(204, content_type="", headers=(("set-cookie", cookie(request, "", 0)), *NO_STORE))


def cookie(request: Request, token: str, max_age_s: int) -> str:
    """The cookie for the page that made the request. Its Origin says whether the page has TLS, ours or a proxy's. If it
    has, the prefix __Host- makes browsers refuse a cookie that another host, or a page without TLS, has set."""
    text = f"{COOKIE}={token}; Path=/; Max-Age={max_age_s}; HttpOnly; SameSite=Strict"
    is_secure = request.headers.get("origin", "").startswith("https://")
    return f"__Host-{text}; Secure" if is_secure else text


class StaticFile:
    """One file of the page, in both encodings. A browser that has it already gets 304."""

    def __init__(self, name: str, content: bytes) -> None:
        self._type = TYPES[name.rpartition(".")[2]]
        self._encodings: Mapping[str, bytes] = {"": content, "gzip": gzip.compress(content, 9, mtime=0)}
        cache = ASK_AGAIN if name == "index.html" else FOREVER
        self._headers = (*SECURITY, cache, ("vary", "accept-encoding"))
        self._digest = hashlib.sha256(content).hexdigest()[:16]

    async def serve(self, request: Request) -> Response:
        encoding = "gzip" if "gzip" in request.headers.get("accept-encoding", "") else ""
        etag = f'"{self._digest}{encoding}"'  # each encoding is a file of its own
        headers = (*self._headers, ("etag", etag))
        if etag in request.headers.get("if-none-match", ""):
            return Response(304, content_type="", headers=headers)
        if encoding:
            headers = (*headers, ("content-encoding", encoding))
        return Response(200, self._encodings[encoding], self._type, headers)


def ui_files() -> dict[str, bytes]:
    """The built files, by their path below /ui/."""
    folder = files("dueline.server").joinpath("static", "ui")
    found = {f"assets/{one.name}": one.read_bytes() for one in folder.joinpath("assets").iterdir()}
    return {"index.html": folder.joinpath("index.html").read_bytes(), **dict(sorted(found.items()))}
