"""Bad input of every kind in every field: a 4xx that names the field, nothing stored; and what Jackson would take."""

from __future__ import annotations

import json
from typing import Any

from ..kit import NOWHERE, now_ms
from .kit import JSON, Spring, refused

NOT_JSON = (
    b"", b" ", b"{", b"{}x", b"{} {}", b"{'taskId':'1'}", b'{"taskId":"1",}', b'{"taskId":NaN}', b'{"delayTime":01}',
    b'{"taskId":"\n"}', b"\xff", b'{"taskId":"\xff"}', b"taskId=1&taskType=t", b"{" * 100_000, b"[" * 100_000,
    b'{"a":' * 100_000,
)  # fmt: skip
NO_OBJECT = (b"null", b"[]", b'"text"', b"1", b"true", b'[["taskId","1"],["taskType","t"]]')
NO_TEXT = ([], {}, ["1"], {"a": 1})
NO_TIME = ("x", "1.5", "1e3", "0x10", "1 2", "--1", True, False, [], {}, [1], 1e30, 1 << 63, -(1 << 63) - 1, "9" * 20)
NO_TYPE = (
    None,
    "",
    "text/plain",
    "application/xml",
    "application/x-www-form-urlencoded",
    "*/*",
    "json",
    "application/",
)


def far(**job: Any) -> bytes:
    return json.dumps({"delayTime": now_ms() + 3_600_000, **job}).encode()


async def test_what_is_no_json_object_is_refused(spring: Spring) -> None:
    q = spring.another()
    for bodies, message in (
        (NOT_JSON, "The body is not JSON in UTF-8."),
        (NO_OBJECT, "The body is not a JSON object."),
    ):
        for body in bodies:
            answer = await q.raw(body)
            assert (answer.status, answer.json()) == (400, refused(400, "Bad Request", message)), body[:40]


async def test_an_id_and_a_type_must_be_there(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    for job, message in (
        ({}, "taskId: 任务id不能为空"),
        ({"taskId": None, "taskType": "t"}, "taskId: 任务id不能为空"),
        ({"TASKID": "1", "taskType": "t"}, "taskId: 任务id不能为空"),
        ({"taskId": "1"}, "taskType: 任务类型不能为空"),
        ({"taskId": "1", "taskType": None}, "taskType: 任务类型不能为空"),
    ):
        answer = await q.raw(far(appName=name, **job))
        assert (answer.status, answer.json()) == (400, refused(400, "Bad Request", message)), job
    assert await q.counts(f"{name}-t") == NOWHERE


async def test_texts_are_texts_and_a_time_is_a_long(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    good = {"taskId": "1", "taskType": "t", "appName": name}
    for field in ("taskId", "taskType", "params", "appName"):
        for wrong in NO_TEXT:
            answer = await q.raw(far(**{**good, field: wrong}))
            assert (answer.status, answer.json()["message"]) == (400, f"{field}: is not a string")
    for wrong in NO_TIME:
        answer = await q.raw(json.dumps({**good, "delayTime": wrong}).encode())
        assert (answer.status, answer.json()["message"].split(":")[0]) == (400, "delayTime"), wrong
    assert await q.counts(f"{name}-t") == NOWHERE


async def test_names_that_we_cannot_hold_are_refused_by_the_names_of_their_fields(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    good = {"taskId": "1", "taskType": "t", "appName": name}
    for field, wrong, why in (
        ("taskId", "x" * 513, "must have 1 to 512 bytes, has 513"),
        ("taskId", "~" + "x" * 511 + "y", "must have 1 to 512 bytes, has 514"),
        ("taskId", "a\nb", "has a control character"),
        ("taskType", "\x00", "has a control character"),
        ("appName", "a\tb", "has a control character"),
        ("appName", "名" * 171, "must have 1 to 512 bytes, has 513"),
        ("taskId", "\ud800", "has an unpaired surrogate, which UTF-8 cannot encode"),
        ("params", "\udfff", "has an unpaired surrogate, which UTF-8 cannot encode"),
    ):
        answer = await q.raw(far(**{**good, field: wrong}))
        assert (answer.status, answer.json()["message"]) == (400, f"{field}: {why}"), (field, wrong[:20])
    answer = await q.raw(far(taskId="1", taskType="t" * 300, appName="a" * 300))
    assert (answer.status, answer.json()["message"]) == (
        400,
        "taskType: appName and taskType together make an invalid topic name: must have 1 to 512 bytes, has 601",
    )
    answer = await q.raw(far(taskId="1", taskType="t-" * 150, appName="a" * 208))  # 509 bytes, and "~208" at its end
    assert (answer.status, answer.json()["message"]) == (
        400,
        "taskType: appName and taskType together make an invalid topic name: must have 1 to 512 bytes, has 513",
    )
    assert await q.counts(f"{name}-t") == NOWHERE


async def test_only_json_is_taken(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    body = far(taskId=q.id(), taskType="t", appName=name)
    for kind in NO_TYPE:
        answer = await q.raw(body, {} if kind is None else {"Content-Type": kind})
        assert (answer.status, answer.json()["error"]) == (415, "Unsupported Media Type"), kind
    answer = await q.raw(body, {"Content-Type": "application/json;charset=GBK"})
    assert (answer.status, answer.json()["message"]) == (415, "Charset 'GBK' not supported: send UTF-8")
    assert await q.counts(f"{name}-t") == NOWHERE
    for kind in (JSON, "application/json", "Application/JSON; charset=utf-8", "application/vnd.a+json"):
        assert (await q.raw(body, {"Content-Type": kind})).status == 200, kind
    assert await q.counts(f"{name}-t") == {**NOWHERE, "scheduled": 1}


async def test_a_body_that_is_too_large_is_refused_and_stores_nothing(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    answer = await q.raw(far(taskId="1", taskType="t", appName=name, params="x" * (4 << 20)))
    assert (answer.status, answer.json()["error"]) == (413, "Payload Too Large"), answer
    assert await q.another().counts(f"{name}-t") == NOWHERE


async def test_other_verbs_and_paths(spring: Spring) -> None:
    q = spring.another()
    for method, path, allowed in (("PUT", "/job/add", "POST"), ("POST", "/task/type/list", "GET, HEAD")):
        answer = await q.client.ask(method, path, b"{}")
        assert (answer.status, answer.headers["allow"], answer.json()["path"]) == (405, allowed, path)


async def test_scalars_are_texts_and_fractions_of_a_time_are_cut_off_as_jackson_does(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    app = await q.app(name, "7")
    for id, time, params in ((11, 5.9, 1.50), (True, "", False), ("x", " 17 ", None), ("y", -1.5, "p"), ("z", 1e3, "")):
        await q.add(taskId=id, taskType=7, delayTime=time, params=params, appName=name)
    works = await app.arrived(5)
    assert [(w.job["taskId"], w.job["taskType"], w.job["delayTime"], w.job.get("params")) for w in works] == [
        ("11", "7", 5, "1.5"),
        ("true", "7", 0, "false"),
        ("x", "7", 17, None),
        ("y", "7", -1, "p"),
        ("z", "7", 1000, ""),
    ]


async def test_a_time_beyond_all_times_is_kept_and_shown_as_it_was_written(spring: Spring) -> None:
    q, name = spring.another(), spring.name()
    for time in (1_628_146_026_000_000, (1 << 63) - 1):
        id = q.id()
        await q.add(taskId=id, taskType="t", delayTime=time, appName=name)
        job = await q.job(f"{name}-t", id)
        assert job is not None
        assert (job["state"], job["due_at_ms"], job["headers"]["delay-queue-time"]) == (
            "scheduled",
            253_402_300_799_999,
            str(time),
        )


async def test_texts_of_any_kind_come_back_as_they_were(spring: Spring) -> None:
    q, name, type = spring.another(), spring.name(), "类型 'x' <&> \"y\""
    app = await q.app(name, type)
    params = '{"a":"\u2028\U0001f600\u0000\\"}' + "名" * 1000
    await q.add(taskId="编号 1/2?#%", taskType=type, delayTime=0, params=params, appName=name)
    [work] = await app.arrived()
    assert work.job == {
        "taskId": "编号 1/2?#%",
        "taskType": type,
        "delayTime": 0,
        "params": params,
        "appName": name,
    }
    await q.until(f"{name}-{type}")
