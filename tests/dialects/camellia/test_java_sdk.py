"""What the unmodified Java SDK sends and how it reacts, replayed: OkHttp's bytes, the codes it knows, its pull loop.

The SDK throws on every HTTP status but 200, its pull thread ends on an empty body, and its long-poll loop never pauses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from ..kit import Client
from .kit import Camellia


class JavaSdk:
    """The SDK in url mode: one method per method of its API, with its defaults."""

    def __init__(self, camellia: Camellia) -> None:
        self._client: Client = camellia.served.client()
        self._port = camellia.served.server.port

    async def call(self, operation: str, form: dict[str, Any]) -> dict[str, Any]:
        body = urlencode(form).encode()
        head = (
            f"POST /camellia/delayQueue/{operation} HTTP/1.1\r\n"
            "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"Host: 127.0.0.1:{self._port}\r\n"
            "Connection: Keep-Alive\r\n"
            "Accept-Encoding: gzip\r\n"
            "User-Agent: okhttp/4.9.3\r\n\r\n"
        )
        answer = await self._client.raw(head.encode() + body)
        if answer.status != 200:
            raise RuntimeError(f"http.code={answer.status}")
        parsed = answer.json()
        assert type(parsed) is dict, "fastjson makes null of it, and the pull thread ends"
        return parsed

    async def send_msg(self, topic: str, msg: str, delay_ms: int, **more: Any) -> dict[str, Any]:
        form = {"topic": topic, "msg": msg, "delayMillis": delay_ms, "ttlMillis": -1, "maxRetry": -1, **more}
        response = await self.call("sendMsg", form)
        if response["code"] != 200:
            raise RuntimeError(response.get("msg"))
        return response["delayMsg"]

    async def delete_msg(self, topic: str, id: str) -> bool:
        code = (await self.call("deleteMsg", {"topic": topic, "msgId": id}))["code"]
        assert code in (200, 404)
        return code == 200

    async def get_msg(self, topic: str, id: str) -> dict[str, Any] | None:
        response = await self.call("getMsg", {"topic": topic, "msgId": id})
        assert response["code"] in (200, 404)
        return response.get("delayMsg") if response["code"] == 200 else None

    async def listen(self, topic: str, consume: Callable[[dict[str, Any]], bool], polls: list[int]) -> None:
        """The pull thread: long polls one after another without a pause; an exception of the listener is ack=false."""
        form = {"topic": topic, "ackTimeoutMillis": 30_000, "batch": 1, "longPollingTimeoutMillis": 10_000}
        while True:
            response = await self.call("longPollingMsg", form)
            polls.append(response["code"])
            for msg in (response.get("delayMsgList") or []) if response["code"] == 200 else []:
                ack = str(consume(msg)).lower()
                await self.call("ackMsg", {"topic": topic, "msgId": msg["msgId"], "ack": ack})


class Listener:
    """A listener whose deliveries can be waited for."""

    def __init__(self, verdict: bool) -> None:
        self._verdict = verdict
        self.seen: list[dict[str, Any]] = []
        self.polls: list[int] = []
        self._news = asyncio.Event()

    def __call__(self, msg: dict[str, Any]) -> bool:
        self.seen.append(msg)
        self._news.set()
        return self._verdict

    async def until(self, count: int) -> None:
        while len(self.seen) < count:
            self._news.clear()
            await self._news.wait()


async def test_case_039_a_listener_that_says_true_consumes_once(camellia: Camellia) -> None:
    sdk, consumer, topic = JavaSdk(camellia), JavaSdk(camellia), camellia.topic()
    listening = Listener(True)
    thread = asyncio.create_task(consumer.listen(topic, listening, listening.polls))
    sent = await sdk.send_msg(topic, "hello", 1000)
    await asyncio.wait_for(listening.until(1), 60)
    await asyncio.wait_for(camellia.parked(topic), 60)
    thread.cancel()
    assert listening.seen == [{**sent, "retry": 1, "status": 3}]
    assert await sdk.get_msg(topic, sent["msgId"]) == {**sent, "retry": 1, "status": 4}
    assert len(listening.polls) == 1, "an idle long poll is held: the loop does not run hot"


async def test_case_039_a_listener_that_says_false_is_called_once_more_than_max_retry(camellia: Camellia) -> None:
    sdk, consumer, topic = JavaSdk(camellia), JavaSdk(camellia), camellia.topic()
    listening = Listener(False)
    thread = asyncio.create_task(consumer.listen(topic, listening, listening.polls))
    sent = await sdk.send_msg(topic, "no", 0, maxRetry=2)
    await asyncio.wait_for(listening.until(3), 60)
    await asyncio.wait_for(camellia.parked(topic), 60)  # there is no fourth: it would come at once
    thread.cancel()
    assert [msg["retry"] for msg in listening.seen] == [1, 2, 3]
    assert await sdk.get_msg(topic, sent["msgId"]) == {**sent, "retry": 3, "status": 6}


async def test_the_sdk_reads_200_as_true_and_404_as_false_or_null(camellia: Camellia) -> None:
    sdk, topic = JavaSdk(camellia), camellia.topic()
    sent = await sdk.send_msg(topic, "x", 60_000, msgId="mine")
    assert (sent["msgId"], await sdk.get_msg(topic, "mine")) == ("mine", sent)
    assert [await sdk.delete_msg(topic, "mine"), await sdk.delete_msg(topic, "mine")] == [True, False]
    assert await sdk.get_msg(topic, "other") is None


async def test_a_trigger_time_in_the_past_is_a_negative_delay_and_means_now(camellia: Camellia) -> None:
    sdk, topic = JavaSdk(camellia), camellia.topic()
    sent = await sdk.send_msg(topic, "late", -86_400_000)
    assert (sent["status"], sent["triggerTime"]) == (2, sent["produceTime"])


async def test_a_java_null_is_the_text_null(camellia: Camellia) -> None:
    sdk = JavaSdk(camellia)
    sent = await sdk.send_msg("null", "null", 0, msgId="of-nobody")
    assert (sent["topic"], sent["msg"]) == ("null", "null")


async def test_the_short_poll_answers_at_once_with_an_empty_list(camellia: Camellia) -> None:
    sdk, topic = JavaSdk(camellia), camellia.topic()
    response = await sdk.call("pullMsg", {"topic": topic, "ackTimeoutMillis": 30_000, "batch": 1})
    assert response == {"code": 200, "msg": "success", "delayMsgList": []}


async def test_send_pull_and_ack_of_one_message_may_go_over_different_connections(camellia: Camellia) -> None:
    one, two, three, topic = JavaSdk(camellia), JavaSdk(camellia), JavaSdk(camellia), camellia.topic()
    sent = await one.send_msg(topic, "x", 0)
    pulled = await two.call("pullMsg", {"topic": topic, "ackTimeoutMillis": 30_000, "batch": 1})
    assert [msg["msgId"] for msg in pulled["delayMsgList"]] == [sent["msgId"]]
    await three.call("ackMsg", {"topic": topic, "msgId": sent["msgId"], "ack": "true"})
    assert (await one.get_msg(topic, sent["msgId"]) or {})["status"] == 4
