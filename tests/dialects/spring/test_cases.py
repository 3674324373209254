"""The numbered conformance cases of the protocol, against a real server, a registry, and applications that register
themselves as the original's do.

The numbers are labels of the protocol's conformance list and have gaps. Times of arrival are judged by lower bounds
only (never early), the stored time exactly. What has to come by itself is awaited. That nothing more comes is read off
the state instead: a group without jobs cannot deliver.
"""

from __future__ import annotations

import asyncio
import itertools
import json

from aiohttp import web

from tests.kit.spring_app import Work
from tests.kit.waiting import until

from ..kit import NOWHERE, now_ms
from .kit import JSON, WORK, Spring, refused


async def test_case_001_a_job_reaches_the_application_when_its_time_has_come_with_the_same_five_fields(
    spring: Spring,
) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    app = await q.app(name)
    job = {"taskId": id, "taskType": "task1", "delayTime": now_ms() + 5000, "params": "p", "appName": name}
    answer = await q.raw(json.dumps(job).encode())
    assert (answer.status, answer.body) == (200, b"")
    assert await q.counts(f"{name}-task1") == {**NOWHERE, "scheduled": 1}
    assert await _due_at_ms(q, f"{name}-task1", id) == job["delayTime"]
    [work] = await app.arrived()
    assert (work.path, work.job, work.headers["Content-Type"]) == (WORK, job, JSON)
    assert list(work.job) == ["taskId", "taskType", "delayTime", "params", "appName"]
    assert work.at_ms >= job["delayTime"], "delivered early"
    await q.until(f"{name}-task1")
    assert len(app.work) == 1


async def test_case_002_a_time_that_is_past_or_zero_or_missing_is_now(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    app = await q.app(name)
    for delay_time in (1628146026000, 0, -5, None):
        await q.add(taskId=q.id(), taskType="task1", delayTime=delay_time, params="p", appName=name)
    work = await app.arrived(4)
    assert [one.job["delayTime"] for one in work] == [1628146026000, 0, -5, 0]
    await q.until(f"{name}-task1")


async def test_case_003_a_time_in_a_text_is_delivered_as_a_number(spring: Spring) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    app = await q.app(name)
    await q.add(taskId=id, taskType="task1", delayTime="1628146026000", params="p", appName=name)
    [work] = await app.arrived()
    assert work.body == (
        f'{{"taskId":"{id}","taskType":"task1","delayTime":1628146026000,"params":"p","appName":"{name}"}}'.encode()
    )


async def test_case_005_an_empty_id_is_an_id(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    app = await q.app(name)
    for id in ("", "~", "~~x"):
        await q.add(taskId=id, taskType="task1", delayTime=0, params=id, appName=name)
    work = await app.arrived(3)
    assert [(one.job["taskId"], one.job["params"]) for one in work] == [("", ""), ("~", "~"), ("~~x", "~~x")]
    await q.until(f"{name}-task1")


async def test_case_006_what_is_not_json_is_refused_and_nothing_is_stored(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    job = json.dumps({"taskId": "1", "taskType": "t", "delayTime": now_ms() + 60_000, "appName": name}).encode()
    bad = await q.raw(job[:-1])
    assert (bad.status, bad.json()) == (400, refused(400, "Bad Request", "The body is not JSON in UTF-8."))
    text = await q.raw(job, {"Content-Type": "text/plain"})
    assert (text.status, text.json()) == (
        415,
        refused(415, "Unsupported Media Type", "Content type 'text/plain' not supported"),
    )
    got = await q.raw(b"", {}, "GET")
    assert (got.status, got.headers["allow"]) == (405, "POST")
    assert got.json() == refused(405, "Method Not Allowed", "This path takes POST.")
    assert await q.counts(f"{name}-t") == NOWHERE
    assert f"{name}-t" not in await q.ask("/task/type/list")


async def test_case_007_without_params_the_delivery_has_no_such_key(spring: Spring) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    app = await q.app(name)
    await q.add(taskId=id, taskType="task1", delayTime=5, appName=name)
    [work] = await app.arrived()
    assert work.job == {"taskId": id, "taskType": "task1", "delayTime": 5, "appName": name}


async def test_case_009_an_unknown_field_is_ignored(spring: Spring) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    app = await q.app(name)
    await q.add(taskId=id, taskType="task1", delayTime=5, appName=name, retries=3, nested={"a": [1]})
    [work] = await app.arrived()
    assert work.job == {"taskId": id, "taskType": "task1", "delayTime": 5, "appName": name}


async def test_case_010_the_group_is_listed_from_its_first_job_on_and_stays(spring: Spring) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    app = await q.app(name)
    await q.add(taskId=id, taskType="task1", delayTime=0, appName=name)
    assert f"{name}-task1" in await q.ask("/task/type/list")
    await app.arrived()
    await q.until(f"{name}-task1")
    assert f"{name}-task1" in await q.ask("/task/type/list")


async def test_case_011_work_that_takes_five_seconds_is_delivered_once(spring: Spring) -> None:
    async def slowly(_: Work) -> web.Response:
        await asyncio.sleep(5)
        return web.Response(text="accepted")

    q, name, id = spring.another(), spring.name(), spring.id()
    app = await q.app(name, answer=slowly)
    await q.add(taskId=id, taskType="task1", delayTime=0, appName=name)
    await app.arrived()
    await q.until(f"{name}-task1")
    assert len(app.work) == 1


async def test_case_013_when_the_first_instance_is_down_the_second_gets_it_in_the_same_try(spring: Spring) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    down = await q.app(name)
    await down.stop()
    up = await q.app(name)
    await q.add(taskId=id, taskType="task1", delayTime=0, appName=name)
    await up.arrived()
    await q.until(f"{name}-task1")
    assert (down.work, len(up.work)) == ([], 1)
    [attempt] = [one for one in await _attempts(q, f"{name}-task1") if one["status"] == 200]
    assert attempt["attempt"] == 1


async def test_case_014_of_two_instances_exactly_one_gets_it(spring: Spring) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    apps = [await q.app(name), await q.app(name)]
    await q.add(taskId=id, taskType="task1", delayTime=0, appName=name)
    await asyncio.wait([asyncio.create_task(app.arrived()) for app in apps], return_when=asyncio.FIRST_COMPLETED)
    await q.until(f"{name}-task1")
    assert sum(len(app.work) for app in apps) == 1


async def test_case_015_an_instance_that_does_not_name_exactly_this_type_is_never_called_for_it(
    spring: Spring,
) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    others = [await q.app(name, tasks) for tasks in (None, "", "task2", "task10, xtask1", "task0,task1")]
    await q.add(taskId=id, taskType="task1", delayTime=0, appName=name)
    await asyncio.wait_for(q.registry.looked_up(name, 3), 60)
    assert await q.counts(f"{name}-task1") == {**NOWHERE, "ready": 1}
    right = await q.app(name, "task0, task1")
    await right.arrived()
    await q.until(f"{name}-task1")
    assert [len(app.work) for app in others] == [0] * len(others)


async def test_case_017_a_job_waits_for_an_application_that_is_not_there_and_that_costs_no_attempt(
    spring: Spring,
) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    await q.add(taskId=id, taskType="task1", delayTime=0, params="p", appName=name)
    await asyncio.wait_for(q.registry.looked_up(name, 4), 60)
    job = await q.job(f"{name}-task1", id)
    assert job is not None
    assert (job["state"], job["attempts"], job["last_error"]) == ("ready", 0, None)
    app = await q.app(name)
    [work] = await app.arrived()
    assert work.job["params"] == "p"
    await q.until(f"{name}-task1")
    assert [one["attempt"] for one in await _attempts(q, f"{name}-task1")] == [1]


async def test_case_018_an_application_that_fails_gets_the_job_again_and_other_groups_are_not_held_up(
    spring: Spring,
) -> None:
    async def once_failing(work: Work) -> web.Response:
        failing = work.job["taskType"] == "task1" and len([w for w in app.work if w.job["taskType"] == "task1"]) == 1
        return web.Response(status=500) if failing else web.Response(text="accepted")

    q, name, id, other = spring.another(), spring.name(), spring.id(), spring.id()
    app = await q.app(name, answer=once_failing)
    await q.add(taskId=id, taskType="task1", delayTime=0, params="p", appName=name)
    await app.arrived()
    await q.until(f"{name}-task1", scheduled=1)
    job = await q.job(f"{name}-task1", id)
    assert job is not None
    assert (job["attempts"], job["max_attempts"], job["last_error"]) == (1, 7, "answered 500")
    assert job["retry"] == {"ladder": ["5s", "30s", "2m", "10m", "30m", "2h"]}
    await q.add(taskId=other, taskType="task2", delayTime=0, appName=name)
    works = await app.arrived(3)
    assert [one.job["taskId"] for one in works] == [id, other, id]
    assert works[2].at_ms >= works[0].at_ms + 5000
    assert works[2].body == works[0].body
    await q.until(f"{name}-task1")


async def test_case_019_the_same_id_and_time_twice_is_one_delivery_with_the_newest_params(spring: Spring) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    app = await q.app(name)
    at_ms = now_ms() + 5000
    for params in ("p", "q"):
        await q.add(taskId=id, taskType="task1", delayTime=at_ms, params=params, appName=name)
    assert await q.counts(f"{name}-task1") == {**NOWHERE, "scheduled": 1}
    assert await _due_at_ms(q, f"{name}-task1", id) == at_ms
    await app.arrived()
    await q.until(f"{name}-task1")
    assert [one.job["params"] for one in app.work] == ["q"]


async def test_case_021_the_same_id_with_another_time_is_one_delivery_at_the_newest_time(spring: Spring) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    app = await q.app(name)
    now = now_ms()
    for ahead_ms, params in ((9000, "p"), (5000, "q")):
        await q.add(taskId=id, taskType="task1", delayTime=now + ahead_ms, params=params, appName=name)
        assert await _due_at_ms(q, f"{name}-task1", id) == now + ahead_ms
    await app.arrived()
    await q.until(f"{name}-task1")
    assert [(one.job["params"], one.job["delayTime"]) for one in app.work] == [("q", now + 5000)]
    assert app.work[0].at_ms >= now + 5000


async def test_case_022_the_same_id_of_two_applications_is_one_job_of_the_later(spring: Spring) -> None:
    q, first, second, id = spring.another(), spring.name(), spring.name(), spring.id()
    apps = [await q.app(first), await q.app(second)]
    at_ms = now_ms() + 5000
    for name in (first, second):
        await q.add(taskId=id, taskType="task1", delayTime=at_ms, params=name, appName=name)
    assert (await q.counts(f"{first}-task1"), await q.counts(f"{second}-task1")) == (
        NOWHERE,
        {**NOWHERE, "scheduled": 1},
    )
    await apps[1].arrived()
    await q.until(f"{second}-task1")
    assert ([len(app.work) for app in apps], apps[1].work[0].job["appName"]) == ([0, 1], second)


async def test_case_023_thirty_groups_are_all_served(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    types = [f"type{n}" for n in range(30)]
    app = await q.app(name, ", ".join(types))
    for type in types:
        await q.add(taskId=q.id(), taskType=type, delayTime=0, appName=name)
    works = await app.arrived(30)
    assert sorted(one.job["taskType"] for one in works) == sorted(types)
    listed = await q.ask("/task/type/list")
    assert {f"{name}-{type}" for type in types} <= set(listed)


async def test_case_026_jobs_of_a_group_come_in_the_order_of_their_times_one_after_the_other(spring: Spring) -> None:
    async def slowly(_: Work) -> web.Response:
        await asyncio.sleep(1.5)
        return web.Response(text="accepted")

    q, name = spring.another(), spring.name()
    app = await q.app(name, answer=slowly)
    now = now_ms()
    for ahead_ms in (5000, 3000, 4000):
        await q.add(taskId=q.id(), taskType="task1", delayTime=now + ahead_ms, appName=name)
    works = await app.arrived(3)
    assert [one.job["delayTime"] - now for one in works] == [3000, 4000, 5000]
    for before, after in itertools.pairwise(works):
        assert after.at_ms >= before.answered_ms[0], "two at once"
    await q.until(f"{name}-task1")


async def test_case_027_service_info_shows_the_instances_with_what_they_work_on(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    app = await q.app(name)
    plain = await q.app(name, None)
    mute = spring.name()
    await q.app(mute, None)
    shown = await until(  # the registry as a whole is cached for a while
        lambda: q.ask("/discovery/service_info"), lambda shown: mute in shown, within_s=60, every_s=1
    )
    [entry] = shown[name]
    assert entry["TaskType"] == "task1, task2"
    instance = entry["ServiceInstance"]
    assert instance.pop("metadata")["delay-queue:task"] == "task1, task2"
    assert instance == {
        "serviceId": name.upper(),
        "instanceId": f"127.0.0.1:{name}:{app.port}",
        "host": "127.0.0.1",
        "port": app.port,
        "secure": False,
        "scheme": "http",
        "uri": app.url,
    }
    assert (shown[mute], plain.work) == ([], [])


async def test_case_029_without_an_application_the_job_is_kept_visible_and_never_delivered(spring: Spring) -> None:
    q, id = spring.another(), spring.id()
    type = spring.name()
    app = await q.app("null", type)
    await q.add(taskId=id, taskType=type, delayTime=0, params="p")
    later = q.id()
    await q.add(taskId=later, taskType=type, delayTime=0, appName="null")  # of an application that is called so
    await app.arrived()
    job = await q.job(f"null-{type}", id)
    assert job is not None
    assert (job["state"], job["attempts"], job["body"]) == ("ready", 0, "p")
    assert f"null-{type}" in await q.ask("/task/type/list")
    target = await q.client.ask("GET", f"/v1/topics/null-{type}/push", headers={"Dueline-Namespace": "spring"})
    assert (target.json()["paused"], [work.job["taskId"] for work in app.work]) == (True, [later])


async def _due_at_ms(q: Spring, group: str, id: str) -> int | None:
    """When the job is due, as the store has it: exact, whatever the machine is doing."""
    job = await q.job(group, id)
    return None if job is None else job["due_at_ms"]


async def _attempts(q: Spring, group: str) -> list[dict[str, object]]:
    answer = await q.client.ask("GET", f"/v1/topics/{group}/push/attempts", headers={"Dueline-Namespace": "spring"})
    assert answer.status == 200, answer
    return answer.json()["attempts"]


async def test_types_with_commas_and_outer_spaces_are_delivered(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    types = ["a,b", " outer ", "end,", ",", "中,文"]
    app = await q.app(name, ", ".join([*types, "task1"]))
    for type in types:
        await q.add(taskId=q.id(), taskType=type, delayTime=0, params="p", appName=name)
    works = await app.arrived(len(types))
    assert sorted(work.job["taskType"] for work in works) == sorted(types)
