"""A push target on loopback: records what arrives, answers as configured, and can hold its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

WITHIN_S = 30.0


@dataclass(frozen=True)
class ReceivedCall:
    """One call as it came. Names of headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["dueline-job-id"]


Answerer = Callable[[ReceivedCall], Awaitable[web.Response]]


async def fine(_: ReceivedCall) -> web.Response:
    return web.Response(text="ok")


class Hook:
    """async with Hook() as hook: ... `answer` may be changed at any time. `now` calls are under way, `most` at once."""

    def __init__(self, answer: Answerer = fine) -> None:
        self.answer = answer
        self.came: list[ReceivedCall] = []
        self.now = 0
        self.most = 0
        self.port = 0
        self._news = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def __aenter__(self) -> Hook:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._take)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def arrived(self, number: int) -> None:
        """Return when so many calls have come in all."""
        async with asyncio.timeout(WITHIN_S), self._news:
            await self._news.wait_for(lambda: len(self.came) >= number)

    async def _take(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        came = ReceivedCall(request.method, request.path, headers, await request.read())
        self.now += 1
        self.most = max(self.most, self.now)
        async with self._news:
            self.came.append(came)
            self._news.notify_all()
        try:
            return await self.answer(came)
        finally:
            self.now -= 1
