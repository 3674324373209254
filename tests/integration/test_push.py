"""Push through a real server to a real target on loopback: delivered, retried, given up, signed, shared, killed."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import signal
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from tests.kit.async_tests import async_fixture, one_loop
from tests.kit.hook import Hook, ReceivedCall
from tests.kit.waiting import until
from tools.faults.connection import Connection
from tools.faults.server_process import ServerProcess

from .serve_kit import refused_settings

NUMBERS = itertools.count()  # of topics
ALLOW = {"DUELINE_PUSH__ALLOW": "127.0.0.0/8"}
SECRETS = tuple("whsec_" + b64encode(word * 8).decode() for word in (b"old", b"new"))


class PushKit:
    """A server, its target, and calls by the native API, on a topic of its own unless they name another."""

    def __init__(self, server: ServerProcess, hook: Hook) -> None:
        self.server = server
        self.hook = hook
        self.topic = f"t{next(NUMBERS)}"

    async def ask(self, method: str, path: str, content: Any = None) -> tuple[int, Any]:
        connection = Connection(*self.server.address)
        try:
            data = b"" if content is None else json.dumps(content).encode()
            answer = await connection.request(method, path, data, timeout_s=20)
            return answer.status, json.loads(answer.body)
        finally:
            connection.close()

    async def push_to(self, topic: str = "", **words: Any) -> None:
        status, answer = await self.ask(
            "PUT", f"/v1/topics/{topic or self.topic}/push", {"url": self.hook.url, **words}
        )
        assert status in (200, 201), answer

    async def send(self, id: str, topic: str = "", **words: Any) -> None:
        content = {"id": id, "body": {"n": id}, **words}
        status, answer = await self.ask("POST", f"/v1/topics/{topic or self.topic}/jobs", content)
        assert status == 201, answer

    async def job(self, id: str, topic: str = "") -> dict[str, Any]:
        _, answer = await self.ask("GET", f"/v1/topics/{topic or self.topic}/jobs/{id}")
        return answer

    async def until(self, id: str, state: str, topic: str = "") -> dict[str, Any]:
        """The job, once it has this state. The server offers no signal for that but its own answers."""
        return await until(lambda: self.job(id, topic), lambda job: job.get("state") == state)

    async def attempts(self, query: str = "") -> list[dict[str, Any]]:
        _, answer = await self.ask("GET", f"/v1/topics/{self.topic}/push/attempts{query}")
        return answer["attempts"]


@asynccontextmanager
async def serving(folder: Path, *args: str, env: dict[str, str] | None = None) -> AsyncIterator[PushKit]:
    async with Hook() as hook:
        server = ServerProcess(folder / "data", args=args, env={**ALLOW, **(env or {})})
        await server.start()
        try:
            yield PushKit(server, hook)
        finally:
            await server.stop()


loop_runner = one_loop  # the tests share servers


@async_fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    async with serving(tmp_path_factory.mktemp("shared")) as kit:
        yield kit.server


@async_fixture(scope="module")
async def shared_by_workers(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServerProcess]:
    async with serving(tmp_path_factory.mktemp("workers"), "--workers", "2") as kit:
        yield kit.server


@async_fixture
async def kit(shared: ServerProcess) -> AsyncIterator[PushKit]:
    """A server with default options, and a target of its own."""
    async with Hook() as hook:
        yield PushKit(shared, hook)


@async_fixture
async def workers_kit(shared_by_workers: ServerProcess) -> AsyncIterator[PushKit]:
    """A server of two processes, and a target of its own."""
    async with Hook() as hook:
        yield PushKit(shared_by_workers, hook)


@async_fixture
async def own_kit(tmp_path: Path) -> AsyncIterator[PushKit]:
    """A server that the test may end."""
    async with serving(tmp_path) as kit:
        yield kit


async def test_delivered_retried_given_up_and_logged(kit: PushKit) -> None:
    replies = {
        "fine": [web.Response(status=204)],
        "again": [web.Response(status=500, text="not yet"), web.Response(status=200)],
        "later": [web.Response(status=503, headers={"Retry-After": "1"}), web.Response(status=200)],
        "never": [web.Response(status=410)],
        "abort": [web.Response(status=400, headers={"Dueline-Abort": "unknown order"})],
        "moved": [web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), web.Response()],
    }

    async def answer(came: ReceivedCall) -> web.Response:
        return replies[came.id].pop(0)

    kit.hook.answer = answer
    await kit.push_to(retry={"ladder": ["50ms", "60s"]})
    for id in replies:
        await kit.send(id)
    done = [await kit.until(id, "done") for id in ("fine", "again", "later", "moved")]
    assert [job["attempts"] for job in done] == [1, 2, 2, 2]
    dead = [await kit.until(id, "dead") for id in ("never", "abort")]
    assert [(job["reason"], job["attempts"], job["last_error"]) for job in dead] == [
        ("rejected", 1, "answered 410: gone"),
        ("rejected", 1, "answered 400, Dueline-Abort: unknown order"),
    ]
    log = await kit.attempts(query="?id=again")
    assert [(one["attempt"], one["status"], one["error"], one["excerpt"]) for one in log] == [
        (2, 200, None, None),
        (1, 500, "answered 500", "not yet"),
    ]
    assert len(await kit.attempts()) == 9
    _, page = await kit.ask("GET", f"/v1/topics/{kit.topic}/push")
    assert (page["state"], page["in_flight"]) == ("ok", 0)


async def test_a_call_is_signed_by_both_secrets_and_its_id_is_the_same_over_retries(kit: PushKit) -> None:
    statuses = [500, 200]

    async def answer(came: ReceivedCall) -> web.Response:
        return web.Response(status=statuses.pop(0))

    kit.hook.answer = answer
    await kit.push_to(secrets=list(SECRETS), retry={"ladder": ["10ms"]})
    await kit.send("order:7")
    await kit.hook.arrived(2)
    for came in kit.hook.came:
        for secret in SECRETS:
            assert Webhook(secret).verify(came.body, came.headers) == {"n": "order:7"}
    assert len({came.headers["webhook-id"] for came in kit.hook.came}) == 1
    assert [came.headers["dueline-attempt"] for came in kit.hook.came] == ["1", "2"]
    assert kit.hook.came[0].headers["user-agent"].startswith("dueline/")


async def test_a_group_arrives_as_one_array(kit: PushKit) -> None:
    await kit.push_to()
    for number in range(3):
        merge = {"key": "k", "max_items": 3, "quiet_ms": 60_000}
        status, answer = await kit.ask("POST", f"/v1/topics/{kit.topic}/jobs", {"body": {"n": number}, "merge": merge})
        assert status in (200, 201), answer
    await kit.hook.arrived(1)
    assert json.loads(kit.hook.came[0].body) == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert kit.hook.came[0].headers["content-type"] == "application/json"


async def test_two_workers_share_one_place(workers_kit: PushKit) -> None:
    kit = workers_kit

    async def answer(came: ReceivedCall) -> web.Response:
        await asyncio.sleep(0.005)  # long enough that two at once would meet
        return web.Response()

    kit.hook.answer = answer
    await kit.push_to("one", concurrency=1)
    for number in range(60):
        await kit.send(f"j{number}", "one")
    await kit.hook.arrived(60)
    assert kit.hook.most == 1
    assert sorted(came.id for came in kit.hook.came) == sorted(f"j{number}" for number in range(60))


async def test_a_pause_is_heard_by_every_worker_long_before_they_would_look(workers_kit: PushKit) -> None:
    kit = workers_kit
    await kit.push_to("paused")
    await kit.push_to("other")
    assert (await kit.ask("POST", "/v1/topics/paused/push/pause"))[0] == 200
    rounds = 0
    async with asyncio.timeout(15):  # the look is every 30 s
        while True:
            ids = [f"{rounds}.{place}" for place in range(6)]
            for id in ids:
                await kit.send(id, "paused")
                await kit.send(f"other.{id}", "other")
            rounds += 1
            for id in ids:
                await kit.until(f"other.{id}", "done", "other")
            states = [(await kit.job(id, "paused"))["state"] for id in ids]
            if states == ["ready"] * 6:
                break
    assert (await kit.ask("POST", "/v1/topics/paused/push/resume"))[0] == 200
    await kit.hook.arrived(12 * rounds)


async def test_a_job_whose_call_was_under_way_at_a_kill_is_called_again_and_nothing_is_lost(own_kit: PushKit) -> None:
    kit = own_kit
    leased = asyncio.Event()

    async def answer(came: ReceivedCall) -> web.Response:
        if len(kit.hook.came) <= 8:
            await leased.wait()
        return web.Response()

    kit.hook.answer = answer
    await kit.push_to(concurrency=8, timeout_ms=2_000)  # the lease is 7 s
    for number in range(30):
        await kit.send(f"j{number}")
    await kit.hook.arrived(8)
    await kit.server.kill_group()
    cut = {came.id for came in kit.hook.came}
    leased.set()
    await kit.server.start()
    for number in range(30):
        await kit.until(f"j{number}", "done")
    calls = [came.id for came in kit.hook.came]
    assert set(calls) == {f"j{number}" for number in range(30)}
    assert {id for id in calls if calls.count(id) > 1} <= cut
    attempts = {id: came.headers["dueline-attempt"] for came in kit.hook.came for id in [came.id]}
    assert all(attempts[id] == "2" for id in cut)


async def test_sigterm_lets_quick_calls_end_and_gives_slow_ones_back_uncounted(tmp_path: Path) -> None:
    async with serving(tmp_path, env={"DUELINE_SERVER__DRAIN_MS": "1000"}) as kit:
        quick, slow = asyncio.Event(), asyncio.Event()

        async def answer(came: ReceivedCall) -> web.Response:
            await (quick if came.id == "quick" else slow).wait()
            return web.Response()

        kit.hook.answer = answer
        await kit.push_to(concurrency=3)
        for id in ("quick", "slow1", "slow2", "waiting"):
            await kit.send(id, max_attempts=1)
        await kit.hook.arrived(3)
        kit.server.signal(signal.SIGTERM)
        quick.set()
        assert await kit.server.ended(timeout_s=10) == 0
        slow.set()
        await kit.server.start()
        jobs = {id: await kit.until(id, "done") for id in ("slow1", "slow2", "waiting")}
        assert {id: job["attempts"] for id, job in jobs.items()} == {"slow1": 1, "slow2": 1, "waiting": 1}
        assert [came.id for came in kit.hook.came].count("quick") == 1
        deliveries = {came.id: came.headers["dueline-delivery"] for came in kit.hook.came}
        assert deliveries == {"quick": "1", "slow1": "2", "slow2": "2", "waiting": "1"}


async def test_an_address_that_is_not_allowed_any_more_is_refused_at_once_and_at_the_connect(own_kit: PushKit) -> None:
    kit = own_kit
    await kit.push_to(retry={"ladder": ["1h"]})
    await kit.server.stop()
    kit.server.env["DUELINE_PUSH__ALLOW"] = "127.0.0.2/32"
    await kit.server.start()
    status, answer = await kit.ask("PUT", "/v1/topics/u/push", {"url": kit.hook.url})
    assert (status, answer["error"]["code"], answer["error"]["field"]) == (403, "egress_refused", "url")
    await kit.send("j")
    job = await kit.until("j", "scheduled")
    assert (job["attempts"], kit.hook.came) == (1, [])
    [attempt] = await kit.attempts()
    assert (attempt["status"], attempt["error"]) == (None, job["last_error"])
    assert "127.0.0.1" in job["last_error"]


def test_a_bad_allow_list_stops_the_server_with_the_name_of_the_key(tmp_path: Path) -> None:
    code, said = refused_settings("--data", str(tmp_path / "data"), DUELINE_PUSH__ALLOW="10.0.0.0/99")
    assert (code, said.startswith("dueline: push.allow: ")) == (2, True), said


async def test_figures_tell_calls_by_class(kit: PushKit) -> None:
    await kit.push_to()
    await kit.send("j")
    await kit.until("j", "done")
    connection = Connection(*kit.server.address)
    page = (await connection.request("GET", "/metrics", b"", timeout_s=20)).body.decode()
    connection.close()
    [line] = re.findall(rf'^dueline_push_requests_total\{{.*topic="{kit.topic}".*', page, re.MULTILINE)
    assert all(word in line for word in ('namespace="default"', 'code_class="2xx"', "} 1"))
    assert 'topic="push-targets"' not in page
