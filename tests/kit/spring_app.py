"""An application of the Spring queue: it registers itself through py-eureka-client and takes work as the original's
client does (`POST /hf/delay_queue/work`, answered "accepted" when the work is done)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from py_eureka_client.eureka_client import EurekaClient

TASK_KEY = "delay-queue:task"
WORK = "/hf/delay_queue/work"
TRIES = 10
RARELY_S = 86_400  # the client's own heartbeat thread cannot be ended: it never begins


@dataclass(frozen=True)
class Work:
    """One call as it came, and when it was answered."""

    at_ms: int
    path: str
    headers: dict[str, str]
    body: bytes
    app: str
    answered_ms: list[int] = field(default_factory=list)

    @property
    def job(self) -> dict[str, Any]:
        return json.loads(self.body)


Answerer = Callable[[Work], Awaitable[web.Response]]


async def accepted(_: Work) -> web.Response:
    return web.Response(text="accepted")


class SpringApp:
    """`answer` may be changed at any time. `work` is what came, `arrived(n)` waits for the n-th. `strays`: calls of
    others, whose server had this port before."""

    def __init__(self, name: str, answer: Answerer = accepted) -> None:
        self.name = name
        self.answer = answer
        self.work: list[Work] = []
        self.strays: list[str] = []
        self.port = 0
        self._news = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._client: EurekaClient | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, at the port it had before if it had one."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections. What the registry knows of it stays."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def register(self, registry_url: str, tasks: str | None, duration_s: int = 90, vip: str = "") -> None:
        """Stand in the registry. `tasks`: the metadata entry; None: there is none. `vip`: another name of it. The
        client tells of a failure only by its callback, and would try again a day later."""
        failures: list[Exception] = []
        self._client = EurekaClient(
            on_error=lambda _, error: failures.append(error),
            eureka_server=registry_url,
            app_name=self.name,
            instance_id=f"127.0.0.1:{self.name}:{self.port}",
            instance_host="127.0.0.1",
            instance_ip="127.0.0.1",
            instance_port=self.port,
            metadata={} if tasks is None else {TASK_KEY: tasks},
            vip_adr=vip,
            should_discover=False,
            renewal_interval_in_secs=RARELY_S,
            duration_in_secs=duration_s,
        )
        await self._client.start()
        for _ in range(TRIES):
            if not failures:
                return
            failures.clear()
            await self._client.register()
        assert not failures, failures

    async def renew(self) -> None:
        assert self._client is not None
        await self._client.send_heartbeat()

    async def set_status(self, status: str) -> None:
        assert self._client is not None
        await self._client.status_update(status)

    async def leave(self) -> None:
        """Take itself out of the registry."""
        client, self._client = self._client, None
        if client is not None:
            await client.stop()

    async def arrived(self, number: int = 1, timeout_s: float = 60.0) -> list[Work]:
        """The first `number` calls, when they are there."""
        async with asyncio.timeout(timeout_s), self._news:
            await self._news.wait_for(lambda: len(self.work) >= number)
            return self.work[:number]

    async def _take(self, request: web.Request) -> web.Response:
        work = Work(_now_ms(), request.path, dict(request.headers), await request.read(), self.name)
        if (request.method, request.path) != ("POST", WORK):
            self.strays.append(f"{request.method} {request.path}")
            return web.Response(status=404)
        async with self._news:
            self.work.append(work)
            self._news.notify_all()
        answer = await self.answer(work)
        work.answered_ms.append(_now_ms())
        return answer


def _now_ms() -> int:
    """The store runs on this machine, so this is its clock."""
    return time.time_ns() // 1_000_000
