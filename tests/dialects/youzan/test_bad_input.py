"""Bad input of every kind in every field: success false with a stable text, HTTP 200, nothing stored, and what the
document leaves open as we decided it."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from ..kit import NOWHERE, now_ms, serve
from .kit import NOTHING, Youzan, done, refused

NOT_AN_OBJECT = (
    b"", b" ", b"null", b"{", b"[]", b'"add"', b"1", b"true", b"NaN", b"{} x", b"{}{}", b"{'command':'pop'}",
    "{‘command’:’pop’, ’topic’:’xxx’}".encode(), b'{"command":"pop",}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":01}',
    b'{"a":"\n"}', b"\xff", b'{"a":"\xff"}', b"\xef\xbb\xbf{}", b"command=pop&topic=a", b"{" * 100_000, b"[" * 100_000,
    b'{"command":"add","topic":"t","id":"i","delay":0,"body":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
)  # fmt: skip
NO_NAME = (True, False, [], ["x"], {}, "", " ", "\t\n", None)
NO_NUMBER = (
    "",
    "x",
    ".",
    "1e",
    "e3",
    "1.",
    "1e1.5",
    "0x10",
    "1_000",
    "Infinity",
    "NaN",
    "--1",
    "1 2",
    True,
    False,
    [],
    {},
    [1],
)


async def test_what_is_no_object_is_invalid_json(youzan: Youzan) -> None:
    q = youzan.another()
    for body in NOT_AN_OBJECT:
        assert await q.said(body) == refused("invalid json"), body[:40]


async def test_names_must_be_texts_with_something_in_them(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    for wrong in NO_NAME:
        assert await q.ask(command="add", topic=wrong, id=id, delay=0, TTR=1) == refused("topic required", id)
        assert await q.ask(command="add", topic=topic, id=wrong, delay=0, TTR=1) == refused("id required")
        assert await q.ask(command="pop", topic=wrong) == refused("topic required")
        assert await q.ask(command="finish", id=wrong) == refused("id required")
        assert await q.ask(command="delete", id=wrong) == refused("id required")
    assert await q.counts(topic) == NOWHERE


async def test_times_must_be_numbers_in_range(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    for wrong in (*NO_NUMBER, -1, "-1", -0.001, -0.0001, "-1e-9", "-.1", -1e-300, None):
        assert await q.ask(command="add", topic=topic, id=id, delay=wrong, TTR=60) == refused("delay invalid", id)
    assert await q.ask(command="add", topic=topic, id=id, TTR=60) == refused("delay invalid", id)
    for wrong in (*NO_NUMBER, 0, 0.999, -1, "0", 7 * 86400 + 1, 1e300):
        assert await q.ask(command="add", topic=topic, id=id, delay=0, TTR=wrong) == refused("ttr invalid", id)
    for wrong in NO_NUMBER:
        assert await q.ask(command="pop", topic=topic, timeout=wrong) == refused("timeout invalid")
    assert (await q.counts(topic), await q.pop(topic)) == (NOWHERE, None)


async def test_numbers_may_be_texts_or_have_a_fraction_which_is_never_early(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    numbers: tuple[tuple[Any, Any, int, int], ...] = (
        ("60", " 2 ", 60_000, 2_000),
        (0.0001, 1.5, 1, 1_500),
        (0.1, "1.0", 100, 1_000),
        (1e2, 604800, 100_000, 604_800_000),
        ("+5", None, 5_000, 60_000),
        ("1e3", ".5e1", 1_000_000, 5_000),
        (".5", "1E+1", 500, 10_000),
    )
    for delay, ttr, delay_ms, ttr_ms in numbers:
        assert await q.ask(command="add", topic=topic, id=id, delay=delay, TTR=ttr, body="") == done(id)
        job = await q.job(topic, id)
        assert job is not None
        assert (job["due_at_ms"] - job["updated_at_ms"], job["lease_ms"]) == (delay_ms, ttr_ms)
    for far in (b"1e400", b"9" * 5000, b"1e12"):
        body = b'{"command":"add","topic":"%b","id":"%b","delay":%b}' % (topic.encode(), id.encode(), far)
        assert await q.said(body) == done(id)
        assert (await q.job(topic, id) or {})["due_at_ms"] == 253_402_300_799_999
    await q.finish(id)


async def test_a_body_is_kept_as_it_is_or_as_compact_json_with_its_numbers_digit_for_digit(youzan: Youzan) -> None:
    q, topic = youzan.another(), youzan.topic()
    bodies = (
        (b'" a <b>&\\u0000\\ud83d\\ude00 "', " a <b>&\0\U0001f600 "),
        (b'"\\ud83d"', "\ufffd"),
        (b"null", ""),
        (b'{ "b" : [1.0, 1e400, -0, 12345678901234567890123], "a": "\\u00e9/\\/" , "b2": {} }',
         '{"b":[1.0,1e400,-0,12345678901234567890123],"a":"é//","b2":{}}'),
        (b'{"a":1,"a":2}', '{"a":2}'),
        (b"[ ]", "[]"),
        (b"[true, false ,null]", "[true,false,null]"),
        (b"5", "5"),
        (b"true", "true"),
    )  # fmt: skip
    for raw, value in bodies:
        id = q.id()
        request = b'{"command":"add","topic":"%b","id":"%b","delay":0,"body":%b}' % (topic.encode(), id.encode(), raw)
        assert await q.said(request) == done(id)
        assert await q.pop(topic) == (id, value)
    id = q.id()
    assert await q.ask(command="add", topic=topic, id=id, delay=0) == done(id)
    assert await q.pop(topic) == (id, "")


async def test_names_are_trimmed_and_of_a_key_that_comes_twice_the_last_counts(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    request = b'{"command":"pop","COMMAND":"add","topic":"\\t%b ","id":" %b","delay":9,"Delay":0,"delay":null}'
    assert await q.said(request % (topic.encode(), id.encode())) == done(id)
    assert await q.pop(f" {topic}\n") == (id, "")
    await q.ask(command="finish", id=f" {id}")
    assert await q.counts(topic) == NOWHERE


async def test_put_and_push_are_other_words_for_add(youzan: Youzan) -> None:
    q, topic = youzan.another(), youzan.topic()
    for word in ("put", "push"):
        id = q.id()
        assert await q.ask(command=word, topic=topic, id=id, delay=0, TTR=60, body=word) == done(id)
        assert await q.pop(topic) == (id, word)


async def test_names_that_we_cannot_hold_are_refused_by_add_and_unknown_to_the_rest(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    for bad in ("a\u0000b", "a\nb", "x" * 513, "订" * 171):
        for name in ("topic", "id"):
            job = {"topic": topic, "id": id, "delay": 0, name: bad}
            found = await q.ask(command="add", **job)
            assert found == refused(found["error"], job["id"])
            assert found["error"].startswith(f"{name}: ")
        assert await q.ask(command="finish", id=bad) == done(bad)
        assert await q.ask(command="delete", id=bad) == done(bad)
        assert await q.ask(command="pop", topic=bad) == NOTHING
    assert await q.counts(topic) == NOWHERE


async def test_a_request_that_is_too_large_is_refused(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    job = {"command": "add", "topic": topic, "id": id, "delay": 0, "body": "x" * (5 << 20)}
    assert await q.said(json.dumps(job).encode()) == refused("body too large")
    q = q.another()
    assert await q.counts(topic) == NOWHERE
    await q.add(topic, id, body="x" * (3 << 20))
    assert len((await q.pop(topic) or ("", ""))[1]) == 3 << 20


async def test_both_paths_take_commands_with_any_verb(youzan: Youzan) -> None:
    q, topic = youzan.another(), youzan.topic()
    for path in ("/", "/delay-queue"):
        q.path = path
        for verb in ("POST", "GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
            id = q.id()
            job = {"command": "add", "topic": topic, "id": id, "delay": 0, "body": verb}
            assert await q.said(json.dumps(job).encode(), verb) == done(id), (verb, path)
            assert await q.pop(topic) == (id, verb)
            if (verb, path) != ("GET", "/"):  # a GET without a body is for the server itself
                assert await q.said(b"", verb) == refused("invalid json"), (verb, path)


async def test_a_pop_with_a_timeout_waits_and_one_without_never_does(youzan: Youzan) -> None:
    q, other, topic, id = youzan.another(), youzan.another(), youzan.topic(), youzan.id()
    before_ms = now_ms()
    assert await q.ask(command="pop", topic=topic, timeout=0.7) == NOTHING
    assert now_ms() >= before_ms + 700
    assert await q.ask(command="pop", topic=topic, timeout=-5) == NOTHING
    waiting = asyncio.create_task(q.pop(topic, 600))
    await other.add(topic, id)
    assert await waiting == (id, "x")


async def test_a_wrong_request_leaves_the_connection_usable(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    first = await q.client.raw(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\n{" * 100)
    assert first.json() == refused("invalid json")
    for _ in range(99):
        assert (await q.client.raw(b"")).json() == refused("invalid json")
    await q.add(topic, id)
    assert await q.pop(topic) == (id, "x")


async def test_the_options_are_a_time_to_run_and_what_an_empty_pop_is(youzan: Youzan) -> None:
    env = {"DUELINE_DIALECTS__YOUZAN__TTR_MS": "5000", "DUELINE_DIALECTS__YOUZAN__EMPTY_POP_SUCCESS": "false"}
    with tempfile.TemporaryDirectory() as folder:
        served = await serve(Path(folder), env)
        try:
            q = Youzan(served)
            assert await q.ask(command="pop", topic="t") == refused("no job ready")
            assert await q.ask(command="add", topic="t", id="i", delay=0) == done("i")
            assert (await q.job("t", "i") or {})["lease_ms"] == 5000
        finally:
            await served.stop()
