"""The whole server as an ASGI application, mounted in another application or run by any ASGI server.

    server = MountedServer(data="./dueline-data")            # or store="redis://...", or config="dueline.toml"
    app = FastAPI(lifespan=lifespan(server))
    app.mount("/queue", server)                              # Client("http://127.0.0.1:8000/queue")

Run alone by an ASGI server (`uvicorn shop:server`), it starts and stops with the lifespan messages. With an embedded
store, run a single process, because a second one finds the data folder in use. With `store`, any number may run.

With server.auth = "tokens" it answers everyone who has a token; TLS is up to the application around it. Without tokens
it answers only local callers: their address is a loopback address, and no header shows that a proxy forwarded the
request. A local proxy that adds no such header (nginx, by default) makes every caller look local. Such a proxy must not
expose the path, or must authenticate callers. `insecure=True` answers all callers and leaves access control to the
application around it.
Cross-origin requests from browsers are always refused (server.browser); the Host header is not checked.
Needs dueline[server].
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from ..config.load import load
from ..config.settings import Settings
from ..dialects.http import Response, plain_error
from ..runtime.locations import location_of, tls_refusal
from ..server.app import App
from ..server.asgi import AsgiApp, Message, Receive, Send, write_answer
from ..server.browser import BrowserRules
from ..server.listeners import addresses
from ..server.start_checks import log_callers, push_refusal

FORBIDDEN = plain_error(
    403,
    "forbidden",
    "This server checks no tokens, so it answers callers on its own machine only (unless insecure=True).",
)
PASSED_ON = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})  # by a proxy
NOT_RUNNING = plain_error(503, "draining", "The server is not running.", headers=(("retry-after", "1"),))


class MountedServer:
    """A Dueline server as an ASGI application. Use it with `async with`, pass it to `lifespan`, or serve it alone.

    `settings` is a complete configuration. Otherwise `config` is a file, and DUELINE_ variables apply as in `serve`."""

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
        if (why := push_refusal(self.settings) or tls_refusal(self.settings.store)) is not None:
            raise ValueError(why)
        if len(addresses(self.settings)) > 1:
            raise ValueError("a mounted server has no addresses of its own: remove `listen` from the dialects")
        self._everyone = insecure or self.settings.server.insecure
        if self.settings.server.auth == "tokens" and not self._everyone:
            for name, who in self.settings.callers().items():
                if who == "none":
                    raise ValueError(
                        f'dialects.{name}.auth = "none": a mounted server with tokens answers other machines, and this '
                        "dialect would let everyone in. Use header or path, or insecure=True"
                    )
            self._everyone = True
        self._app: App | None = None
        self._asgi: AsgiApp | None = None

    async def start(self) -> None:
        """Start the embedded store, if there is one, and serve. Raises FolderInUse, EmbeddedError or StartRefused."""
        if self._app is not None:
            return
        log_callers(self.settings)
        self._app = App(self.settings, location_of(self.settings.store, any_thread=True))
        try:
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
            auth=self._app.auth,
            quotas=self._app.quotas,
        )
        self._app.recheck = self._asgi.recheck

    async def stop(self) -> None:
        """Answer waiting pulls and stop the server and its store. It may be called twice, and before `start`."""
        app, self._app, self._asgi = self._app, None, None
        if app is not None:
            await app.stop(asyncio.Event())

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
        if not self._everyone and not _is_here(scope):
            refused = FORBIDDEN
        elif self._asgi is None:
            refused = NOT_RUNNING
        if refused is not None:
            await write_answer(refused, scope["method"] == "HEAD", send)
        elif self._asgi is not None:
            await self._asgi(_below(scope), receive, send)


def _below(scope: Message) -> Message:
    """The request without the path prefix that the server is mounted at."""
    root = scope.get("root_path", "")
    path: str = scope["path"]
    if not root or not path.startswith(root + "/"):
        return scope
    below: Message = {**scope, "path": path[len(root) :]}
    raw: bytes | None = scope.get("raw_path")
    if raw is not None:
        # The prefix may be escaped in the raw path, so the rest is found by its number of slashes.
        parts = raw.partition(b"?")[0].split(b"/")
        below["raw_path"] = b"/" + b"/".join(parts[root.count("/") + 1 :])
    return below


def _is_here(scope: Message) -> bool:
    """Whether the caller appears to be on this machine. A unix socket does not count as local, because it usually
    belongs to a proxy, which forwards requests from anywhere."""
    client = scope.get("client")
    if client is None or any(name in PASSED_ON for name, _ in scope["headers"]):
        return False
    try:
        return ipaddress.ip_address(client[0]).is_loopback
    except ValueError:
        return False
