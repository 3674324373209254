"""The numbered conformance cases of the protocol, as transcripts against a real server: request, answer, state.

The numbers are labels of the protocol's conformance list and have gaps. Times are judged by lower bounds only. What has
to come by itself is awaited with the `timeout` of a pop, which is an extension of ours.
"""

from __future__ import annotations

import asyncio
import json
import time

from ..callers import Consumption, YouzanWords, consumed, sent, two_servers
from ..kit import NOWHERE, now_ms
from .kit import NOTHING, Youzan, done, refused

BODY = '{"a":1}'
LONG_S = 20.0


async def test_case_001_an_add_is_answered_with_its_id(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    answer = await q.raw(
        b'{"command":"add","topic":"%b","id":"%b","delay":2,"TTR":3,"body":"{\\"a\\":1}"}'
        % (topic.encode(), id.encode())
    )
    assert answer.body.decode() == f'{{"success":true,"error":"","id":"{id}","value":""}}'
    job = await q.job(topic, id)
    assert job is not None
    assert (job["state"], job["body"], job["lease_ms"], job["max_attempts"]) == ("scheduled", BODY, 3000, None)
    assert job["due_at_ms"] == job["created_at_ms"] + 2000


async def test_case_002_a_pop_that_finds_nothing_says_so_at_once(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    add = {"command": "add", "topic": topic, "id": id, "delay": 2, "TTR": 3, "body": BODY}
    both = b""
    for fields in (add, {"command": "pop", "topic": topic}):  # in one packet, so that no time is between them
        body = json.dumps(fields).encode()
        both += b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    assert (await q.client.raw(both)).json() == done(id)
    assert (await q.client.raw(b"")).json() == NOTHING, "it waited for the job"
    assert await q.ask(command="pop", topic=youzan.topic()) == NOTHING


async def test_case_003_a_due_job_is_popped_with_its_body_as_a_text(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    before_ms = await q.add(topic, id, 2, 3, BODY)
    found = await q.ask(command="pop", topic=topic, timeout=LONG_S)
    assert found == {"success": True, "error": "", "id": id, "value": BODY}
    assert now_ms() >= before_ms + 2000, "delivered early"
    assert await q.counts(topic) == {**NOWHERE, "leased": 1}


async def test_case_005_a_finished_job_is_never_delivered_again(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    await q.add(topic, id, 0, 1)
    assert await q.pop(topic) == (id, "x")
    assert await q.ask(command="finish", id=id) == done(id)
    assert (await q.job(topic, id), await q.counts(topic)) == (None, NOWHERE)
    assert await q.pop(topic, 1.5) is None


async def test_case_006_finish_can_be_repeated_and_does_not_mind_an_unknown_id(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    await q.add(topic, id)
    await q.pop(topic)
    for _ in range(2):
        assert await q.ask(command="finish", id=id) == done(id)
    assert await q.ask(command="finish", id="nobody") == done("nobody")
    assert await q.ask(command="delete", id="nobody") == done("nobody")


async def test_case_007_a_job_that_is_deleted_before_it_is_due_never_comes(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    await q.add(topic, id, 1)
    assert await q.ask(command="delete", id=id) == done(id)
    assert (await q.job(topic, id), await q.counts(topic)) == (None, NOWHERE)
    assert await q.pop(topic, 1.5) is None


async def test_case_009_a_job_that_is_deleted_while_reserved_does_not_come_again(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    await q.add(topic, id, 0, 1)
    assert await q.pop(topic) == (id, "x")
    assert await q.ask(command="delete", id=id) == done(id)
    assert await q.counts(topic) == NOWHERE
    assert await q.pop(topic, 1.5) is None


async def test_case_010_a_second_add_with_a_later_time_moves_the_job(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    await q.add(topic, id, 2, body="A")
    before_ms = await q.add(topic, id, 5, body="B")
    assert await q.counts(topic) == {**NOWHERE, "scheduled": 1}
    assert await q.pop(topic, LONG_S) == (id, "B")
    assert now_ms() >= before_ms + 5000, "delivered at the old time"
    assert await q.counts(topic) == {**NOWHERE, "leased": 1}


async def test_case_011_a_second_add_with_an_earlier_time_is_delivered_once(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    before_ms = await q.add(topic, id, 5, body="A")
    await q.add(topic, id, 1, body="B")
    assert await q.pop(topic, LONG_S) == (id, "B")
    await q.finish(id)
    assert await q.counts(topic) == NOWHERE
    assert await q.pop(topic, 5.2 - (now_ms() - before_ms) / 1000) is None


async def test_case_013_a_pop_gives_only_jobs_of_its_topic(youzan: Youzan) -> None:
    q, one, two = youzan.another(), youzan.topic(), youzan.topic()
    ids = [youzan.id(), youzan.id()]
    await q.add(one, ids[0], body="one")
    await q.add(two, ids[1], body="two")
    assert await q.pop(two) == (ids[1], "two")
    assert await q.pop(two) is None
    assert await q.pop(one) == (ids[0], "one")


async def test_case_014_without_a_finish_a_job_comes_again_and_again(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    await q.add(topic, id, 0, 1)
    leased_until_ms = 0
    for attempt in (1, 2, 3, 4):
        assert await q.pop(topic, LONG_S) == (id, "x")
        assert now_ms() >= leased_until_ms, "delivered during another lease"
        job = await q.job(topic, id)
        assert job is not None
        assert (job["attempts"], job["max_attempts"]) == (attempt, None)
        leased_until_ms = job["lease_until_ms"] or 0  # null if it ended before this test could read it


async def test_case_015_an_unknown_command_is_an_error_with_http_200(youzan: Youzan) -> None:
    q = youzan.another()
    for name in ("reserve", "ADD", "", None, 1, ["add"], " add"):
        assert await q.ask(command=name, id="x") == refused("unknown command", "x")
    assert await q.ask() == refused("unknown command")


async def test_case_017_an_add_needs_id_and_topic(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    assert await q.ask(command="add", topic=topic, delay=0, TTR=1, body="") == refused("id required")
    assert await q.ask(command="add", id=id, delay=0, TTR=1, body="") == refused("topic required", id)
    assert (await q.counts(topic), await q.pop(topic)) == (NOWHERE, None)


async def test_case_018_a_delay_of_zero_is_now(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    await q.add(topic, id, 0)
    assert await q.pop(topic) == (id, "x")


async def test_case_019_keys_match_in_any_case(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    assert await q.ask(command="add", topic=topic, id=id, delay=60, ttr=7, body="") == done(id)
    assert (await q.job(topic, id) or {})["lease_ms"] == 7000
    assert await q.ask(COMMAND="add", Topic=topic, Id=id, DELAY=60, Ttr=8, Body="b") == done(id)
    job = await q.job(topic, id)
    assert job is not None
    assert (job["lease_ms"], job["body"]) == (8000, "b")


async def test_case_021_a_body_that_is_an_object_comes_back_as_compact_text(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    await q.add(topic, id, body={"a": 1})
    assert await q.pop(topic) == (id, '{"a":1}')


async def test_case_022_every_answer_has_four_fields_and_success_is_a_boolean(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    answers = [
        await q.ask(command="add", topic=topic, id=id, delay=0, TTR=60, body="b"),
        await q.ask(command="pop", topic=topic),
        await q.ask(command="pop", topic=topic),
        await q.ask(command="finish", id=id),
        await q.ask(command="delete", id=id),
        await q.ask(command="pop"),
        await q.said(b"{"),
    ]
    assert answers == [
        done(id),
        {"success": True, "error": "", "id": id, "value": "b"},
        NOTHING,
        done(id),
        done(id),
        refused("topic required"),
        refused("invalid json"),
    ]


async def test_case_023_two_servers_on_one_store_deliver_a_thousand_jobs_once_each(youzan: Youzan) -> None:
    ids, seen = [f"one-{number}" for number in range(1000)], Consumption()
    async with two_servers() as servers:
        due_s = time.monotonic() + 5.0  # all together, whenever each was added
        words = YouzanWords(lambda: max(0.0, due_s - time.monotonic()), ttr_s=600)
        consuming = asyncio.create_task(consumed(words, servers, "t", len(ids), seen, 8, ends=False))
        await sent(words, servers, "t", ids, 8)
        await consuming
        assert dict(seen.deliveries) == dict.fromkeys(ids, 1)
        assert await Youzan(servers[0]).counts("t") == {**NOWHERE, "leased": 1000}


async def test_case_025_a_finish_that_comes_late_ends_a_job_that_another_one_holds(youzan: Youzan) -> None:
    q, topic, id = youzan.another(), youzan.topic(), youzan.id()
    await q.add(topic, id, 0, 1)
    first, second = youzan.another(), youzan.another()
    assert await first.pop(topic) == (id, "x")
    assert await second.pop(topic, LONG_S) == (id, "x")
    await first.finish(id)
    assert await q.counts(topic) == NOWHERE
    assert await q.pop(topic, 1.5) is None


async def test_case_026_ten_jobs_of_one_moment_are_ten_pops(youzan: Youzan) -> None:
    q, topic = youzan.another(), youzan.topic()
    ids = [youzan.id() for _ in range(10)]
    due_s = time.monotonic() + 1.0
    for id in ids:
        await q.add(topic, id, max(0.0, due_s - time.monotonic()))
    popped = [await q.pop(topic, LONG_S) for _ in range(10)]
    assert sorted(popped, key=str) == sorted(((id, "x") for id in ids), key=str)
    assert await q.pop(topic) is None


async def test_a_number_is_an_id_and_a_topic_by_its_decimal_text(youzan: Youzan) -> None:
    q = youzan.another()
    for written, text in (
        ("90071992547409931", "90071992547409931"),  # digit for digit, beyond what a double holds
        ("-77001", "-77001"),
        ("77002.0", "77002"),
        ("77.0030", "77.003"),
        ("7.7004e4", "77004"),
        ("77005E-1", "7700.5"),
    ):
        add = f'{{"command":"add","topic":{written},"id":{written},"delay":0,"TTR":60,"body":"b"}}'
        assert await q.said(add.encode()) == done(text), written
        assert await q.pop(text) == (text, "b")
        pop = await q.said(f'{{"command":"pop","topic":{written}}}'.encode())
        assert pop == NOTHING, "it is the same topic, and its job is taken"
        assert await q.said(f'{{"command":"finish","id":{written}}}'.encode()) == done(text)
        assert await q.counts(text) == NOWHERE


async def test_a_number_that_is_too_long_for_a_name_is_refused(youzan: Youzan) -> None:
    q = youzan.another()
    for written in ("1" + "0" * 600, "1e600", "1e-600"):
        found = await q.said(f'{{"command":"add","topic":"t","id":{written},"delay":0}}'.encode())
        assert (found["success"], found["value"]) == (False, None), written[:20]
    assert (await q.said(b'{"command":"finish","id":1e99999999999999999999}'))["success"] is True
