"""Dead jobs are sent on by real servers on a real store: to a topic, to a URL, through kill -9, by two workers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.kit.hook import ReceivedCall
from tests.kit.waiting import until

from .test_push import PushKit, kit, loop_runner, serving, shared

__all__ = ["kit", "loop_runner", "shared"]  # fixtures


def of_jobs(kit: PushKit) -> str:
    """The address of the topic whose jobs die."""
    return f"/v1/topics/{kit.topic}"


def of_dead(kit: PushKit) -> str:
    """The name of the topic to which they are sent on."""
    return f"{kit.topic}-dead"


async def route(kit: PushKit, **on_dead: str) -> None:
    """Say where the dead go."""
    status, answer = await kit.ask("PUT", of_jobs(kit), {"on_dead": on_dead})
    assert status in (200, 201), answer


async def counts(kit: PushKit, topic: str) -> dict[str, int]:
    status, answer = await kit.ask("GET", f"/v1/topics/{topic}")
    return answer["counts"] if status == 200 else {}


async def until_sent_on(kit: PushKit, number: int) -> None:
    """Until nothing is dead and so many jobs were forwarded. Only the server's own answers tell."""
    await until(lambda: counts(kit, kit.topic), lambda found: found.get("dead") == 0, within_s=45)
    await until(lambda: counts(kit, of_dead(kit)), lambda found: found.get("ready") == number, within_s=45)


async def dead_ids(kit: PushKit) -> list[str]:
    """The jobs whose deaths were forwarded, and why they died."""
    found: list[str] = []
    while True:
        _, answer = await kit.ask("POST", f"/v1/topics/{of_dead(kit)}/pull", {"max": 500})
        if not answer["jobs"]:
            return sorted(found)
        found += [job["headers"]["Dueline-Dead-Id"] for job in answer["jobs"]]


async def let_die(kit: PushKit, number: int) -> None:
    jobs = [{"id": f"j{place:04}", "body": place, "max_attempts": 1} for place in range(number)]
    await kit.ask("POST", of_jobs(kit) + "/jobs", jobs)
    leased: list[dict[str, Any]] = []
    while len(leased) < number:
        _, answer = await kit.ask("POST", of_jobs(kit) + "/pull", {"max": 500})
        leased += answer["jobs"]
    given_back = [{"id": job["id"], "lease": job["lease"], "error": "no"} for job in leased]
    status, answer = await kit.ask("POST", of_jobs(kit) + "/release", {"jobs": given_back})
    assert status == 200, answer
    assert {one["result"] for one in answer["results"]} == {"dead"}


async def test_a_job_that_its_target_refuses_is_forwarded_to_a_url(kit: PushKit) -> None:
    async def answer(came: ReceivedCall) -> web.Response:
        return web.Response(status=410 if came.path == "/hook" else 200)

    kit.hook.answer = answer
    alarm = kit.hook.url.replace("/hook", "/alarm")
    await route(kit, url=alarm)
    await kit.push_to()
    await kit.send("a", headers={"X-Trace": "7"}, tags=["red"])
    await kit.hook.arrived(2)
    call = kit.hook.came[1]
    assert (call.method, call.path, json.loads(call.body)) == ("POST", "/alarm", {"n": "a"})
    assert call.headers["content-type"] == "application/json"
    ours = {name: value for name, value in call.headers.items() if name.startswith(("dueline-dead-", "x-trace"))}
    assert ours == {
        "x-trace": "7",
        "dueline-dead-topic": kit.topic,
        "dueline-dead-id": "a",
        "dueline-dead-reason": "rejected",
        "dueline-dead-error": "answered 410: gone",
        "dueline-dead-hops": "1",
    }
    assert not {"dueline-url", "dueline-method"} & set(call.headers)
    await kit.until(call.id, "done", "dueline.on-dead")
    assert (await kit.job("a")).get("error", {}).get("code") == "not_found"


async def test_a_url_that_may_not_be_called_is_refused_and_nothing_is_set(kit: PushKit) -> None:
    status, answer = await kit.ask("PUT", of_jobs(kit), {"on_dead": {"url": "http://10.1.2.3/"}})
    assert (status, answer["error"]["code"], answer["error"]["field"]) == (403, "egress_refused", "on_dead.url")
    assert (await kit.ask("GET", of_jobs(kit)))[0] == 404


async def test_jobs_that_time_has_ended_are_sent_on(kit: PushKit) -> None:
    await route(kit, topic=of_dead(kit))
    await kit.send("expired", ttl_ms=1)
    await kit.send("left", max_attempts=1, delay_ms=1)
    async with asyncio.timeout(20):
        while not (await kit.ask("POST", of_jobs(kit) + "/pull", {"max": 9, "lease_ms": 1, "wait_ms": 1000}))[1][
            "jobs"
        ]:
            pass
    await kit.ask(
        "POST", of_jobs(kit) + "/pull", {"wait_ms": 50}
    )  # nobody has to ask, but asking is quicker than clean-up
    await until_sent_on(kit, 2)
    assert await dead_ids(kit) == ["expired", "left"]


async def test_a_server_that_is_killed_while_it_sends_on_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as kit:
        await route(kit, topic=of_dead(kit))
        await let_die(kit, 400)
        await kit.server.kill()
        await kit.server.start()
        await until_sent_on(kit, 400)
        assert await dead_ids(kit) == [f"j{place:04}" for place in range(400)]


async def test_two_workers_send_each_job_on_once(tmp_path: Path) -> None:
    async with serving(tmp_path, "--workers", "2") as kit:
        await route(kit, topic=of_dead(kit))
        await let_die(kit, 300)
        await until_sent_on(kit, 300)
        assert await dead_ids(kit) == [f"j{place:04}" for place in range(300)]
