"""The numbered conformance cases of the protocol, as transcripts against a real server: request, answer, state.

The numbers are labels of the protocol's conformance list and have gaps. Times are judged by lower bounds only (never
early; a long poll is really held). What has to come by itself is awaited, not measured.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import quote, urlencode

from tests.kit.waiting import until

from ..kit import after, now_ms
from .conftest import RETAIN_MS
from .kit import BASE, ID, MS, SUCCESS, Camellia, failed, framework_page, ids, refused, shown


async def test_case_001_a_delayed_message_waits_with_the_documented_defaults(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    status, body = await q.post("sendMsg", topic=topic, msg="abc", delayMillis=10000)
    msg = body["delayMsg"]
    assert (status, body) == (
        200,
        {
            "code": 200,
            "msg": "success",
            "delayMsg": {
                "topic": topic,
                "msgId": ID,
                "msg": "abc",
                "produceTime": MS,
                "triggerTime": msg["produceTime"] + 10_000,
                "expireTime": msg["triggerTime"] + 3_600_000,
                "maxRetry": 10,
                "retry": 0,
                "status": 1,
            },
        },
    )
    assert await q.get(topic, msg["msgId"]) == msg
    assert await q.pull(topic) == []


async def test_case_002_no_delay_or_a_negative_one_is_ready_at_once(camellia: Camellia) -> None:
    q = camellia.another()
    for delay in (0, -5):
        topic = q.topic()
        msg = await q.send(topic, delay=delay)
        assert (msg["status"], msg["retry"], msg["triggerTime"]) == (2, 0, msg["produceTime"])
        assert await q.pull(topic) == [{**msg, "status": 3, "retry": 1}]
        assert await q.get(topic, msg["msgId"]) == {**msg, "status": 3, "retry": 1}


async def test_case_003_a_short_delay_is_a_delay(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    msg = await q.send(topic, delay=50)
    assert (msg["status"], msg["triggerTime"]) == (1, msg["produceTime"] + 50)
    assert await q.poll(topic) == [{**msg, "status": 3, "retry": 1}]
    assert now_ms() >= msg["triggerTime"], "delivered early"


async def test_case_005_minus_one_means_the_servers_default_and_zero_retries_are_kept(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()

    async def numbers(**more: int) -> tuple[int, int]:
        msg = await q.send(topic, delay=60_000, **more)
        return msg["expireTime"] - msg["triggerTime"], msg["maxRetry"]

    assert await numbers(ttlMillis=-1, maxRetry=-1) == (3_600_000, 10)
    assert await numbers(ttlMillis=0, maxRetry=0) == (3_600_000, 0)
    assert await numbers(ttlMillis=1234, maxRetry=3) == (1234, 3)


async def test_case_006_a_second_send_of_a_live_id_answers_the_first_message_unchanged(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    first = await q.send(topic, "first", 700, msgId="one", ttlMillis=50_000, maxRetry=4)
    assert await q.send(topic, "second", 0, msgId="one", ttlMillis=1, maxRetry=1) == first
    [leased] = await q.poll(topic)
    assert leased == {**first, "status": 3, "retry": 1}
    assert await q.send(topic, "third", 0, msgId="one") == leased
    assert await q.pull(topic, batch=10) == []
    await q.ack(topic, "one")
    assert await q.empty(topic)


async def test_case_007_one_id_in_two_topics_is_two_messages(camellia: Camellia) -> None:
    q, one, two = camellia.another(), camellia.topic(), camellia.topic()
    await q.send(one, "in one", msgId="same")
    await q.send(two, "in two", msgId="same")
    assert await q.delete(one, "same") == (200, SUCCESS)
    assert (await q.status(one, "same"), await q.status(two, "same")) == (7, 2)
    assert [msg["msg"] for msg in await q.pull(two)] == ["in two"]


async def test_case_009_an_ended_id_can_be_used_again(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    old = await q.send(topic, "old", 60_000, msgId="again")
    await q.delete(topic, "again")
    new = await q.send(topic, "new", 0, msgId="again")
    assert (new["msg"], new["status"], new["retry"]) == ("new", 2, 0)
    assert new["produceTime"] >= old["produceTime"]
    [leased] = await q.pull(topic)
    await q.ack(topic, "again")
    assert (leased["msg"], await q.status(topic, "again")) == ("new", 4)
    assert (await q.send(topic, "newest", 0, msgId="again"))["status"] == 2  # also after an ack
    assert [msg["msg"] for msg in await q.pull(topic)] == ["newest"]


async def test_case_010_an_empty_msg_or_topic_is_code_400(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    assert await q.post("sendMsg", topic=topic, msg="", delayMillis=0) == failed("sendMsg", 400)
    assert await q.post("sendMsg", topic="", msg="abc", delayMillis=0) == failed("sendMsg", 400)
    assert await q.empty(topic)


async def test_case_011_a_missing_or_wrong_parameter_is_the_frameworks_400(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    whole = {"topic": topic, "msg": "abc", "delayMillis": "0"}
    for name in whole:
        assert await q.post("sendMsg", **{k: v for k, v in whole.items() if k != name}) == refused("sendMsg")
    assert await q.post("sendMsg", **{**whole, "delayMillis": "abc"}) == refused("sendMsg")
    assert await q.post("sendMsg", **{**whole, "delayMillis": ""}) == refused("sendMsg")
    assert await q.empty(topic)


async def test_case_013_a_batch_takes_up_to_its_size_and_nothing_twice(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    sent = [(await q.send(topic, str(n)))["msgId"] for n in range(5)]
    pulled = [ids(await q.pull(topic, batch=3)) for _ in range(3)]
    assert [len(some) for some in pulled] == [3, 2, 0]
    assert [id for some in pulled for id in some] == sent, "in the order of sending"


async def test_case_014_without_a_positive_batch_one_message_comes(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    sent = [(await q.send(topic, str(n)))["msgId"] for n in range(3)]
    assert ids(await q.pull(topic, batch=-1)) == [sent[0]]
    assert ids(await q.pull(topic, batch=0)) == [sent[1]]
    assert ids(await q.pull(topic)) == [sent[2]]


async def test_case_015_without_an_ack_a_message_comes_again_after_its_timeout(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    msg = await q.send(topic)
    began_s = time.monotonic()
    assert await q.pull(topic, ackTimeoutMillis=300) == [{**msg, "status": 3, "retry": 1}]
    assert await q.poll(topic) == [{**msg, "status": 3, "retry": 2}]
    assert time.monotonic() - began_s >= 0.3


async def test_case_017_an_ack_without_the_ack_parameter_is_true(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    msg = await q.send(topic)
    await q.pull(topic, ackTimeoutMillis=100)
    assert await q.post("ackMsg", topic=topic, msgId=msg["msgId"]) == (200, SUCCESS)
    assert await q.poll(topic, hold=400) == []
    assert await q.get(topic, msg["msgId"]) == {**msg, "status": 4, "retry": 1}


async def test_case_018_ack_false_gives_the_message_back_at_once(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    msg = await q.send(topic)
    await q.pull(topic)
    assert await q.post("ackMsg", topic=topic, msgId=msg["msgId"], ack="false") == (200, SUCCESS)
    assert await q.get(topic, msg["msgId"]) == {**msg, "status": 2, "retry": 1}
    assert await q.pull(topic) == [{**msg, "status": 3, "retry": 2}]


async def test_case_019_acks_of_unknown_or_ended_messages_succeed(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    for ack in ("true", "false"):
        assert await q.post("ackMsg", topic=topic, msgId="nobody", ack=ack) == (200, SUCCESS)
    msg = await q.send(topic)
    await q.pull(topic)
    for ack in ("true", "true", "false"):
        assert await q.post("ackMsg", topic=topic, msgId=msg["msgId"], ack=ack) == (200, SUCCESS)
    assert await q.status(topic, msg["msgId"]) == 4
    assert await q.pull(topic) == []


async def test_case_021_no_retry_is_one_delivery_and_then_dropped(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    timed_out = await q.send(topic, maxRetry=0)
    assert ids(await q.pull(topic, ackTimeoutMillis=200)) == [timed_out["msgId"]]
    assert await q.poll(topic, hold=600) == []
    assert await q.get(topic, timed_out["msgId"]) == {**timed_out, "status": 6, "retry": 1}
    given_back = await q.send(topic, maxRetry=0)
    await q.pull(topic)
    await q.ack(topic, given_back["msgId"], ack=False)
    assert await q.status(topic, given_back["msgId"]) == 6
    assert await q.pull(topic) == []


async def test_case_022_a_message_that_nobody_pulled_in_time_expires(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    msg = await q.send(topic, ttlMillis=300)
    await after(msg["expireTime"])
    assert await q.pull(topic) == []
    assert await q.get(topic, msg["msgId"]) == {**msg, "status": 5}


async def test_case_023_a_message_that_was_pulled_and_not_acked_in_time_is_dropped(camellia: Camellia) -> None:
    q = camellia.another()
    for timeout in ({"ackTimeoutMillis": 100}, {}):  # the time is over whether or not its consumer still may ack
        topic = q.topic()
        msg = await q.send(topic, ttlMillis=400)
        assert ids(await q.pull(topic, **timeout)) == [msg["msgId"]]
        await after(msg["expireTime"])
        assert await q.get(topic, msg["msgId"]) == {**msg, "status": 6, "retry": 1}
        assert await q.pull(topic) == []


async def test_case_025_a_message_deleted_while_consumed_never_comes_again(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    msg = await q.send(topic)
    await q.pull(topic, ackTimeoutMillis=200)
    assert await q.delete(topic, msg["msgId"]) == (200, SUCCESS)
    assert await q.poll(topic, hold=600) == []
    assert await q.get(topic, msg["msgId"]) == {**msg, "status": 7, "retry": 1}


async def test_case_026_a_released_message_is_gone_and_its_id_free(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    for live in (60_000, 0):
        await q.send(topic, "old", live, msgId="gone")
        assert await q.delete(topic, "gone", release="true") == (200, SUCCESS)
        assert await q.get(topic, "gone") is None
    assert (await q.send(topic, "new", msgId="gone"))["msg"] == "new"
    await q.pull(topic)
    await q.ack(topic, "gone")
    assert await q.delete(topic, "gone", release="true") == failed("deleteMsg", 404)
    assert await q.get(topic, "gone") is None, "an ended message is released too, although the answer is 404"


async def test_case_027_deleting_what_is_not_live_is_code_404(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    unknown = failed("deleteMsg", 404)
    assert await q.delete(topic, "nobody") == unknown
    acked, deleted = await q.send(topic), await q.send(topic, delay=60_000)
    await q.pull(topic)
    await q.ack(topic, acked["msgId"])
    assert await q.delete(topic, acked["msgId"]) == unknown
    assert await q.delete(topic, deleted["msgId"]) == (200, SUCCESS)
    assert await q.delete(topic, deleted["msgId"]) == unknown
    assert await q.delete(topic, acked["msgId"], release="maybe") == refused("deleteMsg")
    assert (await q.status(topic, acked["msgId"]), await q.status(topic, deleted["msgId"])) == (4, 7)


async def test_case_029_an_ended_message_is_readable_for_its_retention(camellia: Camellia) -> None:
    q = camellia.another()
    ended: list[tuple[str, str, int]] = []

    async def end(how: str, **more: Any) -> None:
        topic = q.topic()
        msg = await q.send(topic, **more)
        if how == "deleted":
            await q.delete(topic, msg["msgId"])
            ended.append((topic, msg["msgId"], 7))
        elif how == "acked":
            await q.pull(topic)
            await q.ack(topic, msg["msgId"])
            ended.append((topic, msg["msgId"], 4))
        else:
            ended.append((topic, msg["msgId"], 5))

    await end("expired", ttlMillis=1)
    await end("acked")
    began_ms = now_ms()
    await end("deleted", delay=60_000)
    await after(now_ms())
    assert [await q.status(topic, id) for topic, id, _ in ended] == [status for _, _, status in ended]
    topic, id, _ = ended[-1]
    await until(lambda: q.get(topic, id), lambda found: found is None)
    assert now_ms() - began_ms >= RETAIN_MS
    assert [await q.get(topic, id) for topic, id, _ in ended] == [None, None, None]


async def test_case_030_an_idle_long_poll_is_held_and_answered_with_an_empty_list(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    began_s = time.monotonic()
    answer = await q.raw("longPollingMsg", urlencode({"topic": topic, "longPollingTimeoutMillis": 1000}).encode())
    assert time.monotonic() - began_s >= 0.99
    assert shown(answer) == (200, {"code": 200, "msg": "success", "delayMsgList": []})


async def test_case_031_a_send_wakes_the_long_poll(camellia: Camellia) -> None:
    q, other, topic = camellia.another(), camellia.another(), camellia.topic()
    began_s = time.monotonic()
    polling = asyncio.create_task(q.poll(topic, hold=55_000))
    await other.parked(topic)
    msg = await other.send(topic)
    assert await polling == [{**msg, "status": 3, "retry": 1}]
    assert time.monotonic() - began_s < 40, "it was the poll's own end that answered"


async def test_case_033_a_long_poll_without_a_topic_is_refused_at_once(camellia: Camellia) -> None:
    q = camellia.another()
    began_s = time.monotonic()
    assert await q.post("longPollingMsg", topic="", longPollingTimeoutMillis=50_000) == failed("longPollingMsg", 400)
    assert await q.post("longPollingMsg", longPollingTimeoutMillis=50_000) == refused("longPollingMsg")
    assert time.monotonic() - began_s < 40


async def test_case_034_a_long_poll_that_does_not_say_is_held_for_10_s(camellia: Camellia) -> None:
    async def held_s(**form: Any) -> float:
        q = camellia.another()
        began_s = time.monotonic()
        assert await q.post("longPollingMsg", topic=q.topic(), **form) == (200, {**SUCCESS, "delayMsgList": []})
        return time.monotonic() - began_s

    waits_s = await asyncio.gather(
        held_s(),
        held_s(longPollingTimeoutMillis=-1),
        held_s(longPollingTimeoutMillis=0),
        held_s(longPollingTimeoutMillis=""),
    )
    assert all(9.9 <= seconds < 30 for seconds in waits_s), waits_s


async def test_case_035_topic_info_counts_by_how_soon_messages_are_due(camellia: Camellia) -> None:
    q, topic, unknown = camellia.another(), camellia.topic(), camellia.topic()
    await q.send(topic, delay=30_000)
    await q.send(topic, delay=20 * 60_000)
    bands = ("0To1min", "1minTo10min", "10minTo30min", "30minTo1hour", "1hourTo6hour", "6hourTo1day")
    zeros = {f"sizeOf{band}": 0 for band in (*bands, "1dayTo7day", "7dayTo30day", "30dayToInfinite")}
    info = {
        "topic": topic,
        "waitingQueueSize": 2,
        "waitingQueueInfo": {**zeros, "sizeOf0To1min": 1, "sizeOf10minTo30min": 1},
        "readyQueueSize": 0,
        "ackQueueSize": 0,
    }
    path = BASE + "getTopicInfo"
    assert await q.page(f"{path}?topic={topic}") == (200, {"code": 200, "data": info})
    nothing = {
        "topic": unknown,
        "waitingQueueSize": 0,
        "waitingQueueInfo": zeros,
        "readyQueueSize": 0,
        "ackQueueSize": 0,
    }
    assert await q.page(f"{path}?topic={unknown}") == (200, {"code": 200, "data": nothing})
    assert await q.page(path) == framework_page(400, "Bad Request", path)


async def test_case_037_any_text_comes_back_and_parameters_may_stand_in_the_query(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    text = '延迟队列 & = + % \n\r\t "quoted" \\ \U0001f600 \x00 end'
    msg = await q.send(topic, text)
    assert msg["msg"] == text
    assert [one["msg"] for one in await q.pull(topic)] == [text]
    assert (await q.get(topic, msg["msgId"]) or {})["msg"] == text
    query = f"topic={topic}&msg={quote('查询')}&delayMillis=0&msgId=q"
    status, body = shown(await q.client.ask("POST", f"{BASE}sendMsg?{query}"))
    assert (status, body["delayMsg"]["msg"]) == (200, "查询")
    half = await q.raw("sendMsg", b"msg=body&delayMillis=0", f"topic={topic}&msgId=h")
    assert shown(half)[1]["delayMsg"]["msg"] == "body"
    assert ids(await q.pull(topic, batch=9)) == ["q", "h"]


async def test_case_038_an_ack_after_a_delete_succeeds_and_changes_nothing(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    msg = await q.send(topic)
    await q.pull(topic, ackTimeoutMillis=200)
    await q.delete(topic, msg["msgId"])
    assert await q.post("ackMsg", topic=topic, msgId=msg["msgId"], ack="true") == (200, SUCCESS)
    assert await q.poll(topic, hold=500) == []
    assert await q.status(topic, msg["msgId"]) == 7
