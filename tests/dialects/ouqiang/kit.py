"""A client in ouqiang's words, and the state behind it as the native API tells it."""

from __future__ import annotations

import itertools
import json
from typing import Any

from ..kit import Answer, Client, NativeView, RunningServer, now_ms

ADDED = {"code": 0, "message": "添加成功", "data": None}
DONE = {"code": 0, "message": "操作成功", "data": None}
_numbers = itertools.count(1)


class Ouqiang(NativeView):
    """One connection; `ask` gives the JSON of an answer, after a look at its form."""

    def __init__(self, served: RunningServer, client: Client | None = None, namespace: str = "ouqiang") -> None:
        self.served = served
        self.client = served.client() if client is None else client
        self.namespace = namespace

    def another(self) -> Ouqiang:
        """The same server on a connection of its own."""
        return Ouqiang(self.served)

    def topic(self) -> str:
        return self.served.topic()

    def id(self) -> str:
        """An id that no other test has: they are unique over all topics."""
        return f"job-{next(_numbers)}"

    async def raw(self, path: str, body: bytes, method: str = "POST") -> Answer:
        return await self.client.ask(method, f"/{path}", body)

    async def said(self, path: str, body: bytes, method: str = "POST") -> Any:
        """The JSON of the answer to these bytes. Every answer is HTTP 200 with three fields, code an integer."""
        answer = await self.raw(path, body, method)
        found = answer.json()
        assert (answer.status, list(found), type(found["code"])) == (200, ["code", "message", "data"], int)
        return found

    async def ask(self, path: str, **fields: Any) -> Any:
        return await self.said(path, json.dumps(fields).encode())

    # -- for the parts of a case that are not its point

    async def push(self, topic: str, id: str, delay: int = 1, ttr: int = 60, body: str = "x") -> int:
        """Returns a moment before the push: nothing may come sooner than `delay` after it."""
        before_ms = now_ms()
        assert await self.ask("push", topic=topic, id=id, delay=delay, ttr=ttr, body=body) == ADDED
        return before_ms

    async def pop(self, topic: str) -> tuple[str, str] | None:
        """(id, body), None when nothing came."""
        found = await self.ask("pop", topic=topic)
        if found == DONE:
            return None
        assert found == {**DONE, "data": {"id": found["data"]["id"], "body": found["data"]["body"]}}
        return found["data"]["id"], found["data"]["body"]

    async def get(self, id: str) -> Any:
        found = await self.ask("get", id=id)
        assert found == {**DONE, "data": found["data"]}
        return found["data"]

    async def finish(self, id: str) -> None:
        assert await self.ask("finish", id=id) == DONE


def refused(message: str) -> dict[str, Any]:
    return {"code": 1, "message": message, "data": None}
