"""The numbered conformance cases of the protocol, as transcripts against a real server: request, answer, state.

The numbers are labels of the protocol's conformance list and have gaps. Times are judged by lower bounds only (never
early; a long poll is really held). What has to come by itself is awaited, not measured.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

from dueline.testing.process import free_port

from ..kit import NOWHERE, RunningServer, after, now_ms, serve
from .conftest import HOLD_MS, OPTIONS
from .kit import ADDED, DONE, Ouqiang, refused

BODY = '{"u":1}'


async def test_case_001_a_push_is_answered_as_documented(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    answer = await q.raw("push", json.dumps({"topic": topic, "id": id, "delay": 2, "ttr": 5, "body": BODY}).encode())
    assert (answer.status, answer.body.decode()) == (200, '{"code":0,"message":"添加成功","data":null}')
    job = await q.job(topic, id)
    assert job is not None
    assert (job["state"], job["body"], job["lease_ms"], job["max_attempts"]) == ("scheduled", BODY, 5000, None)
    assert job["due_at_ms"] == job["created_at_ms"] + 2000


async def test_case_002_get_shows_the_job_with_its_absolute_second(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    await q.push(topic, id, 2, 5, BODY)
    job = await q.job(topic, id)
    assert job is not None
    answer = await q.raw("get", json.dumps({"id": id}).encode())
    assert answer.body.decode() == (
        f'{{"code":0,"message":"操作成功","data":{{"topic":"{topic}","id":"{id}",'
        f'"delay":{(job["created_at_ms"] + 2000) // 1000},"ttr":5,"body":"{{\\"u\\":1}}"}}}}'
    )


async def test_case_003_a_pop_that_waits_is_answered_when_the_job_is_due_never_before(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    before_ms = await q.push(topic, id, 2, 5, BODY)
    assert await q.ask("pop", topic=topic) == {**DONE, "data": {"id": id, "body": BODY}}
    assert now_ms() >= before_ms + 2000, "delivered early"
    assert await q.counts(topic) == {**NOWHERE, "leased": 1}


async def test_case_005_without_a_finish_the_job_comes_again_after_its_ttr_and_get_shows_the_same(
    ouqiang: Ouqiang,
) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    await q.push(topic, id, 1, 5, BODY)
    shown = await q.get(id)
    assert await q.pop(topic) == (id, BODY)
    leased = await q.job(topic, id)
    assert leased is not None
    assert await q.get(id) == shown
    assert await q.pop(topic) == (id, BODY)
    assert now_ms() >= leased["lease_until_ms"], "delivered during another lease"
    again = await q.job(topic, id)
    assert again is not None
    assert (again["state"], again["attempts"], again["max_attempts"]) == ("leased", 2, None)
    assert await q.get(id) == shown


async def test_case_006_a_finished_job_is_gone_for_ever(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    await q.push(topic, id, 1, 1)
    assert await q.pop(topic) == (id, "x")
    assert await q.ask("finish", id=id) == DONE
    assert await q.ask("get", id=id) == DONE
    assert (await q.job(topic, id), await q.counts(topic)) == (None, NOWHERE)
    assert await q.pop(topic) is None


async def test_case_007_an_unknown_id_can_be_finished_and_deleted(ouqiang: Ouqiang) -> None:
    q = ouqiang.another()
    assert await q.ask("finish", id="nobody") == DONE
    assert await q.ask("delete", id="nobody") == DONE


async def test_case_009_a_deleted_job_is_not_delivered_again_whoever_holds_it(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    await q.push(topic, id, 1, 1)
    assert await q.pop(topic) == (id, "x")
    assert await q.ask("delete", id=id) == DONE
    assert (await q.ask("get", id=id), await q.counts(topic)) == (DONE, NOWHERE)
    assert await q.pop(topic) is None


async def test_case_010_a_job_that_nobody_popped_can_be_finished(ouqiang: Ouqiang) -> None:
    q, topic, waiting, ready = ouqiang.another(), ouqiang.topic(), ouqiang.id(), ouqiang.id()
    await q.push(topic, ready)
    await q.push(topic, waiting, 3600)
    await q.until(topic, scheduled=1, ready=1)
    await q.finish(waiting)
    await q.finish(ready)
    assert (await q.get(waiting), await q.get(ready), await q.counts(topic)) == (None, None, NOWHERE)


async def test_case_011_the_range_of_delay(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    for delay in (0, -1, 2147483649):
        assert await q.ask("push", topic=topic, id=id, delay=delay, ttr=5, body="") == refused(
            "delay 取值范围1 - (2^31 - 1)"
        )
    assert await q.get(id) is None
    before_ms = await q.push(topic, id, 2147483648)
    assert (await q.get(id))["delay"] >= before_ms // 1000 + 2147483648
    await q.finish(id)


async def test_case_013_an_empty_id_is_the_first_thing_that_is_refused(ouqiang: Ouqiang) -> None:
    q, topic = ouqiang.another(), ouqiang.topic()
    wrong = refused("job id不能为空")
    assert await q.ask("push", topic=topic, id="", delay=1, ttr=1, body="") == wrong
    assert await q.ask("push", topic=topic, id="  ", delay=1, ttr=1, body="") == wrong
    assert await q.ask("push", topic=topic, delay=1, ttr=1, body="") == wrong
    assert await q.ask("push", delay=0, ttr=0) == wrong
    assert await q.ask("push") == wrong
    assert await q.counts(topic) == NOWHERE


async def test_case_014_an_empty_topic_has_two_spellings(ouqiang: Ouqiang) -> None:
    q, id = ouqiang.another(), ouqiang.id()
    for topic in ({}, {"topic": ""}, {"topic": " \t\u3000"}, {"topic": None}):
        assert await q.ask("push", id=id, delay=0, ttr=1, body="", **topic) == refused("topic 不能为空")
        assert await q.ask("pop", **topic) == refused("topic不能为空")
    assert await q.get(id) is None


async def test_case_015_get_finish_and_delete_want_an_id(ouqiang: Ouqiang) -> None:
    q = ouqiang.another()
    for path in ("get", "finish", "delete"):
        for fields in ({}, {"id": ""}, {"id": "\n"}, {"id": None}):
            assert await q.ask(path, **fields) == refused("job id不能为空")


async def test_case_017_a_wrong_type_is_a_parse_failure(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    job = {"topic": topic, "id": id, "delay": 1, "ttr": 5, "body": ""}
    for wrong in ({"delay": "3600"}, {"id": 123}, {"delay": 1.5}):
        assert await q.ask("push", **{**job, **wrong}) == refused("解析json失败")
    assert (await q.get(id), await q.get("123")) == (None, None)


async def test_case_018_keys_match_in_any_case(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    assert await q.ask("push", Topic=topic, ID=id, Delay=3600, TTR=7, Body="B") == ADDED
    shown = await q.get(id)
    assert shown == {"topic": topic, "id": id, "delay": shown["delay"], "ttr": 7, "body": "B"}


async def test_case_019_an_unknown_field_is_ignored(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    more = {"priority": 1.5, "tags": [1, {"id": 2}], "extra": None}
    assert await q.ask("push", topic=topic, id=id, delay=3600, ttr=7, body="b", **more) == ADDED
    assert (await q.get(id))["body"] == "b"


async def test_case_021_texts_are_trimmed(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    assert await q.ask("push", topic=f"\t{topic}\n", id=f" {id}\u3000", delay=1, ttr=60, body=" \x85 b b\r\n") == ADDED
    shown = await q.get(id)
    assert (shown["topic"], shown["id"], shown["body"]) == (topic, id, "b b")
    assert await q.get(f"\xa0{id} ") == shown
    assert await q.pop(f" {topic} ") == (id, "b b")
    await q.finish(f"{id}\u2028")
    assert await q.get(id) is None


async def test_case_022_several_topics_in_one_pop_the_first_has_priority(ouqiang: Ouqiang) -> None:
    q, order, sms = ouqiang.another(), ouqiang.topic(), ouqiang.topic()
    jobs = [q.id() for _ in range(3)]
    await q.push(sms, jobs[0], body="sms")
    assert await q.pop(f"{order},{sms}") == (jobs[0], "sms")
    await q.push(sms, jobs[1], body="sms")
    await after(now_ms())
    await q.push(order, jobs[2], body="order")  # due after the other, and yet the first one
    await q.until(sms, ready=1, leased=1)
    await q.until(order, ready=1)
    assert await q.pop(f"{order},{sms}") == (jobs[2], "order")
    assert await q.pop(f"{order},{sms}") == (jobs[1], "sms")


async def test_case_023_a_pop_of_an_idle_topic_is_held_as_long_as_the_configuration_says(ouqiang: Ouqiang) -> None:
    async def idle(topic: str) -> None:
        q, before_ms = ouqiang.another(), now_ms()
        assert await q.ask("pop", topic=topic) == DONE
        assert now_ms() >= before_ms + HOLD_MS

    # The second and third can never have a job: no topic has an empty name or a control character.
    await asyncio.gather(idle(ouqiang.topic()), idle(" , ,"), idle("a\u0001b"))


async def test_case_025_any_verb_will_do(ouqiang: Ouqiang) -> None:
    q, topic = ouqiang.another(), ouqiang.topic()
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        id = q.id()
        body = json.dumps({"topic": topic, "id": id, "delay": 3600, "ttr": 1, "body": method}).encode()
        assert await q.said("push", body, method) == ADDED
        found = await q.said("get", json.dumps({"id": id}).encode(), method)
        assert found["data"]["body"] == method
        assert await q.said("finish", json.dumps({"id": id}).encode(), method) == DONE


async def test_case_026_another_path_is_not_found(ouqiang: Ouqiang) -> None:
    q = ouqiang.another()
    for path in ("nothing", "push/", "Push"):
        assert (await q.raw(path, b"{}")).status == 404
    port = free_port()
    with tempfile.TemporaryDirectory() as data:
        served = await serve(Path(data), {"DUELINE_DIALECTS__OUQIANG__LISTEN": f"127.0.0.1:{port}"})
        alone = Ouqiang(served, served.client(port))
        try:
            for path in ("nothing", "push/", "Push", "", "v1/info"):
                for method in ("POST", "GET", "PUT"):
                    answer = await alone.raw(path, b"{}", method)
                    assert (answer.status, answer.body) == (404, b"404 page not found\n"), (method, path)
            assert await alone.said("get", b'{"id":"x"}') == DONE
        finally:
            await served.stop()


async def test_case_027_a_second_push_moves_the_job_and_it_is_delivered_once(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    await q.push(topic, id, 3, body="A")
    before_ms = await q.push(topic, id, 6, body="B")
    assert await q.counts(topic) == {**NOWHERE, "scheduled": 1}
    assert await q.pop(topic) == (id, "B")
    assert now_ms() >= before_ms + 6000, "delivered at the old time"
    assert await q.counts(topic) == {**NOWHERE, "leased": 1}
    await q.finish(id)
    assert await q.counts(topic) == NOWHERE


async def test_case_029_a_second_push_moves_the_job_to_another_topic(ouqiang: Ouqiang) -> None:
    q, a, b, id = ouqiang.another(), ouqiang.topic(), ouqiang.topic(), ouqiang.id()
    await q.push(a, id, 1, body="in a")
    await q.push(b, id, 1, body="in b")
    assert (await q.get(id))["topic"] == b
    assert (await q.counts(a), await q.counts(b)) == (NOWHERE, {**NOWHERE, "scheduled": 1})
    assert await q.pop(f"{a},{b}") == (id, "in b")
    assert await q.pop(a) is None


async def test_case_030_a_finish_after_a_push_of_the_same_id_removes_the_new_job(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    await q.push(topic, id)
    assert await q.pop(topic) == (id, "x")
    await q.push(topic, id, 10, body="next")
    assert await q.counts(topic) == {**NOWHERE, "scheduled": 1}
    await q.finish(id)
    assert (await q.get(id), await q.counts(topic)) == (None, NOWHERE)


async def test_case_031_any_text_comes_back_the_same(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    text = '<a href="x">订单 & 支付</a> \u2028 \U0001f600 \\ \u0000 \u001f end'
    await q.push(topic, id, body=text)
    answer = await q.raw("pop", json.dumps({"topic": topic}).encode())
    assert answer.json()["data"] == {"id": id, "body": text}
    assert not set(b"<>&") & set(answer.body)
    assert "\u2028" not in answer.body.decode()
    assert (await q.get(id))["body"] == text


async def test_case_033_the_types_are_those_that_strict_clients_want(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    job = {"topic": topic, "id": id, "delay": 1, "ttr": 5, "body": ""}
    for path, fields, data in (
        ("push", job, type(None)),
        ("get", {"id": id}, dict),
        ("pop", {"topic": topic}, dict),
        ("finish", {"id": id}, type(None)),
        ("get", {"id": id}, type(None)),
        ("get", {}, type(None)),
    ):
        answer = await q.raw(path, json.dumps(fields).encode())
        found = answer.json()
        assert answer.status == 200
        assert list(found) == ["code", "message", "data"]
        assert (type(found["code"]), type(found["message"]), type(found["data"])) == (int, str, data)
        assert answer.headers["content-type"] == "application/json; charset=utf-8"


async def test_case_034_a_restart_loses_neither_a_waiting_nor_a_reserved_job(ouqiang: Ouqiang) -> None:
    async def restart(served: RunningServer, kill: bool) -> Ouqiang:
        if kill:
            await served.server.kill_group()
        else:
            await served.server.stop()
        await served.server.start()
        return Ouqiang(served)

    async def life(served: RunningServer, kill: bool) -> None:
        q, topic, id = Ouqiang(served), served.topic(), "one"
        before_ms = await q.push(topic, id, 3, 3, BODY)
        q = await restart(served, kill)
        assert await q.pop(topic) == (id, BODY)
        assert now_ms() >= before_ms + 3000
        leased = await q.job(topic, id)
        assert leased is not None
        q = await restart(served, kill)
        assert await q.pop(topic) == (id, BODY)
        assert now_ms() >= leased["lease_until_ms"]
        await q.finish(id)
        assert await q.counts(topic) == NOWHERE

    async def served(folder: Path, kill: bool) -> None:
        one = await serve(folder, OPTIONS)
        try:
            await life(one, kill)
        finally:
            await one.stop()

    with tempfile.TemporaryDirectory() as stopped, tempfile.TemporaryDirectory() as killed:
        await asyncio.gather(served(Path(stopped), False), served(Path(killed), True))


async def test_case_035_the_ladder_of_seven_waits(ouqiang: Ouqiang) -> None:
    q, topic = ouqiang.another(), ouqiang.topic()
    ladder = [0, 0, 120, 600, 600, 3600, 7200, 21600, 54000]  # in the body; the first notification goes another way
    attempt, pushed = 1, 0
    while (attempt := attempt + 1) < len(ladder):
        id = q.id()
        body = json.dumps({"ladder": ladder, "attempt": attempt})
        before_s = await q.push(topic, id, ladder[attempt], 60, body) // 1000
        shown = await q.get(id)
        assert shown["delay"] >= before_s + ladder[attempt]
        assert json.loads(shown["body"])["attempt"] == attempt
        pushed += 1
    assert (attempt, pushed) == (9, 7)
    assert await q.counts(topic) == {**NOWHERE, "scheduled": 7}
