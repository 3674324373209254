"""EXFE's clients: one that pushes, services that are called back; and the state behind them, read by the native API."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.kit.waiting import until

from ..kit import Answer, Client, RunningServer, now_ms

TOPIC = "/v1/topics/exfe.queue"
WITHIN_S = 60.0
LOOK_S = 0.05
_numbers = itertools.count(1)


@dataclass(frozen=True)
class ReceivedCall:
    """One callback as it came."""

    at_ms: int
    method: str
    query: str
    headers: Mapping[str, str]
    body: bytes


Answerer = Callable[[ReceivedCall], Awaitable[web.Response]]


async def fine(_: ReceivedCall) -> web.Response:
    return web.Response(text="ok")


class Service:
    """One callback URL. `answer` may be changed at any time."""

    def __init__(self, url: str, answer: Answerer) -> None:
        self.url = url
        self.answer = answer
        self.came: list[ReceivedCall] = []
        self._news = asyncio.Condition()

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.came]

    async def arrived(self, number: int = 1) -> list[ReceivedCall]:
        """Wait until so many callbacks have come in all."""
        async with asyncio.timeout(WITHIN_S), self._news:
            await self._news.wait_for(lambda: len(self.came) >= number)
        return self.came

    async def take(self, request: web.Request) -> web.Response:
        at_ms = now_ms()
        headers = {name.lower(): value for name, value in request.headers.items()}
        came = ReceivedCall(at_ms, request.method, request.query_string, headers, await request.read())
        async with self._news:
            self.came.append(came)
            self._news.notify_all()
        return await self.answer(came)


class Services:
    """A web server on loopback with a path for each service."""

    def __init__(self) -> None:
        self._by_path: dict[str, Service] = {}
        self._runner: web.AppRunner | None = None
        self._port = 0

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def add(self, answer: Answerer) -> Service:
        path = f"/cb{next(_numbers):06}"  # none begins like another
        service = self._by_path[path] = Service(f"http://127.0.0.1:{self._port}{path}", answer)
        return service

    async def _take(self, request: web.Request) -> web.Response:
        return await self._by_path[request.path].take(request)


class Exfe:
    """One connection to a server, and services of its own."""

    def __init__(self, served: RunningServer, services: Services) -> None:
        self.served = served
        self.services = services
        self.client: Client = served.client()

    def another(self) -> Exfe:
        """The same server on a connection of its own."""
        return Exfe(self.served, self.services)

    def key(self) -> str:
        """A merge key that no other test has, and that is no base64."""
        return f"key.{next(_numbers)}"

    def service(self, answer: Answerer = fine) -> Service:
        return self.services.add(answer)

    async def raw(
        self, target: str, body: bytes = b"", method: str = "POST", headers: Mapping[str, str] | None = None
    ) -> Answer:
        return await self.client.ask(method, target, body, headers or {"Content-Type": "plain/text"})

    async def push(self, key: str, service: Service, body: bytes, ontime: int, update: str | None = None) -> None:
        """A success is a 200 without a body."""
        query = f"?ontime={ontime}" + ("" if update is None else f"&update={update}")
        answer = await self.raw(path(key, service.url) + query, body)
        assert (answer.status, answer.body) == (200, b""), answer

    async def drop(self, key: str, service: Service, method: str = "POST") -> None:
        answer = await self.raw(path(key, service.url, method), method="DELETE")
        assert (answer.status, answer.body) == (200, b""), answer

    # -- the state, in native words

    async def left(self, service: Service) -> list[dict[str, Any]]:
        """The live jobs and groups for a service."""
        answer = await self.client.ask("GET", f"{TOPIC}/jobs?limit=500", headers={"Dueline-Namespace": "exfe"})
        if answer.status == 404:
            return []
        assert answer.status == 200, answer
        jobs = answer.json()["jobs"]
        mine = [job for job in jobs if job["headers"].get("Dueline-Url", "").startswith(service.url)]
        return [job for job in mine if job["state"] in ("scheduled", "ready", "leased")]

    async def until_nothing_is_left(self, service: Service) -> None:
        """No more can come than what has come by then."""
        await until(lambda: self.left(service), lambda left: not left, within_s=WITHIN_S)


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def path(key: str, url: str, method: str = "POST") -> str:
    return f"/v3/queue/{key}/{method}/{encoded(url)}"


def in_s(seconds: int) -> int:
    """A whole second that is at least so far away."""
    return now_ms() // 1000 + 1 + seconds
