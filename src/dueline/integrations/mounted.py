"""The whole server as an ASGI application inside another one, or under any ASGI server.

    server = MountedServer(data="./dueline-data")            # or store="redis://...", or config="dueline.toml"
    app = FastAPI(lifespan=lifespan(server))
    app.mount("/queue", server)                              # Client("http://127.0.0.1:8000/queue")

Under an ASGI server of its own (`uvicorn shop:server`) it starts and stops by that server's lifespan messages. Run one
process of it: a second one finds the data folder of an embedded store in use; with `store` any number may run.

The server asks nobody for a token yet. Therefore only callers on this machine are answered: their address is a loopback
one, and no header says that somebody passed the request on. That is all that can be seen from here: behind a proxy on
this machine that adds no such header (nginx, unless told to) everybody looks local, so the proxy must keep the path to
itself or ask for credentials. `insecure=True` answers all: the application around it decides who may come this far.
Requests that web pages of other origins make are refused in any case (server.browser); the Host is not checked.
Needs dueline[server].
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import structlog

from ..config.load import load
from ..config.settings import Settings
from ..dialects.http import Response, plain_error
from ..server.app import App
from ..server.asgi import AsgiApp, Message, Receive, Send, write_answer
from ..server.browser import BrowserRules
from ..server.listeners import addresses
from ..server.push import refusal
from ..store.valkey.embedded import EmbeddedStore

FORBIDDEN = plain_error(
    403,
    "forbidden",
    "This server asks nobody for a token, so it answers callers on its own machine only (unless insecure=True).",
)
PASSED_ON = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})  # by a proxy
NOT_RUNNING = plain_error(503, "draining", "The server is not running.", headers=(("retry-after", "1"),))


class MountedServer:
    """An ASGI application that is a server. `async with` it, or give it to `lifespan`, or serve it alone.

    `settings` are a whole configuration; otherwise `config` is a file, and DUELINE_ variables count as for `serve`."""

    def __init__(
        self,
        data: str | Path | None = None,
        store: str | None = None,
        config: str | Path | None = None,
        *,
        settings: Settings | None = None,
        insecure: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> None:
        flags = {"store.data": None if data is None else str(data), "store.url": store}
        file = None if config is None else Path(config)
        self.settings = settings or load(flags, os.environ if env is None else env, file)
        if (why := refusal(self.settings)) is not None:
            raise ValueError(why)
        if len(addresses(self.settings)) > 1:
            raise ValueError("a mounted server has no addresses of its own: take `listen` out of the dialects")
        self._insecure = insecure or self.settings.server.insecure
        self._embedded: EmbeddedStore | None = None
        self._app: App | None = None
        self._asgi: AsgiApp | None = None

    async def start(self) -> None:
        """Start the embedded store, if it is one, and serve. Raises FolderInUse, EmbeddedError or StartRefused."""
        if self._app is not None:
            return
        _log_through_logging()
        told = self.settings.store
        if told.url is None:
            self._embedded = EmbeddedStore(
                told.data,
                told.binary,
                min_free_bytes=told.min_free_bytes,
                max_memory_bytes=told.max_memory_bytes,
                any_thread=True,
            )
        embedded = self._embedded
        url = told.url or "" if embedded is None else embedded.url
        self._app = App(self.settings, url, lambda: None if embedded is None else embedded.status)
        try:
            if embedded is not None:
                await embedded.start()
            await self._app.open()
        except BaseException:
            await self.stop()
            raise
        front = self._app.fronts[0]
        self._asgi = AsgiApp(
            front.router,
            max_body_bytes=front.limits.max_body_bytes,
            answered=self._app.http.answered,
            browser_rules=BrowserRules.mounted(self.settings.server),
        )

    async def stop(self) -> None:
        """Answer what is parked, give leases back, stop the store. It may be called twice, and before `start`."""
        app, self._app, self._asgi = self._app, None, None
        embedded, self._embedded = self._embedded, None
        if app is not None:
            await app.stop(asyncio.Event())
        if embedded is not None:
            await embedded.stop()

    async def __aenter__(self) -> MountedServer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await AsgiApp.answer_lifespan(receive, send, self.start, self.stop)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            raise ValueError(f"this is an HTTP application, not one for {scope['type']!r}")

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        refused: Response | None = None
        if not self._insecure and not _is_here(scope):
            refused = FORBIDDEN
        elif self._asgi is None:
            refused = NOT_RUNNING
        if refused is not None:
            await write_answer(refused, scope["method"] == "HEAD", send)
        elif self._asgi is not None:
            await self._asgi(_below(scope), receive, send)


def _below(scope: Message) -> Message:
    """The request as the mounted application sees it: without the path that it is mounted at."""
    root = scope.get("root_path", "")
    path: str = scope["path"]
    if not root or not path.startswith(root + "/"):
        return scope
    below: Message = {**scope, "path": path[len(root) :]}
    raw: bytes | None = scope.get("raw_path")
    if raw is not None:
        # The mount's own part may be escaped in the raw path: what is left has as many slashes as the path below.
        parts = raw.partition(b"?")[0].split(b"/")
        below["raw_path"] = b"/" + b"/".join(parts[root.count("/") + 1 :])
    return below


def _is_here(scope: Message) -> bool:
    """Whether the caller is on this machine, as far as can be seen. A unix socket has no address: behind it stands a
    proxy as a rule, which speaks for anybody."""
    client = scope.get("client")
    if client is None or any(name in PASSED_ON for name, _ in scope["headers"]):
        return False
    try:
        return ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False


def _log_through_logging() -> None:
    """The server's events go to the loggers `dueline...` of the program around it, unless that has said otherwise."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
