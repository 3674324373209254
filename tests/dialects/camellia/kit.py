"""A client in camellia's words, and what its messages look like."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlencode

from tests.kit.waiting import until

from ..kit import Answer, AnyValue, Client, RunningServer, after

BASE = "/camellia/delayQueue/"
FORM = {"Content-Type": "application/x-www-form-urlencoded;charset=utf-8"}
SUCCESS = {"code": 200, "msg": "success"}
ID = AnyValue(str, lambda text: len(text) == 32 and set(text) <= set("0123456789abcdef"))
MS = AnyValue(int, lambda ms: 1_600_000_000_000 < ms < 10_000_000_000_000)
TEXT = AnyValue(str, len)


class Camellia:
    """One connection; `post` gives (HTTP status, JSON)."""

    def __init__(self, served: RunningServer) -> None:
        self.served = served
        self.client: Client = served.client()

    def another(self) -> Camellia:
        """The same server on a second connection."""
        return Camellia(self.served)

    def topic(self) -> str:
        return self.served.topic()

    async def raw(self, operation: str, form: bytes, query: str = "") -> Answer:
        return await self.client.ask("POST", BASE + operation + (f"?{query}" if query else ""), form, FORM)

    async def post(self, operation: str, **form: Any) -> tuple[int, Any]:
        return shown(await self.raw(operation, urlencode(form).encode()))

    async def page(self, target: str, method: str = "GET") -> tuple[int, Any]:
        return shown(await self.client.ask(method, target))

    # -- the operations, for the parts of a case that are not its point

    async def send(self, topic: str, msg: str = "abc", delay: int = 0, **more: Any) -> dict[str, Any]:
        status, body = await self.post("sendMsg", topic=topic, msg=msg, delayMillis=delay, **more)
        assert (status, body["code"], body["msg"]) == (200, 200, "success"), body
        return body["delayMsg"]

    async def pull(self, topic: str, **more: Any) -> list[dict[str, Any]]:
        return messages(await self.post("pullMsg", topic=topic, **more))

    async def poll(self, topic: str, hold: int = 20_000, **more: Any) -> list[dict[str, Any]]:
        return messages(await self.post("longPollingMsg", topic=topic, longPollingTimeoutMillis=hold, **more))

    async def parked(self, topic: str, polls: int = 1) -> None:
        """Until this many long polls of the topic are held by the server, which tells it in its own words."""
        watcher = self.served.client()
        headers = {"Dueline-Namespace": "camellia"}
        await until(
            lambda: watcher.ask("GET", f"/v1/topics/{topic}", headers=headers),
            lambda answer: answer.status == 200 and answer.json()["waiters"] == polls,
        )
        watcher.close()

    async def ack(self, topic: str, id: str, ack: bool = True) -> None:
        assert await self.post("ackMsg", topic=topic, msgId=id, ack=str(ack).lower()) == (200, SUCCESS)

    async def delete(self, topic: str, id: str, **more: Any) -> tuple[int, Any]:
        return await self.post("deleteMsg", topic=topic, msgId=id, **more)

    async def get(self, topic: str, id: str) -> dict[str, Any] | None:
        """The message, None when the server does not know it."""
        status, body = await self.post("getMsg", topic=topic, msgId=id)
        if body["code"] == 404:
            assert (status, body) == failed("getMsg", 404)
            return None
        assert (status, body) == (200, {**SUCCESS, "delayMsg": body["delayMsg"]})
        return body["delayMsg"]

    async def status(self, topic: str, id: str) -> int | None:
        found = await self.get(topic, id)
        return None if found is None else found["status"]

    async def info(self, topic: str) -> dict[str, Any]:
        status, body = await self.page(f"{BASE}getTopicInfo?{urlencode({'topic': topic})}")
        assert (status, body["code"]) == (200, 200)
        return body["data"]

    async def empty(self, topic: str) -> bool:
        """Whether nothing of this topic waits, is ready or is being consumed."""
        info = await self.info(topic)
        return (info["waitingQueueSize"], info["readyQueueSize"], info["ackQueueSize"]) == (0, 0, 0)


def shown(answer: Answer) -> tuple[int, Any]:
    assert answer.body, "an empty body ends the SDK's pull thread"
    return answer.status, answer.json()


def messages(answer: tuple[int, Any]) -> list[dict[str, Any]]:
    status, body = answer
    assert (status, body) == (200, {**SUCCESS, "delayMsgList": body.get("delayMsgList")}), body
    return body["delayMsgList"]


def ids(found: Iterable[Mapping[str, Any]]) -> list[str]:
    return [msg["msgId"] for msg in found]


def framework_page(status: int, error: str, path: str) -> tuple[int, dict[str, Any]]:
    return status, {"timestamp": TEXT, "status": status, "error": error, "path": path}


def refused(operation: str) -> tuple[int, dict[str, Any]]:
    """What the framework answers when a parameter is missing or has another type."""
    return framework_page(400, "Bad Request", BASE + operation)


NULLS = {"sendMsg": "delayMsg", "getMsg": "delayMsg", "pullMsg": "delayMsgList"}


def failed(operation: str, code: int) -> tuple[int, dict[str, Any]]:
    """What the application answers when it cannot: a code, a text, and null for what it would have brought."""
    return 200, {"code": code, "msg": TEXT, **({NULLS[operation]: None} if operation in NULLS else {})}


async def overdue(q: Camellia, topic: str) -> None:
    """A message "one" of this topic that is being consumed for a long time, and whose ttl is over. A short ttl may be
    over before the pull on a busy machine: then a longer one is tried."""
    for ttl_ms in (300, 3_000, 30_000):
        msg = await q.send(topic, "old", msgId="one", ttlMillis=ttl_ms)
        leased = await q.pull(topic, ackTimeoutMillis=120_000)
        await after(msg["expireTime"])
        if leased:
            return
    raise AssertionError("nothing could be pulled within its ttl")
