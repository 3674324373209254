"""What the author's own PHP client sends, byte for byte as its HTTP library does, and what it makes of the answers.

It accepts an answer only with the keys `code` and `message` and an integer 0; an HTTP error throws; a worker asks again
at once after an exception or an empty answer. Its job bodies are JSON with a `className`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from ..kit import NOWHERE, Answer, Client, now_ms
from .conftest import HOLD_MS
from .kit import Ouqiang

AGENT = "Guzzle/5.3.1 curl/7.52.1 PHP/7.0.33"


class PhpError(Exception):
    """What the client throws."""


class PhpClient:
    """A new connection for each call, as it makes a new HTTP client for each."""

    def __init__(self, ouqiang: Ouqiang) -> None:
        self._ouqiang = ouqiang

    async def push(self, topic: str, id: str, delay: int, ttr: int, body: dict[str, Any]) -> None:
        body = {**body, "className": "App\\Handler\\OrderHandler"}
        job = {"topic": topic, "id": id, "delay": delay, "ttr": ttr, "body": json_encode(body)}
        checked(await self._post("/push", job))

    async def pop(self, topics: list[str]) -> dict[str, Any] | None:
        data = checked(await self._post("/pop", {"topic": ",".join(topics)}))
        if not data.get("data"):
            return None
        body = json.loads(data["data"]["body"])
        return {"className": body.pop("className"), "id": data["data"]["id"], "body": body}

    async def delete(self, id: str) -> None:
        checked(await self._post("/delete", {"id": id}))

    async def finish(self, id: str) -> None:
        checked(await self._post("/finish", {"id": id}))

    async def _post(self, path: str, fields: dict[str, Any]) -> Answer:
        body = json_encode(fields).encode()
        port = self._ouqiang.served.server.port
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: {AGENT}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        client: Client = self._ouqiang.served.client()
        try:
            if len(body) <= 1024:
                return await client.raw(f"{head}\r\n".encode() + body)
            # Of a longer body its library first asks whether it is welcome.
            assert (await client.raw(f"{head}Expect: 100-continue\r\n\r\n".encode())).status == 100
            return await client.raw(body)
        finally:
            client.close()


def json_encode(value: Any) -> str:
    """As PHP writes it: without spaces, only ASCII, slashes escaped."""
    return json.dumps(value, separators=(",", ":")).replace("/", "\\/")


def checked(answer: Answer) -> dict[str, Any]:
    if answer.status >= 400:
        raise PhpError(f"HTTP {answer.status}")
    found = answer.json()
    if "code" not in found or "message" not in found:
        raise PhpError("response body miss required parameter, code or message")
    if type(found["code"]) is not int or found["code"] != 0:
        raise PhpError(found["message"])
    return found


async def test_a_php_worker_consumes_what_a_php_page_pushed(ouqiang: Ouqiang) -> None:
    php, topic, other, id = PhpClient(ouqiang), ouqiang.topic(), ouqiang.topic(), ouqiang.id()
    await php.push(topic, id, 1, 60, {"订单": "a/b", "n": 1})
    assert await php.pop([other, topic]) == {
        "className": "App\\Handler\\OrderHandler",
        "id": id,
        "body": {"订单": "a/b", "n": 1},
    }
    await php.finish(id)
    assert await ouqiang.another().counts(topic) == NOWHERE


async def test_a_long_body_comes_after_the_server_said_go_on(ouqiang: Ouqiang) -> None:
    php, topic, id = PhpClient(ouqiang), ouqiang.topic(), ouqiang.id()
    await php.push(topic, id, 3600, 60, {"text": "很长" * 20_000})
    shown = await ouqiang.another().get(id)
    assert json.loads(shown["body"])["text"] == "很长" * 20_000
    await php.delete(id)
    assert await ouqiang.another().counts(topic) == NOWHERE


async def test_a_handler_that_throws_does_not_finish_and_gets_the_job_again(ouqiang: Ouqiang) -> None:
    php, topic, id = PhpClient(ouqiang), ouqiang.topic(), ouqiang.id()
    await php.push(topic, id, 1, 1, {})
    first = await php.pop([topic])
    assert first is not None
    assert await php.pop([topic]) == first
    await php.finish(id)


async def test_a_refusal_is_an_exception_with_the_documented_text(ouqiang: Ouqiang) -> None:
    php, topic = PhpClient(ouqiang), ouqiang.topic()
    for delay, ttr, text in ((0, 1, "delay 取值范围1 - (2^31 - 1)"), (1, 86401, "ttr 取值范围1 - 86400")):
        with pytest.raises(PhpError) as raised:
            await php.push(topic, "never", delay, ttr, {})
        assert str(raised.value) == text


async def test_an_idle_worker_does_not_spin(ouqiang: Ouqiang) -> None:
    php, topic, before_ms = PhpClient(ouqiang), ouqiang.topic(), now_ms()
    assert await php.pop([topic]) is None
    assert now_ms() >= before_ms + HOLD_MS
