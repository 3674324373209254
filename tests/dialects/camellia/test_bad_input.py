"""Bad input of every kind in every parameter: the original's answer, nothing stored, the connection stays usable."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

from ..kit import now_ms
from .kit import BASE, FORM, SUCCESS, Camellia, failed, framework_page, refused, shown

LAST_MS = 253_402_300_799_999  # of the year 9999
TEN_YEARS_MS = 10 * 366 * 86_400_000

NO_NUMBERS = (
    "abc",
    "1.5",
    "1e3",
    "--1",
    "+-1",
    "0x",
    "#",
    "0xg",
    "1_000",
    "NaN",
    "null",
    "true",
    " ",
    "１ x",
    "9" * 2000,
)
NO_INT = (*NO_NUMBERS, "2147483648", "-2147483649", "9223372036854775807")
NO_LONG = (*NO_NUMBERS, "9223372036854775808", "-9223372036854775809")
NO_TRUTH = ("maybe", "2", "tru", "-1", "yes please", "y", "t", "null")
NO_NAME = ("a\nb", "\x00", "\x7f", "x" * 513, "é" * 257)

WHOLE: dict[str, dict[str, str]] = {
    "sendMsg": {"msg": "abc", "delayMillis": "0", "msgId": "id", "ttlMillis": "1000", "maxRetry": "1"},
    "pullMsg": {"ackTimeoutMillis": "1000", "batch": "1"},
    "longPollingMsg": {"ackTimeoutMillis": "1000", "batch": "1", "longPollingTimeoutMillis": "1"},
    "ackMsg": {"msgId": "id", "ack": "true"},
    "deleteMsg": {"msgId": "id", "release": "false"},
    "getMsg": {"msgId": "id"},
}
TYPES: dict[str, tuple[str, ...]] = {
    "delayMillis": NO_LONG,
    "ttlMillis": NO_LONG,
    "ackTimeoutMillis": NO_LONG,
    "longPollingTimeoutMillis": NO_LONG,
    "maxRetry": NO_INT,
    "batch": NO_INT,
    "ack": NO_TRUTH,
    "release": NO_TRUTH,
}
REQUIRED = {"sendMsg": ("topic", "msg", "delayMillis"), "pullMsg": ("topic",), "longPollingMsg": ("topic",)}


async def test_values_of_another_type_are_the_frameworks_400(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    for operation, form in WHOLE.items():
        for name in form.keys() & TYPES.keys():
            for value in TYPES[name]:
                answer = await q.post(operation, **{"topic": topic, **form, name: value})
                assert answer == refused(operation), (operation, name, value)
    assert await q.empty(topic)


async def test_missing_parameters_are_the_frameworks_400(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    for operation, form in WHOLE.items():
        for name in REQUIRED.get(operation, ("topic", "msgId")):
            whole = {"topic": topic, **form}
            del whole[name]
            assert await q.post(operation, **whole) == refused(operation), (operation, name)
    assert await q.empty(topic)


async def test_empty_texts_are_code_400_and_empty_options_their_default(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    for operation, form in WHOLE.items():
        for name in ({"topic", "msg", "msgId"} & {"topic", *form}) - ({"msgId"} if operation == "sendMsg" else set()):
            assert await q.post(operation, **{"topic": topic, **form, name: ""}) == failed(operation, 400), (
                operation,
                name,
            )
    assert await q.empty(topic)
    status, body = await q.post("sendMsg", topic=topic, msg="x", delayMillis=0, msgId="", ttlMillis="", maxRetry="")
    msg = body["delayMsg"]
    assert (status, len(msg["msgId"]), msg["maxRetry"]) == (200, 32, 10)
    assert msg["expireTime"] - msg["triggerTime"] == 3_600_000
    assert (await q.pull(topic, batch="", ackTimeoutMillis=""))[0]["msgId"] == msg["msgId"]
    assert await q.post("ackMsg", topic=topic, msgId=msg["msgId"], ack="") == (200, SUCCESS)
    assert await q.status(topic, msg["msgId"]) == 4


async def test_names_that_cannot_be_kept_are_refused_by_a_send_and_unknown_to_the_rest(camellia: Camellia) -> None:
    """The original has no limits, and its SDK asks again without a pause when a poll is refused."""
    q, topic = camellia.another(), camellia.topic()
    nothing = (200, {**SUCCESS, "delayMsgList": []})
    for bad in NO_NAME:
        for name in ("topic", "msgId"):
            status, body = await q.post("sendMsg", **{"topic": topic, **WHOLE["sendMsg"], name: bad})
            assert (status, body) == failed("sendMsg", 400)
            assert body["msg"].startswith(f"{name}: "), body
            ref = {"topic": topic, "msgId": "id", name: bad}
            for ack in ("true", "false"):
                assert await q.post("ackMsg", **ref, ack=ack) == (200, SUCCESS), (name, bad)
            for operation in ("deleteMsg", "getMsg"):
                assert await q.post(operation, **ref) == failed(operation, 404), (operation, name, bad)
        assert await q.post("pullMsg", topic=bad) == nothing
        before_ms = now_ms()
        assert await q.post("longPollingMsg", topic=bad, longPollingTimeoutMillis=200) == nothing
        assert now_ms() >= before_ms + 190, "answered at once: the SDK would run hot"
    assert await q.empty(topic)
    assert (await q.info("a\nb"))["waitingQueueSize"] == 0


async def test_refusals_speak_of_the_parameters_by_their_own_names(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    native = q.served.client()
    policy = {"max_body_bytes": 3}
    headers = {"Dueline-Namespace": "camellia", "Content-Type": "application/json"}
    made = await native.ask("PUT", f"/v1/topics/{topic}", json.dumps(policy).encode(), headers)
    assert made.status in (200, 201), made
    status, body = await q.post("sendMsg", topic=topic, msg="abcd", delayMillis=0)
    assert (status, body) == (200, {"code": 400, "msg": "msg: the body has 4 bytes, the limit is 3", "delayMsg": None})
    assert await q.empty(topic)


async def test_numbers_that_say_a_lot_are_cut_to_what_can_be_stored(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    most = {"ttlMillis": (1 << 63) - 1, "maxRetry": (1 << 31) - 1}
    msg = await q.send(topic, **most)
    assert (msg["maxRetry"], msg["expireTime"] > msg["triggerTime"] + 9 * 365 * 86_400_000) == ((1 << 31) - 1, True)
    [leased] = await q.pull(topic, batch=(1 << 31) - 1, ackTimeoutMillis=(1 << 63) - 1)
    assert leased == {**msg, "status": 3, "retry": 1}
    least = await q.send(topic, ttlMillis=-(1 << 63), maxRetry=-(1 << 31))
    assert least["maxRetry"] == 10
    low = await q.pull(topic, batch=-(1 << 31), ackTimeoutMillis=-(1 << 63))
    assert [one["msgId"] for one in low] == [least["msgId"]]


async def test_any_delay_is_taken_up_to_the_last_moment_there_is_and_shown_as_it_is_stored(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    year_ms = 365 * 86_400_000
    for delay, ttl in ((11 * year_ms, 1000), (7900 * year_ms, 1000 * year_ms), (1 << 62, 1000), (LAST_MS, 1)):
        before_ms = now_ms()
        msg = await q.send(topic, delay=delay, ttlMillis=ttl)
        assert msg == await q.get(topic, msg["msgId"])
        assert (msg["triggerTime"] >= min(before_ms + delay, LAST_MS), msg["status"]) == (True, 1)
        assert before_ms <= msg["produceTime"] <= now_ms()
        assert msg["expireTime"] == msg["triggerTime"] + min(ttl, TEN_YEARS_MS)
    assert (await q.send(topic, delay=-(1 << 63)))["status"] == 2


async def test_numbers_and_truths_are_read_as_the_framework_reads_them(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()

    async def delay(text: str) -> int:
        msg = (await q.post("sendMsg", topic=topic, msg="x", delayMillis=text))[1]["delayMsg"]
        return msg["triggerTime"] - msg["produceTime"]

    spellings = {"60000": 60_000, "+60000": 60_000, " 60 000 ": 60_000, "0xEA60": 60_000, "#EA60": 60_000, "007": 7}
    assert {text: await delay(text) for text in spellings} == spellings
    for word in ("true", "TRUE", " on ", "yes", "1"):
        msg = await q.send(topic, delay=60_000)
        assert await q.post("deleteMsg", topic=topic, msgId=msg["msgId"], release=word) == (200, SUCCESS)
        assert await q.get(topic, msg["msgId"]) is None, word
    for word in ("false", "Off", "no", "0"):
        msg = await q.send(topic, delay=60_000)
        assert await q.post("deleteMsg", topic=topic, msgId=msg["msgId"], release=word) == (200, SUCCESS)
        assert await q.status(topic, msg["msgId"]) == 7, word


async def test_texts_given_twice_are_joined_and_of_numbers_the_first_counts(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    form = f"topic={topic}&msg=b&msg=c&delayMillis=5&delayMillis=abc"
    msg = shown(await q.raw("sendMsg", form.encode(), "msg=a&delayMillis=60000"))[1]["delayMsg"]
    assert (msg["msg"], msg["triggerTime"] - msg["produceTime"]) == ("a,b,c", 60_000)


async def test_broken_escapes_drop_their_parameter_and_bad_utf_8_becomes_a_replacement(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    whole = f"topic={topic}&delayMillis=0&msg=".encode()
    for broken in (b"%", b"%4", b"%zz", b"abc%G1"):
        assert shown(await q.raw("sendMsg", whole + broken)) == refused("sendMsg"), broken
    assert await q.empty(topic)
    msg = shown(await q.raw("sendMsg", whole + b"a%FFb\xc3(%ED%A0%80"))[1]["delayMsg"]
    assert (msg["msg"][:5], set(msg["msg"][5:])) == ("a\ufffdb\ufffd(", {"\ufffd"})
    assert [one["msg"] for one in await q.pull(topic)] == [msg["msg"]]


async def test_other_content_types_are_not_read(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    form = urlencode({"topic": topic, "msg": "x", "delayMillis": 0}).encode()
    for kind in ("application/json", "text/plain", "multipart/form-data; boundary=x", "", "application/x-www-form"):
        answer = await q.client.ask("POST", BASE + "sendMsg", form, {"Content-Type": kind})
        assert shown(answer) == refused("sendMsg"), kind
    assert shown(await q.client.ask("POST", BASE + "sendMsg", form)) == refused("sendMsg")
    assert await q.empty(topic)
    for kind in ("application/x-www-form-urlencoded", "APPLICATION/X-WWW-FORM-URLENCODED ; charset=GBK"):
        answer = await q.client.ask("POST", BASE + "sendMsg", form, {"Content-Type": kind})
        assert shown(answer)[1]["code"] == 200, kind


async def test_other_verbs_and_paths_get_the_frameworks_pages(camellia: Camellia) -> None:
    q = camellia.another()
    for operation in WHOLE:
        for method in ("GET", "PUT", "DELETE", "PATCH"):
            answer = await q.client.ask(method, f"{BASE}{operation}?topic=t&msgId=x&msg=m&delayMillis=0")
            assert shown(answer) == framework_page(405, "Method Not Allowed", BASE + operation)
            assert answer.headers["allow"] == "POST"
    for page in ("getMonitorData", "getTopicInfo", "getTopicInfoList", "getMonitorString"):
        assert await q.page(BASE + page, "POST") == framework_page(405, "Method Not Allowed", BASE + page)
    for path in ("/camellia/", "/camellia/delayQueue", BASE, BASE + "sendMsg/", BASE + "SENDMSG", "/camellia/health/x"):
        assert await q.page(path) == framework_page(404, "Not Found", path), path
        assert await q.page(path, "POST") == framework_page(404, "Not Found", path), path
    head = await q.client.ask("GET", "/camelliaX")
    assert (head.status, head.json()["error"]["code"]) == (404, "no_route"), "outside of its space it has no words"


async def test_random_bytes_never_break_it(camellia: Camellia) -> None:
    q, topic, chance = camellia.another(), camellia.topic(), random.Random(39)
    pieces = [
        b"topic",
        b"msg",
        b"msgId",
        b"delayMillis",
        b"batch",
        b"ack",
        b"=",
        b"&",
        b"%",
        b"%00",
        b"+",
        b"\xff",
        b";",
    ]
    for _ in range(400):
        operation = chance.choice([name for name in WHOLE if name != "longPollingMsg"])
        body = b"".join(chance.choice([*pieces, chance.randbytes(3)]) for _ in range(chance.randint(0, 40)))
        query = quote_from_bytes(chance.randbytes(chance.randint(0, 12)), safe="&=+")
        answer = await q.raw(operation, body, query)
        code: Any = answer.json().get("code", "framework")
        assert (answer.status, code) in {(200, 200), (200, 400), (200, 404), (400, "framework")}, (
            operation,
            body,
            query,
        )
    assert (await q.send(topic))["status"] == 2, "the connection is as good as new"


async def test_more_parameters_than_are_read_do_no_harm(camellia: Camellia) -> None:
    q, topic = camellia.another(), camellia.topic()
    many = "&".join(f"p{n}=1" for n in range(10_000))
    form = f"{many}&topic={topic}&msg=x&delayMillis=0".encode()
    assert shown(await q.raw("sendMsg", form)) == refused("sendMsg")
    answer = await q.client.ask("POST", BASE + "sendMsg", f"topic={topic}&msg=x&delayMillis=0&{many}".encode(), FORM)
    assert shown(answer)[1]["code"] == 200
