"""A client in Youzan's words, and the state behind it as the native API tells it."""

from __future__ import annotations

import itertools
import json
from typing import Any

from ..kit import Answer, Client, NativeView, RunningServer, now_ms

NOTHING = {"success": True, "error": "", "id": None, "value": None}
_numbers = itertools.count(1)


class Youzan(NativeView):
    """One connection; `ask` gives the JSON of an answer, after a look at its form."""

    namespace = "youzan"

    def __init__(self, served: RunningServer, client: Client | None = None, path: str = "/") -> None:
        self.served = served
        self.client = served.client() if client is None else client
        self.path = path

    def another(self) -> Youzan:
        """The same server on a connection of its own."""
        return Youzan(self.served)

    def topic(self) -> str:
        return self.served.topic()

    def id(self) -> str:
        """An id that no other test has: they are unique over all topics."""
        return f"job-{next(_numbers)}"

    async def raw(self, body: bytes, method: str = "POST") -> Answer:
        return await self.client.ask(method, self.path, body)

    async def said(self, body: bytes, method: str = "POST") -> Any:
        """The JSON of the answer to these bytes. Every answer is HTTP 200 with four fields, success a boolean."""
        answer = await self.raw(body, method)
        found = answer.json()
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json; charset=utf-8")
        assert (list(found), type(found["success"])) == (["success", "error", "id", "value"], bool)
        return found

    async def ask(self, **fields: Any) -> Any:
        return await self.said(json.dumps(fields).encode())

    # -- for the parts of a case that are not its point

    async def add(self, topic: str, id: str, delay: float = 0, ttr: float = 60, body: Any = "x") -> int:
        """Returns a moment before the add: nothing may come sooner than `delay` after it."""
        before_ms = now_ms()
        assert await self.ask(command="add", topic=topic, id=id, delay=delay, TTR=ttr, body=body) == done(id)
        return before_ms

    async def pop(self, topic: str, timeout: float = 0) -> tuple[str, str] | None:
        """(id, value), None when nothing came. With a timeout it waits, which the document does not know."""
        found = await self.ask(command="pop", topic=topic, **({"timeout": timeout} if timeout else {}))
        if found == NOTHING:
            return None
        assert found == {"success": True, "error": "", "id": found["id"], "value": found["value"]}
        return found["id"], found["value"]

    async def finish(self, id: str) -> None:
        assert await self.ask(command="finish", id=id) == done(id)


def done(id: str) -> dict[str, Any]:
    return {"success": True, "error": "", "id": id, "value": ""}


def refused(error: str, id: str | None = None) -> dict[str, Any]:
    return {"success": False, "error": error, "id": id, "value": None}
