"""The limits of a token on every route: pending jobs, queued jobs, and where pushes may be directed."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from dueline.engine.commands import Send
from dueline.engine.job import BodyKind
from dueline.engine.tokens import NewToken, TokenSpec
from dueline.rights import EVERYTHING, Grant, Right, TokenLimits

from .matrix_kit import Caller, Server, ask

LISTED, OTHER = "8.8.8.8", "8.8.4.4"


async def made(server: Server, **limits: Any) -> NewToken:
    wish = TokenSpec("limited", (Right.ADMIN,), None, limits=TokenLimits(**limits))
    return await server.app.engine.tokens.make(wish, EVERYTHING)


async def pending(server: Server, namespace: str) -> int:
    views, _ = await server.app.engine.topics(namespace, "", 100)
    return sum(view.scheduled + view.ready + view.leased for view in views)


async def test_every_call_that_adds_a_job_obeys_the_pending_jobs_of_its_token(server: Server) -> None:
    engine, caller = server.app.engine, Caller(server.port)
    for namespace in {one.namespace for one in server.declared.values()} - {"*"}:
        await engine.send(namespace, "first", Send(f"first-{namespace}", b"1", BodyKind.JSON, delay_ms=3_600_000))
    free, limited = await made(server), await made(server, max_pending_jobs=1)
    refused = {
        name: answer.headers.get("retry-after")
        for name, one in server.declared.items()
        if (answer := await caller.ask(one, limited.text)).status == 429
    }
    adding: set[str] = set()
    for name, one in server.declared.items():
        before = 0 if one.namespace == "*" else await pending(server, one.namespace)
        await caller.ask(one, free.text)
        if one.namespace != "*" and await pending(server, one.namespace) > before:
            adding.add(name)
    assert set(refused) == adding
    assert len(adding) >= 7
    assert set(refused.values()) == {"1"}


async def test_a_schedule_that_is_run_by_hand_obeys_them_too(server: Server) -> None:
    free, limited = await made(server), await made(server, max_pending_jobs=1)
    schedule = {"topic": "t", "every": "1w", "job": {"body": 1}}
    assert (await ask(server.port, "PUT", "/v1/schedules/s", schedule, free.text)).status == 201
    assert (await ask(server.port, "POST", "/v1/schedules/s/run", None, limited.text)).status == 201
    assert (await ask(server.port, "POST", "/v1/schedules/s/run", None, limited.text)).status == 429
    assert (await ask(server.port, "POST", "/v1/schedules/s/run", None, free.text)).status == 201


async def test_all_calls_but_those_of_pull_count_for_the_queued_jobs_of_a_token(server: Server) -> None:
    limited, caller = await made(server, max_queued_jobs=2), Caller(server.port)
    grant = Grant(
        frozenset({Right.ADMIN}),
        token_id=limited.token.id,
        generation=limited.token.generation,
        limits=limited.token.limits,
    )
    quota = server.app.quotas.of(server.app.fronts[0].router.find("POST", "/v1/topics/t/jobs"), grant, None)
    assert quota is not None
    queue = quota.queue
    assert queue is not None
    queue.jobs = 2  # others of the same token are being answered
    refused = {name for name, one in server.declared.items() if (await caller.ask(one, limited.text)).status == 429}
    counted = {name for name, one in server.declared.items() if one.right not in (Right.PULL, Right.NONE)}
    assert {name for name in counted if server.declared[name].namespace == "*"} == {"metrics"}
    assert refused == counted - {"metrics", "events"}  # a stream counts as a poll
    assert queue.jobs == 2
    queue.jobs = 1
    jobs = [{"body": number, "delay": "1h"} for number in range(2)]
    statuses = [
        (await ask(server.port, "POST", "/v1/topics/t/jobs", body, limited.text)).status for body in (jobs, jobs[0])
    ]
    statuses += [
        (await ask(server.port, "POST", "/v1/topics/t/cancel", {"ids": ids}, limited.text)).status
        for ids in (["a", "b"], ["a"])
    ]
    assert statuses == [429, 201, 429, 404]
    assert queue.jobs == 1
    queue.jobs = 0
    assert (await ask(server.port, "POST", "/v1/topics/t/jobs", jobs * 5, limited.text)).status == 201
    assert queue.jobs == 0


def exfe(url: str) -> tuple[str, str, None]:
    service = base64.urlsafe_b64encode(url.encode()).decode()
    return "POST", f"/v3/queue/-key/POST/{service}?ontime=4102444800", None


def spring(app: str) -> tuple[str, str, dict[str, Any]]:
    return "POST", "/job/add", {"taskId": app, "appName": app, "taskType": "x", "delayTime": 4102444800000}


def target(**fields: str) -> tuple[str, str, dict[str, Any]]:
    return "PUT", "/v1/topics/t/push", {**fields, "paused": True}


def on_dead(url: str) -> tuple[str, str, dict[str, Any]]:
    return "PUT", "/v1/topics/t", {"on_dead": {"url": url}}


CHOICES = {
    "target": (target(url=f"http://{LISTED}/"), target(url=f"http://{OTHER}/")),
    "target by name": (target(url="http://hooks.example/"), target(url="http://other.example/")),
    "service": (target(service="billing"), target(service="shop")),
    "on_dead": (on_dead(f"http://{LISTED}/"), on_dead(f"http://{OTHER}/")),
    "exfe": (exfe(f"http://{LISTED}/"), exfe(f"http://{OTHER}/")),
    "spring": (spring("billing"), spring("shop")),
}


@pytest.mark.parametrize("way", CHOICES)
async def test_a_token_directs_pushes_only_to_its_list(server: Server, way: str) -> None:
    token = await made(server, push_allow=(f"{LISTED}/32", "hooks.example", "billing"))
    nothing, free = await made(server, push_allow=()), await made(server)
    listed, other = CHOICES[way]
    answers = [await ask(server.port, *other, one.text) for one in (token, nothing)]
    assert [answer.status for answer in answers] == [403, 403]
    assert b"limits.push_allow of the token" in answers[0].body
    assert (await ask(server.port, *listed, nothing.text)).status == 403
    assert [entry.topic for entry in await server.app.store.directory.topics(None, "", 10)] == []
    for allowed, one in ((listed, token), (other, free)):
        assert (await ask(server.port, *allowed, one.text)).status in (200, 201)


@pytest.mark.parametrize("way", ["target", "on_dead", "exfe"])
async def test_a_token_chooses_so_many_names_per_second_for_pushes_and_addresses_are_free(
    server: Server, way: str
) -> None:
    call = {"target": lambda url: target(url=url), "on_dead": on_dead, "exfe": exfe}[way]
    limited, free = await made(server, look_ups_per_s=0.001), await made(server)
    by_name, by_address = call("http://hooks.example/"), call(f"http://{LISTED}/")
    statuses = [(await ask(server.port, *by_name, limited.text)).status for _ in range(10)]
    assert set(statuses) <= {200, 201}  # at least ten at once
    refused = await ask(server.port, *by_name, limited.text)
    assert refused.status == 429
    assert b"limits.look_ups_per_s of the token" in refused.body
    assert 900 < int(refused.headers["retry-after"]) <= 1000
    for allowed, one in ((by_address, limited), (by_name, free)):
        assert (await ask(server.port, *allowed, one.text)).status in (200, 201)
