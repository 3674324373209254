"""What the dialect promises beyond the numbered cases: wake-ups, never early, acks without a token, other dialects."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from urllib.parse import urlencode

from prometheus_client.parser import text_string_to_metric_families

from tests.kit.waiting import until

from ..kit import after, now_ms
from .conftest import WINDOW_MS
from .kit import BASE, SUCCESS, Camellia, failed, ids, overdue, shown


async def test_nothing_is_delivered_before_its_trigger_time(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    sent = [await q.send(topic, str(n), delay=300 + 7 * n) for n in range(40)]
    due = {msg["msgId"]: msg["triggerTime"] for msg in sent}
    while due:
        for msg in await q.poll(topic, batch=3):
            assert now_ms() >= due.pop(msg["msgId"]), "early"
            await q.ack(topic, msg["msgId"])


async def test_a_parked_long_poll_is_woken_by_a_due_time(camellia: Camellia) -> None:
    q, other, topic = camellia.another(), camellia.another(), camellia.topic()
    began_s = time.monotonic()
    polling = asyncio.create_task(q.poll(topic, hold=55_000))
    await other.parked(topic)
    msg = await other.send(topic, delay=500)
    assert ids(await polling) == [msg["msgId"]]
    assert time.monotonic() - began_s < 40


async def test_a_parked_long_poll_is_woken_by_ack_false(camellia: Camellia) -> None:
    q, other, topic = camellia.another(), camellia.another(), camellia.topic()
    msg = await other.send(topic)
    await other.pull(topic)
    began_s = time.monotonic()
    polling = asyncio.create_task(q.poll(topic, hold=55_000))
    await other.parked(topic)
    await other.ack(topic, msg["msgId"], ack=False)
    assert await polling == [{**msg, "status": 3, "retry": 2}]
    assert time.monotonic() - began_s < 25, "it was the ack timeout of 30 s that woke it"


async def test_a_parked_long_poll_is_woken_by_an_ack_timeout(camellia: Camellia) -> None:
    q, other, topic = camellia.another(), camellia.another(), camellia.topic()
    msg = await other.send(topic)
    await other.pull(topic, ackTimeoutMillis=700)
    began_s = time.monotonic()
    assert await q.poll(topic, hold=55_000) == [{**msg, "status": 3, "retry": 2}]
    assert time.monotonic() - began_s < 40


async def test_waiters_are_served_in_their_order_and_each_message_goes_to_one(camellia: Camellia) -> None:
    topic, sender = camellia.topic(), camellia.another()
    polls = []
    for n in range(1, 6):
        polls.append(asyncio.create_task(camellia.another().poll(topic)))
        await sender.parked(topic, n)
    sent = [(await sender.send(topic, str(n)))["msgId"] for n in range(5)]
    assert [id for poll in polls for id in ids(await poll)] == sent


async def test_ack_true_ends_a_message_in_every_live_state(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    waiting, ready = await q.send(topic, delay=60_000), await q.send(topic)
    for msg in (waiting, ready):
        await q.ack(topic, msg["msgId"])
        assert await q.get(topic, msg["msgId"]) == {**msg, "status": 4}
    late = await q.send(topic)
    await q.pull(topic, ackTimeoutMillis=1)
    assert ids(await q.poll(topic)) == [late["msgId"]]  # now somebody else holds it
    await q.ack(topic, late["msgId"])
    assert await q.status(topic, late["msgId"]) == 4
    assert await q.empty(topic)


async def test_ack_false_of_what_is_not_being_consumed_changes_nothing(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    waiting = await q.send(topic, delay=60_000)
    await q.ack(topic, waiting["msgId"], ack=False)
    assert await q.get(topic, waiting["msgId"]) == waiting
    await q.ack(topic, "phantom", ack=False)
    assert await q.pull(topic, batch=5) == []
    assert await q.get(topic, "phantom") is None


async def test_a_given_back_message_goes_behind_those_that_are_ready(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    first, second = await q.send(topic, "1"), await q.send(topic, "2")
    await q.pull(topic)
    await after(now_ms())
    await q.ack(topic, first["msgId"], ack=False)
    assert ids(await q.pull(topic, batch=2)) == [second["msgId"], first["msgId"]]


async def test_an_ended_message_is_never_changed_by_a_late_ack(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    msg = await q.send(topic, maxRetry=0)
    await q.pull(topic)
    await q.ack(topic, msg["msgId"], ack=False)
    await q.ack(topic, msg["msgId"])
    assert await q.status(topic, msg["msgId"]) == 6


async def test_a_consumer_may_still_ack_after_the_ttl_while_its_ack_timeout_runs(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    await overdue(q, topic)
    assert await q.status(topic, "one") == 6
    await q.ack(topic, "one")
    assert await q.status(topic, "one") == 4


async def test_ttl_counts_from_the_trigger_time_and_no_retry_moves_it(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    msg = await q.send(topic, delay=400, ttlMillis=5_000)
    for retry in (1, 2, 3):
        assert await q.poll(topic) == [{**msg, "status": 3, "retry": retry}]
        await q.ack(topic, msg["msgId"], ack=False)
    assert await q.get(topic, msg["msgId"]) == {**msg, "status": 2, "retry": 3}


async def test_a_client_that_vanishes_costs_its_message_nothing(camellia: Camellia) -> None:
    topic, gone, q = camellia.topic(), camellia.another(), camellia.another()
    polling = asyncio.create_task(gone.poll(topic))
    await q.parked(topic)
    polling.cancel()
    gone.client.close()
    msg = await q.send(topic)
    assert await q.poll(topic) == [{**msg, "status": 3, "retry": 1}]


async def test_big_texts_up_to_the_forms_limit_are_kept_whole(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    text = "0123456789abcdef" * (100 * 1024)
    msg = await q.send(topic, text)
    [leased] = await q.pull(topic)
    assert (len(text), leased["msg"] == text, msg["msg"] == text) == (1_638_400, True, True)


async def test_a_form_above_2_mib_is_code_400_and_nothing_is_stored(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    form = urlencode({"topic": topic, "delayMillis": 0, "msg": "x" * (2 << 20)}).encode()
    assert shown(await q.raw("sendMsg", form)) == failed("sendMsg", 400)
    assert await camellia.another().empty(topic)


async def test_native_callers_in_its_namespace_share_its_jobs(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    native = {"Content-Type": "application/json", "Dueline-Namespace": "camellia"}
    jobs = [
        {"id": "json", "body": {"a": [1, "é"]}},
        {"id": "bytes", "body_base64": base64.b64encode(b"\0\xff").decode()},
    ]
    answer = await q.client.ask("POST", f"/v1/topics/{topic}/jobs", json.dumps(jobs).encode(), native)
    assert answer.status == 201
    leased = await q.pull(topic, batch=5)
    assert [(msg["msgId"], msg["msg"]) for msg in leased] == [
        ("json", json.dumps(jobs[0]["body"])),
        ("bytes", "AP8="),
    ]
    assert [(msg["maxRetry"], msg["expireTime"] > now_ms()) for msg in leased] == [(19, True), (19, True)]
    await q.ack(topic, "json")
    assert (await q.get(topic, "json") or {})["status"] == 4
    sent = await q.send(topic, "from camellia")
    pulled = await q.client.ask("POST", f"/v1/topics/{topic}/pull", b"{}", native)
    assert [(job["id"], job["body"]) for job in pulled.json()["jobs"]] == [(sent["msgId"], "from camellia")]


async def test_monitor_data_shows_the_last_complete_window(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    await after(now_ms() + WINDOW_MS - now_ms() % WINDOW_MS)  # a fresh window, so that all falls into one
    await q.send(topic, "a", msgId="a", delay=20)
    await q.send(topic, "a again", msgId="a")
    await q.send(topic, "b", msgId="b")
    await q.poll(topic)
    await q.poll(topic)
    await q.ack(topic, "a")
    await q.ack(topic, "b", ack=False)
    await q.poll(topic)
    await q.get(topic, "a")
    await q.get(topic, "nobody")
    await q.delete(topic, "b")
    await q.delete(topic, "b")
    status, page = await of_window(q, topic, "getMonitorData")
    lists = page["data"]
    [stats] = [one for one in lists["requestStatsList"] if one["topic"] == topic]
    [pulls] = [one for one in lists["pullMsgTimeGapStatsList"] if one["topic"] == topic]
    [ready] = [one for one in lists["readyQueueTimeGapStatsList"] if one["topic"] == topic]
    assert (status, sorted(page), page["code"]) == (200, ["code", "data"], 200)
    assert stats == {
        "topic": topic,
        "sendMsg": 3,
        "pullMsg": 3,
        "deleteMsg": 1,
        "ackMsg": 2,
        "getMsg": 1,
        "triggerMsgReady": 1,
        "triggerMsgEndLife": 0,
        "triggerMsgTimeout": 0,
    }
    assert (pulls["count"], pulls["avg"] <= pulls["max"]) == (3, True)
    assert ready == {"topic": topic, "count": 1, "avg": 0.0, "max": 0}


async def of_window(q: Camellia, topic: str, page: str) -> tuple[int, dict[str, object]]:
    """The page, as soon as it tells of this topic."""
    answer = await until(lambda: q.client.ask("GET", BASE + page), lambda answer: topic in answer.body.decode())
    return answer.status, answer.json()


async def test_monitor_string_is_text_with_five_lists(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    await q.send(topic, delay=60_000)
    answer = await q.client.ask("GET", BASE + "getMonitorString")
    page = answer.json()
    assert answer.headers["content-type"] == "text/plain;charset=UTF-8"
    assert sorted(page) == [
        "pullMsgTimeGapStats",
        "readyQueueTimeGapStats",
        "requestStats",
        "topicInfoStats",
        "waitingQueueStats",
    ]
    sizes = {"topic": topic, "waitingQueueSize": 1, "ackQueueSize": 0, "readyQueueSize": 0}
    assert [one for one in page["topicInfoStats"] if one["topic"] == topic] == [sizes]
    [waiting] = [one for one in page["waitingQueueStats"] if one["topic"] == topic]
    assert (waiting["sizeOf0To1min"] + waiting["sizeOf1minTo10min"], len(waiting)) == (1, 10)


async def test_the_list_of_topics_has_every_topic_that_was_sent_to(camellia: Camellia) -> None:
    q, one, two = camellia.another(), camellia.topic(), camellia.topic()
    await q.send(one)
    await q.send(two, delay=3_600_000 * 24 * 31)
    await q.pull(one)
    status, page = await q.page(BASE + "getTopicInfoList")
    found = {info["topic"]: info for info in page["data"]}
    assert (status, page["code"]) == (200, 200)
    assert (found[one], found[two]) == (await q.info(one), await q.info(two))
    assert (found[one]["ackQueueSize"], found[two]["waitingQueueInfo"]["sizeOf30dayToInfinite"]) == (1, 1)


async def test_the_metrics_page_has_the_documented_names_beside_our_own(camellia: Camellia) -> None:
    q, both = camellia.another(), False
    while not both:  # a window may end between the send and its delivery: they are then reported one after the other
        topic = camellia.topic()
        await q.send(topic, delay=1)
        await q.poll(topic)
        await of_window(q, topic, "getMonitorData")
        text = (await q.client.ask("GET", "/metrics")).body.decode()
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        both = all(f'{name}{{topic="{topic}"' in text for name in ("request", "pull_msg_time_gap"))
        both = both and "topic_info{" in text  # sizes are asked for every 5 s, maybe before there was a topic
    names = {line.partition("{")[0].partition(" ")[0] for line in lines}
    documented = {"info", "uptime", "start_time", "memory_info", "cpu", "gc", "request", "pull_msg_time_gap"}
    assert documented | {"ready_queue_time_gap", "topic_info", "dueline_jobs_sent_total"} <= names
    assert not [name for name in names if "internal" in name]
    for name in ("request", "pull_msg_time_gap", "topic_info", "info", "uptime"):
        assert f"# TYPE {name} gauge" in text
    own = {line.partition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if f'topic="{topic}"' in line}
    assert own[f'request{{topic="{topic}",type="sendMsg"}}'] == 1
    assert own[f'pull_msg_time_gap{{topic="{topic}",type="count"}}'] == 1
    for label in ("cpu_num", "usage"):
        assert f'cpu{{type="{label}"}}' in text
    for label in ("free_memory", "total_memory", "max_memory", "heap_memory_usage", "netty_direct_memory"):
        assert f'memory_info{{type="{label}"}}' in text


# What the panels of the original's Grafana dashboard query: the name, and the values of `type`.
DASHBOARD = {
    "uptime": (),
    "start_time": (),
    "info": (),
    "cpu": ("cpu_num", "usage"),
    "memory_info": (
        *("free_memory", "total_memory", "max_memory"),
        *("heap_memory_usage", "no_heap_memory_usage", "netty_direct_memory"),
    ),
    "gc": ("count",),
    "request": (
        *("sendMsg", "ackMsg", "deleteMsg", "getMsg", "pullMsg"),
        *("triggerMsgEndLife", "triggerMsgReady", "triggerMsgTimeout"),
    ),
    "pull_msg_time_gap": ("count", "avg", "max"),
    "ready_queue_time_gap": ("count", "avg", "max"),
    "topic_info": (
        *("readyQueueSize", "ackQueueSize", "waitingQueueSize", "size_0_1min", "size_1min_10min", "size_10min_30min"),
        *("size_30min_1hour", "size_1hour_6hour", "size_6hour_1day"),
        *("size_1day_7day", "size_7day_30day", "size_30day_infinite"),
    ),
}
OF_A_TOPIC = ("request", "pull_msg_time_gap", "ready_queue_time_gap", "topic_info")
INFO = (
    *("camellia_version", "arch", "os_name", "os_version", "system_load_average"),
    *("vm_vendor", "vm_name", "vm_version", "jvm_info", "java_version"),
)


async def test_the_metrics_page_has_every_series_that_the_originals_dashboard_queries(camellia: Camellia) -> None:
    q = camellia.another()
    while True:  # a window may end between the send and its delivery, and sizes are asked for every 5 s
        topic = camellia.topic()
        await q.send(topic, delay=1)
        await q.poll(topic)
        await of_window(q, topic, "getMonitorData")
        families = list(text_string_to_metric_families((await q.client.ask("GET", "/metrics")).body.decode()))
        found = {family.name: family for family in families if family.name in DASHBOARD}
        topics = {sample.labels["topic"] for name in OF_A_TOPIC if name in found for sample in found[name].samples}
        if topic in topics and all(found.get(name) and found[name].samples for name in OF_A_TOPIC):
            break
    shown = {name: {sample.labels.get("type") for sample in family.samples} for name, family in found.items()}
    assert shown == {name: set(types) or {None} for name, types in DASHBOARD.items()}
    labels = {name: set(family.samples[0].labels) for name, family in found.items()}
    assert labels == {
        **{"uptime": set(), "start_time": set()},
        **{"info": set(INFO), "cpu": {"type"}, "memory_info": {"type"}, "gc": {"name", "type"}},
        **{name: {"topic", "type"} for name in OF_A_TOPIC},
    }
    assert {family.type for family in found.values()} == {"gauge"}


async def test_health_pages_take_any_verb(camellia: Camellia) -> None:
    q = camellia.another()
    online, offline = (200, {"code": 200}), (500, {"code": 500})
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert await q.page("/camellia/health/check", method) == online
    assert await q.page("/camellia/health/status") == online
    await q.send(q.topic())
    assert await q.page("/camellia/health/offline", "POST") == offline, "somebody used it within the last 20 s"
    assert await q.page("/camellia/health/status") == offline
    assert await q.page("/camellia/health/check") == online
    assert await q.page("/camellia/health/online") == online
    assert await q.page("/camellia/health/status") == online
    assert await q.post("pullMsg", topic=q.topic()) == (200, {**SUCCESS, "delayMsgList": []})
