"""Bad input of every kind in every field: the original's answer, HTTP 200, nothing stored, the connection goes on."""

from __future__ import annotations

import asyncio
import json
import socket
import tempfile
from pathlib import Path
from typing import Any

from tools.faults.server_process import ServerProcess

from ...kit.valkey import PrivateValkey
from ..kit import NOWHERE, RunningServer, after, now_ms
from .kit import ADDED, DONE, Ouqiang, refused

UNREADABLE = refused("解析json失败")
DELAY, TTR = refused("delay 取值范围1 - (2^31 - 1)"), refused("ttr 取值范围1 - 86400")

NOT_AN_OBJECT = (
    b"", b" ", b"nul", b"{", b"}", b"[]", b"[{}]", b'"text"', b"1", b"1.5", b"true", b"NaN", b"Infinity", b"{}{}",
    b"{} x", b"null null",
    b"{'id':'x'}", b"{id:'x'}", b'{"id":"x",}', b'{"id"}', b'{"id":}', b'{"id":"x"', b'{"id":"\n"}',
    b'{"id":"\\x"}', b'{"id":"\\u12"}', b'{"id":01}', b'{"id":+1}', b'{"id":.5}', b'{"id":NaN}', b'{"id":-Infinity}',
    b"\xef\xbb\xbf{}", b"\xff{}", b"\x00", b"topic=a&id=b", b"<xml/>", b"{" * 100_000, b"[" * 100_000,
)  # fmt: skip
NO_TEXT = (1, 0, -1, 1.5, True, False, [], ["x"], {}, {"a": 1}, 1e300)
NO_WHOLE = ("", "1", "x", 1.5, 3600.0, True, False, [], {}, [1])
NO_WHOLE_RAW = (b"1e3", b"1E0", b"1.0", b"-0.0", b"9223372036854775808", b"-9223372036854775809", b"9" * 5000, b"1e999")


async def test_what_is_no_object_is_a_parse_failure_on_every_path(ouqiang: Ouqiang) -> None:
    q = ouqiang.another()
    for path in ("push", "pop", "finish", "delete", "get"):
        for body in NOT_AN_OBJECT:
            assert await q.said(path, body) == UNREADABLE, (path, body[:30])


async def test_null_is_an_object_without_fields(ouqiang: Ouqiang) -> None:
    q = ouqiang.another()
    assert await q.said("push", b" null\r\n") == refused("job id不能为空")
    assert await q.said("pop", b"null") == refused("topic不能为空")
    for path in ("finish", "delete", "get"):
        assert await q.said(path, b"null") == refused("job id不能为空")


async def test_a_field_of_another_type_is_a_parse_failure_whatever_else_is_wrong(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    job: dict[str, Any] = {"topic": topic, "id": id, "delay": 1, "ttr": 1, "body": ""}
    for name, values in (
        ("topic", NO_TEXT),
        ("id", NO_TEXT),
        ("body", NO_TEXT),
        ("delay", NO_WHOLE),
        ("ttr", NO_WHOLE),
    ):
        for value in values:
            assert await q.ask("push", **{**job, name: value}) == UNREADABLE, (name, value)
            assert await q.ask("push", **{name: value}) == UNREADABLE
    for name in ("delay", "ttr"):
        for number in NO_WHOLE_RAW:
            body = json.dumps({**job, name: "HERE"}).encode().replace(b'"HERE"', number)
            assert await q.said("push", body) == UNREADABLE, (name, number[:30])
    for value in NO_TEXT:
        assert await q.ask("pop", topic=value) == UNREADABLE
        for path in ("finish", "delete", "get"):
            assert await q.ask(path, id=value) == UNREADABLE
    assert (await q.get(id), await q.counts(topic)) == (None, NOWHERE)


async def test_numbers_out_of_range_have_their_texts_and_delay_is_checked_before_ttr(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    for delay in (0, -1, 2147483649, 9223372036854775807, -9223372036854775808, None):
        assert await q.ask("push", topic=topic, id=id, delay=delay, ttr=0, body="") == DELAY
    for ttr in (0, -1, 86401, 9223372036854775807, None):
        assert await q.ask("push", topic=topic, id=id, delay=1, ttr=ttr, body="") == TTR
    assert await q.ask("push", topic=topic, id=id, delay=1) == TTR
    assert await q.counts(topic) == NOWHERE
    for ttr in (1, 86400):
        assert await q.ask("push", topic=topic, id=id, delay=3600, ttr=ttr) == ADDED
    assert (await q.get(id))["body"] == ""


async def test_of_a_key_that_comes_twice_the_last_counts_but_each_is_judged(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    rest = b',"id":"%b","delay":3600,"ttr":1,"body":"b"' % id.encode()
    assert await q.said("push", b'{"topic":"a","TOPIC":"%b","Topic":null%b}' % (topic.encode(), rest)) == ADDED
    assert (await q.get(id))["topic"] == topic
    assert await q.said("push", b'{"topic":1,"topic":"elsewhere"%b}' % rest) == UNREADABLE
    assert (await q.get(id))["topic"] == topic


async def test_fields_of_other_calls_are_not_looked_at(ouqiang: Ouqiang) -> None:
    q = ouqiang.another()
    assert await q.ask("get", id="nobody", topic=1, delay="x", body={}) == DONE
    assert await q.ask("finish", id="nobody", ttr=[]) == DONE
    huge = b'{"id":"nobody","other":%b,"more":{"id":1},"deep":%b}' % (b"9" * 5000, b"[" * 500 + b"]" * 500)
    assert await q.said("delete", huge) == DONE


async def test_bytes_that_are_no_text_become_replacement_characters(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    job = b'{"topic":"%b","id":"%b","delay":3600,"ttr":1,"body":"%b"}'
    for raw, text in (
        (b"a\xffb", "a\ufffdb"),
        (b"\xe4\xb8", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\\ud83d", "\ufffd"),
        (b"\\ud83dA\\ude00", "\ufffdA\ufffd"),
        (b"\\ud83d\\ude00", "\U0001f600"),
    ):
        assert await q.said("push", job % (topic.encode(), id.encode(), raw)) == ADDED
        assert (await q.get(id))["body"] == text
    name = q.id()
    assert await q.said("push", job % (topic.encode(), name.encode() + b"\xff", b"")) == ADDED
    assert (await q.get(name + "\ufffd"))["id"] == name + "\ufffd"


async def test_names_that_we_cannot_hold_are_refused_by_push_and_unknown_to_the_rest(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    for bad in ("a\u0000b", "a\nb", "\u007fx", "x" * 513, "订" * 171):
        for name in ("id", "topic"):
            job = {"topic": topic, "id": id, "delay": 1, "ttr": 1, "body": "", name: bad}
            found = await q.ask("push", **job)
            assert found == refused(found["message"])
            assert found["message"].startswith(f"{name}: ")
        for path in ("get", "finish", "delete"):
            assert await q.ask(path, id=bad) == DONE
    assert (await q.get(id), await q.counts(topic)) == (None, NOWHERE)


async def test_names_at_the_limit_and_of_any_letters_are_stored(ouqiang: Ouqiang) -> None:
    q = ouqiang.another()
    names = ("x" * 510, "订" * 170, "a b/c?d#e%20", '"\\', "../..", "dq_bucket_1", "{tag}", "\ufeff?", "🙂")
    for name in names:
        topic, id = f"{name}1", f"{name}2"
        await q.push(topic, id, 3600, 1, name)
        shown = await q.get(id)
        assert shown == {"topic": topic, "id": id, "delay": shown["delay"], "ttr": 1, "body": name.strip()}
        await q.finish(id)
        assert await q.get(id) is None


async def test_a_comma_in_a_topic_can_be_pushed_and_never_popped(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    await q.push(f"{topic},b", id)
    assert (await q.get(id))["topic"] == f"{topic},b"
    assert await q.pop(f"{topic},b") is None
    await q.finish(id)


async def test_more_topics_than_a_pull_can_have_are_refused_but_not_so_fast_that_a_worker_spins(
    ouqiang: Ouqiang,
) -> None:
    q, before_ms = ouqiang.another(), now_ms()
    found = await q.ask("pop", topic=",".join(f"t{n}" for n in range(101)))
    assert found == refused(found["message"])
    assert "100" in found["message"]
    assert now_ms() >= before_ms + 900


async def test_repeated_and_empty_names_in_a_pop_do_no_harm(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    await q.push(topic, id)
    assert await q.pop(f",{topic},,{topic}, ,") == (id, "x")


async def test_a_request_that_is_too_large_is_refused_and_nothing_is_stored(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    job = {"topic": topic, "id": id, "delay": 3600, "ttr": 1, "body": "x" * (5 << 20)}
    assert await q.said("push", json.dumps(job).encode()) == refused("读取request body失败")
    q = q.another()
    assert await q.get(id) is None
    await q.push(topic, id, 3600, 1, "x" * (3 << 20))  # the original has no limit below that of a request
    assert len((await q.get(id))["body"]) == 3 << 20
    await q.finish(id)


async def test_a_hundred_wrong_requests_in_one_packet_leave_the_connection_usable(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    wrong = b"POST /push HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\n{"
    first = await q.client.raw(wrong * 100)
    assert first.json() == UNREADABLE
    for _ in range(99):
        assert (await q.client.raw(b"")).json() == UNREADABLE
    await q.push(topic, id, 3600)
    assert (await q.get(id))["id"] == id


async def test_a_client_that_leaves_while_it_is_held_is_forgotten(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    gone = ouqiang.another()
    polling = asyncio.create_task(gone.pop(topic))
    assert await asyncio.wait([polling], timeout=0.5) == (set(), {polling})
    gone.client.close()
    await asyncio.gather(polling, return_exceptions=True)
    await q.push(topic, id, 1, 86400)
    assert await q.pop(topic) == (id, "x"), "leased to a client that is gone"


async def test_a_job_whose_answer_broke_off_is_given_to_the_next_and_keeps_its_due_time(ouqiang: Ouqiang) -> None:
    q, topic, id = ouqiang.another(), ouqiang.topic(), ouqiang.id()
    await q.push(topic, id, 1, 3600, "x" * (3 << 20))
    answer = await q.get(id)
    with socket.socket() as half:
        half.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 4096
        )  # the answer is not written as long as it is not read
        half.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(half, ("127.0.0.1", q.served.server.port))
        body = json.dumps({"topic": topic}).encode()
        head = b"POST /pop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        await loop.sock_sendall(half, head + body)
        assert await loop.sock_recv(half, 8) == b"HTTP/1.1"
        # Until its due time cannot be taken for the moment of the break.
        await after((answer["delay"] + 2) * 1000)
    assert (await q.pop(topic) or ("", ""))[0] == id
    assert await q.get(id) == answer
    await q.finish(id)


async def test_a_store_that_refuses_connections_is_reported_by_every_operation(ouqiang: Ouqiang) -> None:
    asked = {
        "push": {"topic": "t", "id": "1", "delay": 60, "ttr": 5, "body": ""},
        "get": {"id": "1"},
        "finish": {"id": "1"},
        "delete": {"id": "1"},
        "pop": {"topic": "t"},
    }
    with tempfile.TemporaryDirectory() as data, PrivateValkey() as store:
        served = RunningServer(ServerProcess(Path(data), store_url=store.url))
        await served.server.start()
        q = Ouqiang(served, served.client())
        try:
            assert await q.said("push", json.dumps(asked["push"]).encode()) == ADDED
            store.stop()
            for path, fields in asked.items():  # a pop too, although it would wait for 178 s
                answer = await q.said(path, json.dumps(fields).encode())
                assert (answer["code"], answer["data"]) == (1, None), path
                assert "cannot reach the store" in answer["message"], path
        finally:
            await served.stop()
