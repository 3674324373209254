"""Cases that need servers of their own: two on one store, one that dies, one without a registry, one that may not call.

All of it takes the session's `spring`, so that it runs beside the other cases; its registry is shared.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from aiohttp import web

from dueline.testing.process import NotStarted, free_port
from tests.kit.spring_app import SpringApp, Work
from tests.kit.valkey import PrivateValkey
from tools.faults.server_process import ServerProcess

from ..kit import NOWHERE, RunningServer, now_ms, serve
from .conftest import ALLOW, options
from .kit import Spring, refused


@asynccontextmanager
async def own_server(
    spring: Spring, env: Mapping[str, str], config: str = "", store_url: str | None = None
) -> AsyncIterator[Spring]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dueline.toml"
        file.write_text(config)
        server = ServerProcess(Path(folder) / "data", args=["--config", str(file)], env=env, store_url=store_url)
        await server.start()
        served = RunningServer(server)
        try:
            yield Spring(served, spring.registry)
        finally:
            await served.stop()


@asynccontextmanager
async def own_store() -> AsyncIterator[PrivateValkey]:
    store = PrivateValkey()
    await asyncio.to_thread(store.start)
    try:
        yield store
    finally:
        await asyncio.to_thread(store.stop)


async def test_case_025_of_two_servers_on_one_store_one_calls_and_one_at_a_time(spring: Spring) -> None:
    async def slowly(_: Work) -> web.Response:
        calls[0] += 1
        most[0] = max(most[0], calls[0])
        await asyncio.sleep(0.1)
        calls[0] -= 1
        return web.Response(text="accepted")

    calls, most, name = [0], [0], spring.name()
    env = options(spring.registry)
    async with (
        own_store() as store,
        own_server(spring, env, store_url=store.url) as one,
        own_server(spring, env, store_url=store.url) as other,
    ):
        apps = [await one.app(name, answer=slowly), await one.app(name, answer=slowly)]
        ids = [f"twice-{n}" for n in range(20)]
        for n, id in enumerate(ids):
            await (one, other)[n % 2].add(taskId=id, taskType="task1", delayTime=now_ms(), appName=name)
        await one.until(f"{name}-task1")
        got = [work.job["taskId"] for app in apps for work in app.work]
        assert (sorted(got), most) == (sorted(ids), [1])


async def test_case_030_data_of_the_plugin_mode_in_the_same_store_is_not_touched(spring: Spring) -> None:
    name = spring.name()
    async with own_store() as store:
        original = redis.Redis.from_url(store.url)
        original.zadd("delay_queue:bucket:task1", {'{"taskId":"1","delayTime":1}': 1})
        original.hset("delay_queue:delayQueuePool", "1", '{"taskId":"1","taskType":"task1","delayTime":1}')
        original.sadd("delay_queue:taskType", "task1")
        keys = ("delay_queue:bucket:task1", "delay_queue:delayQueuePool", "delay_queue:taskType")
        before = [original.dump(key) for key in keys]
        async with own_server(spring, options(spring.registry), store_url=store.url) as q:
            app = await q.app(name)
            await q.add(taskId="1", taskType="task1", delayTime=0, params="ours", appName=name)
            await q.until(f"{name}-task1")
            assert ([one.job["params"] for one in app.work], await q.ask("/task/type/list")) == (
                ["ours"],
                [f"{name}-task1"],
            )
        assert [original.dump(key) for key in keys] == before
        assert sorted(key.decode() for key in original.keys("delay_queue:*")) == sorted(keys)
        original.close()


async def test_groups_are_served_again_after_a_crash_without_any_new_job(spring: Spring) -> None:
    name = spring.name()
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder), env=options(spring.registry))
        await server.start()
        q = Spring(RunningServer(server), spring.registry)
        now = now_ms()
        for n in (2, 1):
            await q.add(taskId=f"late-{n}", taskType="task1", delayTime=now + 6000 + n, appName=name)
        await server.kill()
        app = await q.app(name)
        await server.start()
        works = await app.arrived(2)
        assert [one.job["taskId"] for one in works] == ["late-1", "late-2"]
        again = Spring(RunningServer(server), spring.registry)
        await again.until(f"{name}-task1")
        assert await again.ask("/task/type/list") == [f"{name}-task1"]
        await again.served.stop()


async def test_a_server_that_dies_in_the_middle_of_a_call_calls_again(spring: Spring) -> None:
    async def never_the_first(work: Work) -> web.Response:
        if len(app.work) == 1:
            await called_again.wait()
        called_again.set()
        return web.Response(text="accepted")

    name, called_again = spring.name(), asyncio.Event()
    with tempfile.TemporaryDirectory() as folder:
        env = {**options(spring.registry), "DUELINE_DIALECTS__SPRING__TIMEOUT_MS": "1000"}
        server = ServerProcess(Path(folder), env=env)
        await server.start()
        q = Spring(RunningServer(server), spring.registry)
        app = await q.app(name, answer=never_the_first)
        await q.add(taskId="again", taskType="task1", delayTime=0, params="p", appName=name)
        await app.arrived()
        await server.kill()
        await server.start()
        works = await app.arrived(2)
        assert works[0].body == works[1].body
        again = Spring(RunningServer(server), spring.registry)
        await again.until(f"{name}-task1")
        await again.served.stop()


async def test_a_table_in_the_configuration_does_without_a_registry(spring: Spring) -> None:
    first, second = SpringApp("billing"), SpringApp("billing")
    await first.start()
    await second.start()
    config = f"""
        [discovery.static]
        billing = [{{ url = "{first.url}/", tasks = "task1, task2" }}, {{ url = "{second.url}", tasks = "task3" }}]
        mute = [{{ url = "http://127.0.0.1:9" }}]
    """
    async with own_server(spring, ALLOW, config) as q:
        await q.add(taskId="1", taskType="task3", delayTime=0, params="p", appName="Billing")
        await q.add(taskId="2", taskType="task2", delayTime=0, params="q", appName="billing")
        assert ([work.job["params"] for work in await second.arrived()], (await first.arrived())[0].job["params"]) == (
            ["p"],
            "q",
        )
        shown = await q.ask("/discovery/service_info")
        assert {name: [one["TaskType"] for one in some] for name, some in shown.items()} == {
            "billing": ["task1, task2", "task3"],
            "mute": [],
        }
        assert shown["billing"][1]["ServiceInstance"]["uri"] == second.url
    await first.stop()
    await second.stop()


async def test_an_instance_at_a_forbidden_address_is_not_called_whoever_says_so(spring: Spring) -> None:
    """What a registry tells is a claim of others: the egress rule stands in front of these calls too."""
    name = spring.name()
    env = {"DUELINE_DISCOVERY__EUREKA__URL": spring.registry.url}
    async with own_server(spring, env) as q:
        app = await q.app(name)
        await q.add(taskId="1", taskType="task1", delayTime=0, params="p", appName=name)
        await q.until(f"{name}-task1", scheduled=1)
        job = await q.job(f"{name}-task1", "1")
        assert job is not None
        assert (job["attempts"], app.work) == (1, [])
        assert "127.0.0.1" in job["last_error"]
        line = await q.served.logged("egress guard", f"{name}-task1")
        assert (line["level"], line["setting"], line["reason"]) == ("warning", "push.allow", job["last_error"])
        assert "push.allow" in line["event"]


async def test_a_job_for_which_no_instance_names_its_type_leaves_a_line_in_the_log(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    await q.app(name, "task2")
    await q.add(taskId=spring.id(), taskType="task1", delayTime=0, appName=name)
    line = await q.served.logged("no instance", f"{name}-task1")
    assert (line["level"], line["namespace"]) == ("warning", "spring")
    assert f'application "{name}" names the task type "task1"' in line["event"]
    assert "discovery.eureka.url or discovery.static" in line["event"]


async def test_retries_can_be_switched_off_and_a_job_need_not_wait_for_ever(spring: Spring) -> None:
    async def failing(_: Work) -> web.Response:
        return web.Response(status=204)

    name, nobody = spring.name(), spring.name()
    config = """
        [dialects.spring]
        retry = "off"
        no_instance_limit_ms = 5000
    """
    async with own_server(spring, options(spring.registry), config) as q:
        app = await q.app(name, answer=failing)
        await q.add(taskId="1", taskType="task1", delayTime=0, appName=name)
        await q.add(taskId="2", taskType="task1", delayTime=0, appName=nobody)
        await q.until(f"{name}-task1", dead=1)
        await q.until(f"{nobody}-task1", dead=1)
        dead = [await q.job(f"{name}-task1", "1"), await q.job(f"{nobody}-task1", "2")]
        assert [job and (job["reason"], job["attempts"], job["last_error"]) for job in dead] == [
            ("exhausted", 1, "answered 204"),
            ("expired", 0, None),
        ]
        assert len(app.work) == 1
        logged = [line for line in q.served.server.output if "eureka" in line and "jobs are waiting" not in line]
        assert logged == [], "a look-up is nothing to log"


async def test_a_listener_of_its_own_is_all_its_own(spring: Spring) -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        served = await serve(Path(folder), {"DUELINE_DIALECTS__SPRING__LISTEN": f"127.0.0.1:{port}"})
        main = await served.client().ask("POST", "/job/add", b"{}", {"Content-Type": "application/json"})
        assert (main.status, main.json()["error"]["code"]) == (404, "no_route")
        own = served.client(port)
        missing = await own.ask("GET", "/v1/topics")
        assert (missing.status, missing.json()) == (
            404,
            refused(404, "Not Found", "There is nothing at this path.", "/v1/topics"),
        )
        body = json.dumps({"taskId": "1", "taskType": "t", "delayTime": now_ms() + 60_000, "appName": "a"}).encode()
        added = await own.ask("POST", "/job/add", body, {"Content-Type": "application/json"})
        listed = await own.ask("GET", "/task/type/list")
        assert (added.status, added.body, listed.json()) == (200, b"", ["a-t"])
        await served.stop()


async def test_a_job_that_was_sent_natively_goes_to_the_application_too(spring: Spring) -> None:
    q, name, id = spring.another(), spring.name(), spring.id()
    app = await q.app(name)
    await q.add(taskId=spring.id(), taskType="task1", delayTime=0, appName=name)
    await app.arrived()
    body = json.dumps({"id": id, "body": {"n": 1}, "delay_ms": 500}).encode()
    sent = await q.client.ask(
        "POST",
        f"/v1/topics/{name}-task1/jobs",
        body,
        {"Dueline-Namespace": "spring", "Content-Type": "application/json"},
    )
    assert sent.status == 201, sent
    work = (await app.arrived(2))[1]
    due_at_ms = sent.json()["due_at_ms"]
    assert work.job == {
        "taskId": id,
        "taskType": "task1",
        "delayTime": due_at_ms,
        "params": '{"n": 1}',
        "appName": name,
    }
    assert work.at_ms >= due_at_ms
    await q.until(f"{name}-task1", done=1)  # a native job is readable for a minute


async def test_a_job_that_waits_for_its_rung_does_not_hold_up_those_behind_it(spring: Spring) -> None:
    async def failing(work: Work) -> web.Response:
        return web.Response(status=503 if work.job["params"] == "bad" else 200)

    q, name = spring.another(), spring.name()
    app = await q.app(name, answer=failing)
    now = now_ms()
    for n, params in enumerate(("bad", "good", "better")):
        await q.add(taskId=spring.id(), taskType="task1", delayTime=now + n, params=params, appName=name)
    works = await app.arrived(4)
    assert [one.job["params"] for one in works] == ["bad", "good", "better", "bad"]
    assert await q.counts(f"{name}-task1") in ({**NOWHERE, "leased": 1}, {**NOWHERE, "scheduled": 1})


async def test_names_with_dashes_mean_one_application_each(spring: Spring) -> None:
    """(order, pay-close) and (order-pay, close) have one name there and two topics here: none waits for the other."""
    q, order = spring.another(), spring.name()
    await q.add(taskId=spring.id(), taskType="pay-close", delayTime=0, params="absent", appName=order)
    app = await q.app(f"{order}-pay", "close")
    await q.add(taskId=spring.id(), taskType="close", delayTime=0, params="there", appName=f"{order}-pay")
    await app.arrived()
    await q.until(f"{order}-pay-close")
    assert await q.counts(f"{order}-pay-close~{len(order)}") == {**NOWHERE, "ready": 1}
    assert [group for group in await q.ask("/task/type/list") if group.startswith(order)] == [f"{order}-pay-close"]
    absent = await q.app(order, "pay-close")
    await absent.arrived()
    await q.until(f"{order}-pay-close~{len(order)}")
    assert ([w.job["params"] for w in app.work], [w.job["params"] for w in absent.work]) == (["there"], ["absent"])


async def test_an_application_whose_name_begins_with_null_is_one_like_any_other(spring: Spring) -> None:
    q, type = spring.another(), spring.name()
    apps = [await q.app("null-pay", type), await q.app("null", type)]
    await q.add(taskId=spring.id(), taskType=type, delayTime=0, params="nobody's")
    await q.add(taskId=spring.id(), taskType=f"pay-{type}", delayTime=0, params="nobody's")
    for app in apps:
        await q.add(taskId=spring.id(), taskType=type, delayTime=0, params=app.name, appName=app.name)
    await asyncio.gather(*(app.arrived() for app in apps))
    await q.until(f"null-pay-{type}")
    await q.until(f"null-{type}~4")
    assert [[work.job["params"] for work in app.work] for app in apps] == [["null-pay"], ["null"]]
    for topic in (f"null-{type}", f"null-pay-{type}~0"):
        assert await q.counts(topic) == {**NOWHERE, "ready": 1}
    listed = [group for group in await q.ask("/task/type/list") if group.endswith(type)]
    assert listed == sorted([f"null-{type}", f"null-pay-{type}"])


async def test_a_registry_without_its_package_is_refused_at_the_start_by_name(spring: Spring) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "py_eureka_client.py").write_text("raise ImportError('as if it were not installed')")
        env = {**options(spring.registry), "PYTHONPATH": folder}
        server = ServerProcess(Path(folder) / "data", env=env)
        with pytest.raises(NotStarted, match=r"install dueline\[eureka\]"):
            await server.start()


async def test_settings_that_changed_are_a_groups_from_its_next_job_on_and_a_pause_stays(spring: Spring) -> None:
    async def target(q: Spring, verb: str = "GET", way: str = "") -> dict[str, Any]:
        path = f"/v1/topics/{name}-task1/push{way}"
        answer = await q.client.ask(verb, path, headers={"Dueline-Namespace": "spring"})
        assert answer.status == 200, answer
        return answer.json()

    name = spring.name()
    with tempfile.TemporaryDirectory() as folder:
        server = ServerProcess(Path(folder), env=options(spring.registry))
        await server.start()
        q = Spring(RunningServer(server), spring.registry)
        await q.add(taskId="1", taskType="task1", delayTime=0, params="p", appName=name)
        await target(q, "POST", "/pause")
        changed = {**await target(q), "in_flight": 0, "timeout_ms": 70_000, "retry": {"ladder": ["1s", "1h"]}}
        await server.stop()
        server.env |= {"DUELINE_DIALECTS__SPRING__TIMEOUT_MS": "70000", "DUELINE_DIALECTS__SPRING__RETRY": "1s,1h"}
        await server.start()
        again = Spring(RunningServer(server), spring.registry)
        app = await again.app(name)
        await again.add(taskId="2", taskType="task1", delayTime=0, params="q", appName=name)
        assert await target(again) == changed
        assert (await again.counts(f"{name}-task1"), app.work) == ({**NOWHERE, "ready": 2}, [])
        await target(again, "POST", "/resume")
        assert [work.job["params"] for work in await app.arrived(2)] == ["p", "q"]
        await again.served.stop()
