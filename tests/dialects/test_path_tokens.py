"""Clients that can set an address but no header: the token is the first part of every path.

The core of each protocol runs on a server with tokens, with the clients of its own tests. DUELINE_TEST_AUTH=path runs
all of their cases like this.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from .camellia.kit import BASE, Camellia, framework_page
from .exfe.kit import Exfe, Services, encoded, in_s
from .kit import PATH_TOKENS, Client, Runner, RunningServer, serve_with_tokens
from .ouqiang.kit import Ouqiang
from .youzan.kit import Youzan

OPTIONS = {**PATH_TOKENS, "DUELINE_PUSH__ALLOW": "127.0.0.0/8"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def tokens(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that takes tokens in front of paths. At the end, nothing that it said has shown the token."""
    served = runner.run(serve_with_tokens(tmp_path_factory.mktemp("path_tokens"), OPTIONS))
    yield served
    runner.run(served.stop())
    assert served.token is not None
    said = "\n".join(served.server.output)
    assert "ready on" in said  # else nothing was looked at
    assert served.token.split("_", 2)[2] not in said


async def test_ouqiang_pushes_pops_finishes_and_deletes(tokens: RunningServer) -> None:
    q, topic = Ouqiang(tokens), tokens.topic()
    waiting = asyncio.ensure_future(q.another().pop(topic))
    await q.push(topic, "ouqiang-1", delay=1, body="a")
    assert await waiting == ("ouqiang-1", "a")
    await q.finish("ouqiang-1")
    await q.push(topic, "ouqiang-2", delay=60)
    assert (await q.get("ouqiang-2"))["topic"] == topic
    assert (await q.ask("delete", id="ouqiang-2"))["code"] == 0
    assert await q.get("ouqiang-2") is None


async def test_youzan_adds_pops_finishes_and_deletes_at_the_root(tokens: RunningServer) -> None:
    q, topic = Youzan(tokens), tokens.topic()
    waiting = asyncio.ensure_future(q.another().pop(topic, timeout=30))
    await q.add(topic, "youzan-1", body="a")
    assert await waiting == ("youzan-1", "a")
    await q.finish("youzan-1")
    await q.add(topic, "youzan-2", delay=60)
    assert (await q.ask(command="delete", id="youzan-2"))["success"]
    bare = Client(tokens.server.port)
    body = json.dumps({"command": "add", "topic": topic, "id": "youzan-3", "delay": 0, "TTR": 9, "body": "x"}).encode()
    for target in ("", "/", "//", "?a=b", "/delay-queue/"):  # behind the token
        answer = await bare.ask("POST", f"/{tokens.token}{target}", body)
        assert (answer.status, answer.json()["success"]) == (200, True), target


async def test_camellia_sends_polls_acks_and_deletes(tokens: RunningServer) -> None:
    q, topic = Camellia(tokens), tokens.topic()
    waiting = asyncio.ensure_future(q.another().poll(topic))
    sent = await q.send(topic, "a")
    assert [msg["msgId"] for msg in await waiting] == [sent["msgId"]]
    await q.ack(topic, sent["msgId"])
    later = await q.send(topic, "b", delay=60_000)
    assert (await q.delete(topic, later["msgId"]))[0] == 200
    assert await q.status(topic, later["msgId"]) == 7
    assert await q.page("/camellia/health/check") == (200, {"code": 200})


async def test_spring_adds_a_job_and_answers_its_look_ups(tokens: RunningServer) -> None:
    client = tokens.client()
    job = {"taskId": "spring-1", "taskType": "task1", "appName": "app", "delayTime": 9_999_999_999_999}
    for path in ("/job/add", "//job//add/"):
        added = await client.ask("POST", path, json.dumps(job).encode(), JSON)
        assert (added.status, added.body) == (200, b"")
    assert (await client.ask("GET", "/task/type/list")).status == 200
    wrong = await client.ask("POST", "/job/add", b"{", JSON)
    assert (wrong.status, wrong.json()["path"]) == (400, "/job/add")


async def test_exfe_pushes_and_drops_and_calls_back(tokens: RunningServer) -> None:
    services = Services()
    await services.start()
    try:
        q = Exfe(tokens, services)
        service = q.service()
        await q.push(q.key(), service, b"a", ontime=in_s(0))
        assert [call.body for call in await service.arrived()] == [b"[a]"]
        key = q.key()
        escaped = f"/v3/queue/{key}%2FPOST/{encoded(service.url)}"  # the original decodes the path before it splits it
        assert (await q.raw(f"{escaped}?ontime={in_s(60)}", b"b")).status == 200
        assert len(await q.left(service)) == 1
        await q.drop(key, service)
        assert await q.left(service) == []
    finally:
        await services.stop()


async def test_a_wrong_token_or_none_is_refused_in_the_words_of_the_dialect(tokens: RunningServer) -> None:
    assert tokens.token is not None
    wrong = tokens.token[:-1] + ("A" if tokens.token[-1] != "A" else "B")
    for target in ("/push", "/", BASE + "pullMsg?topic=t", "/job/add", "/v3/queue/a/POST/aHR0cDovL3g"):
        for prefix in ("", f"/{wrong}", "/dl_0_x"):
            answer = await Client(tokens.server.port).ask("POST", prefix + target, b"{}", JSON)
            assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer"), (prefix, target)
            assert b"dl_" not in answer.body


async def test_no_answer_shows_the_token(tokens: RunningServer) -> None:
    assert tokens.token is not None
    client, secret = tokens.client(), tokens.token.split("_", 2)[2]
    redirected = await client.ask("GET", "//get")  # ouqiang redirects elsewhere; here it answers directly
    assert (redirected.status, redirected.json()["code"]) == (200, 1)
    for target in ("//push", "/x/../push", "/push/", "/camellia/nothing", BASE + "nothing", "/job/add", "//nothing"):
        for start in ("", "/"):
            answer = await Client(tokens.server.port).ask("GET", f"{start}/{tokens.token}{target}")
            assert "location" not in answer.headers, target
            assert secret not in repr(answer), target
    page = await client.ask("GET", "/camellia/nothing")
    assert (page.status, page.json()) == framework_page(404, "Not Found", "/camellia/nothing")


async def test_the_native_api_takes_no_token_in_the_path(tokens: RunningServer) -> None:
    answer = await Client(tokens.server.port).ask("GET", f"/{tokens.token}/v1/info")
    assert answer.status == 401
