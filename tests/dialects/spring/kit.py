"""The Spring queue's clients, applications that get jobs, and the state of the jobs, read by the native API."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from tests.kit.eureka import Registry
from tests.kit.spring_app import Answerer, SpringApp, accepted

from ..kit import Answer, AnyValue, Client, NativeView, RunningServer

JSON = "application/json;charset=UTF-8"  # as the original's client writes it
WORK = "/hf/delay_queue/work"
_numbers = itertools.count(1)


class Spring(NativeView):
    """One connection to a server, and the registry that it asks."""

    namespace = "spring"

    def __init__(self, served: RunningServer, registry: Registry) -> None:
        self.served = served
        self.registry = registry
        self.client: Client = served.client()
        self._apps: list[SpringApp] = []

    def another(self) -> Spring:
        """The same server on a connection of its own."""
        return Spring(self.served, self.registry)

    def name(self) -> str:
        """An application that no other test has."""
        return f"app{next(_numbers)}"

    def id(self) -> str:
        """An id that no other test has: they are unique over all groups."""
        return f"job-{next(_numbers)}"

    async def app(self, name: str, tasks: str | None = "task1, task2", answer: Answerer = accepted) -> SpringApp:
        """An instance that runs and stands in the registry."""
        app = SpringApp(name, answer)
        await app.start()
        await app.register(self.registry.url, tasks)
        self._apps.append(app)
        return app

    async def raw(self, body: bytes, headers: Mapping[str, str] | None = None, method: str = "POST") -> Answer:
        return await self.client.ask(method, "/job/add", body, {"Content-Type": JSON} if headers is None else headers)

    async def add(self, **job: Any) -> None:
        """Leaves out what is None, as the original's client does. A success is an empty 200."""
        answer = await self.raw(json.dumps({name: one for name, one in job.items() if one is not None}).encode())
        assert (answer.status, answer.body, answer.headers.get("content-type")) == (200, b"", None), answer

    async def ask(self, path: str) -> Any:
        answer = await self.client.ask("GET", path)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json"), answer
        return answer.json()


def refused(status: int, error: str, message: str, path: str = "/job/add") -> dict[str, Any]:
    """The error object of Spring Boot."""
    stamp = AnyValue(str, lambda text: len(text) == 29 and text[10] == "T" and text.endswith("+00:00"))
    return {"timestamp": stamp, "status": status, "error": error, "message": message, "path": path}
