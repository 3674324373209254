"""What the original's own clients found to be different here, and is no longer."""

from __future__ import annotations

import time
from typing import Any, cast
from urllib.parse import urlencode

from dueline.dialects.camellia.handlers import CamelliaHandlers
from dueline.dialects.camellia.metrics import CPU
from dueline.dialects.camellia.metrics_page import CamelliaMetrics
from dueline.dialects.camellia.monitor import Monitor
from dueline.dialects.camellia.settings import CamelliaSettings
from dueline.dialects.http import Request
from dueline.engine.commands import Pull
from dueline.engine.completion import awaited
from dueline.engine.engine import Engine
from dueline.engine.job import Job
from dueline.engine.limits import Limits
from dueline.engine.store import Ref
from dueline.metrics.table import PROCESS_CPU
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock

from .kit import BASE, FORM, SUCCESS, Camellia, failed, overdue, shown

TEXT_TYPE, JSON_TYPE = "text/plain;charset=UTF-8", "application/json"
LONGEST_MS = (1 << 63) - 1


# -- a message whose ttl ends while it is being consumed


async def test_an_id_is_free_again_when_its_ttl_passed_while_it_was_being_consumed(camellia: Camellia) -> None:
    q = camellia.another()
    for looked_at in (True, False):
        topic = camellia.topic()
        await overdue(q, topic)
        if looked_at:
            assert await q.status(topic, "one") == 6
        sent = await q.send(topic, "new", msgId="one")
        assert (sent["msg"], sent["status"], sent["retry"]) == ("new", 2, 0)
        assert await q.get(topic, "one") == sent
        assert await q.pull(topic) == [{**sent, "status": 3, "retry": 1}]


async def test_delete_answers_false_and_changes_nothing_when_the_ttl_passed_during_consumption(
    camellia: Camellia,
) -> None:
    q, topic = camellia.another(), camellia.topic()
    await overdue(q, topic)
    before = await q.get(topic, "one")
    assert await q.delete(topic, "one") == failed("deleteMsg", 404)
    assert await q.get(topic, "one") == before
    await q.ack(topic, "one")  # its consumer ends in time: it did the work
    assert await q.status(topic, "one") == 4


async def test_delete_with_release_removes_it_as_it_removes_any_ended_one(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    await overdue(q, topic)
    assert await q.delete(topic, "one", release="true") == failed("deleteMsg", 404)
    assert await q.get(topic, "one") is None
    assert await q.empty(topic)


async def test_a_success_shows_what_is_stored_also_when_the_old_message_ends_in_between() -> None:
    """Between the send that found the id taken and the look at its message the consumer acks it."""

    class Acked(Engine):
        async def get(self, namespace: str, topic: str, id: str) -> Job:
            await self.ack(namespace, topic, [Ref(id, None)])
            return await super().get(namespace, topic, id)

    engine = Acked(MemoryStore(VirtualClock()), Limits())
    settings = CamelliaSettings()
    monitor = Monitor(settings.namespace, 60_000, engine.store.now_ms, engine.metrics)
    handlers = CamelliaHandlers(engine, Limits(), settings, monitor)
    await engine.start()

    async def send(msg: str) -> bytes:
        form = urlencode({"topic": "t", "msgId": "one", "msg": msg, "delayMillis": 0}).encode()
        headers = {name.lower(): value for name, value in FORM.items()}
        return (await awaited(handlers.send_msg, Request("POST", BASE + "sendMsg", "", headers, form))).body

    assert b'"msg":"old"' in await send("old")
    assert b'"msg":"new"' in await send("new")
    [leased] = await engine.pull(Pull(settings.namespace, ("t",)))
    assert leased.body == b"new"
    await engine.stop()


# -- what the framework of the original does


def multipart(fields: list[tuple[str, str]], boundary: str = "----x") -> tuple[dict[str, str], bytes]:
    parts = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n' for name, value in fields
    )
    return {"Content-Type": f"multipart/form-data; boundary={boundary}"}, f"{parts}--{boundary}--\r\n".encode()


async def test_a_multipart_form_is_read_as_any_form(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    text = 'a&b=c+d% 延迟\r\n--no\r\n"end"'
    headers, body = multipart([("topic", topic), ("msg", text), ("delayMillis", "0"), ("msgId", "one")])
    status, sent = shown(await q.client.ask("POST", BASE + "sendMsg", body, headers))
    assert (status, sent["code"], sent["delayMsg"]["msg"]) == (200, 200, text)
    headers, body = multipart([("topic", topic), ("batch", "5")], boundary="quo ted")
    headers["Content-Type"] = 'Multipart/Form-Data; charset=utf-8; boundary="quo ted"'
    status, pulled = shown(await q.client.ask("POST", BASE + "pullMsg", body, headers))
    assert [msg["msg"] for msg in pulled["delayMsgList"]] == [text]
    headers, body = multipart([("msgId", "one"), ("ack", "true")])
    answer = await q.client.ask("POST", f"{BASE}ackMsg?topic={topic}", body, headers)
    assert shown(answer) == (200, SUCCESS)
    assert await q.status(topic, "one") == 4


async def test_a_broken_multipart_form_is_the_frameworks_400_and_a_file_is_no_parameter(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    fields = [("topic", topic), ("msg", "x"), ("delayMillis", "0")]
    headers, body = multipart(fields)
    broken = {
        "no boundary": ({"Content-Type": "multipart/form-data"}, body),
        "another boundary": ({"Content-Type": "multipart/form-data; boundary=other"}, body),
        "no end": (headers, body.removesuffix(b"------x--\r\n")),
        "no end of a head": (headers, body.replace(b"\r\n\r\nx", b"x")),
        "a huge head": (headers, body.replace(b"form-data;", b"form-data;" + b" " * 20_000, 1)),
        "no name": (headers, body.replace(b'name="msg"', b"")),
        "a file": (headers, body.replace(b'name="msg"', b'name="msg"; filename="f"')),
        "empty": (headers, b""),
    }
    for what, (head, data) in broken.items():
        answer = await q.client.ask("POST", BASE + "sendMsg", data, head)
        assert (answer.status, answer.json()["error"]) == (400, "Bad Request"), what
    assert await q.empty(topic)


async def test_a_delay_that_no_long_can_hold_is_code_500_and_stores_nothing(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    whole = {"topic": topic, "msg": "x"}
    for delay in (LONGEST_MS, LONGEST_MS - int(time.time() * 1000)):
        answer = await q.post("sendMsg", **whole, delayMillis=delay)
        assert answer == failed("sendMsg", 500)
    assert await q.empty(topic)


async def test_strings_of_the_original_are_plain_text_unless_json_is_asked_for(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()

    async def kind(method: str, target: str, accept: str | None) -> str:
        headers = {} if accept is None else {"Accept": accept}
        return (await q.client.ask(method, target, b"", headers)).headers["content-type"]

    poll = f"{BASE}longPollingMsg?topic={topic}&longPollingTimeoutMillis=1"
    for method, target in (
        ("POST", poll),
        ("POST", f"{BASE}longPollingMsg?topic="),
        ("GET", "/camellia/health/status"),
        ("GET", "/camellia/health/check"),
    ):
        for accept in (None, "*/*", "text/plain", "text/html, image/gif, */*; q=.2", "application/json;q=0.1, text/*"):
            assert await kind(method, target, accept) == TEXT_TYPE, (target, accept)
        for accept in ("application/json", "application/json, text/plain;q=0.5, */*;q=0.1", "application/*"):
            assert await kind(method, target, accept) == JSON_TYPE, (target, accept)
    for target in ("pullMsg?topic=" + topic, "getMsg?topic=t&msgId=x", "longPollingMsg"):
        assert await kind("POST", BASE + target, None) == JSON_TYPE, target


async def test_metrics_have_the_content_type_of_the_original_unless_a_scraper_asks_for_a_format(
    camellia: Camellia,
) -> None:
    q = camellia.another()

    async def kind(accept: str | None) -> str:
        headers = {} if accept is None else {"Accept": accept}
        return (await q.client.ask("GET", "/metrics", b"", headers)).headers["content-type"]

    assert {await kind(accept) for accept in (None, "*/*", "text/plain")} == {TEXT_TYPE}
    assert "version=0.0.4" in await kind("text/plain;version=0.0.4")
    assert "application/openmetrics-text" in await kind("application/openmetrics-text;version=1.0.0,*/*;q=0.1")


async def test_cpu_usage_is_percent_of_one_core() -> None:
    """As the dashboard shows it."""

    now_s = 100.0
    unused = cast(Any, None)
    metrics = CamelliaMetrics(unused, unused, store_answers=lambda: False, now_s=lambda: now_s)

    async def usage(used_s: float) -> float:
        page = await metrics.page([PROCESS_CPU.value(used_s)])
        return next(samples.numbers[("usage",)] for samples in page if samples.metric == CPU)

    assert await usage(7.0) == 0  # nothing to compare with
    now_s += 10
    assert await usage(12.0) == 50
    now_s += 10
    assert await usage(27.0) == 150
