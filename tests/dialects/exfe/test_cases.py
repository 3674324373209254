"""The numbered conformance cases of the HTTP interface, against a real server and services on loopback.

The numbers are labels of the conformance list and have gaps; those from 26 on are the Redis actions (tests/exfe). Times
are judged by lower bounds only (never early). What has to come by itself is awaited. That nothing more comes is read
off the state instead: without jobs there is nothing to deliver.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest
from aiohttp import web

from dueline.dialects.exfe.decode import merges
from tests.kit.waiting import until

from ..kit import now_ms
from .kit import Exfe, ReceivedCall, encoded, in_s, path

PLAIN = "text/plain; charset=utf-8"


async def test_case_001_a_push_is_called_back_as_a_json_array_when_its_time_has_come(exfe: Exfe) -> None:
    q, service, at_s = exfe.another(), exfe.service(), in_s(1)
    target = f"{path('cross123_789', service.url)}?update=always&ontime={at_s}"
    answer = await q.raw(target, b'{"a":1}', headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert (answer.status, answer.body) == (200, b"")
    assert [job["due_at_ms"] for job in await q.left(service)] == [at_s * 1000]
    [came] = await service.arrived()
    assert (came.method, came.headers["content-type"], came.body) == ("POST", "application/json", b'[{"a":1}]')
    assert came.at_ms >= at_s * 1000, "called back early"
    await q.until_nothing_is_left(service)
    assert len(service.came) == 1


async def test_case_002_two_pushes_of_one_group_are_one_callback_in_push_order(exfe: Exfe) -> None:
    q, service, at_s = exfe.another(), exfe.service(), in_s(1)
    key = q.key()
    await q.push(key, service, b"1", at_s)
    await q.push(key, service, b"2", at_s)
    await service.arrived()
    await q.until_nothing_is_left(service)
    assert service.bodies == [b"[1,2]"]


async def test_case_003_once_keeps_the_time_of_the_first_push(exfe: Exfe) -> None:
    q, service, first_s = exfe.another(), exfe.service(), in_s(3)
    key = q.key()
    await q.push(key, service, b"1", first_s, "once")
    await q.push(key, service, b"2", in_s(0), "once")
    assert [job["due_at_ms"] for job in await q.left(service)] == [first_s * 1000]
    [came] = await service.arrived()
    assert came.body == b"[1,2]"
    assert came.at_ms >= first_s * 1000
    await q.until_nothing_is_left(service)
    assert len(service.came) == 1


async def test_case_005_always_takes_the_time_of_the_newest_push(exfe: Exfe) -> None:
    q, service, last_s = exfe.another(), exfe.service(), in_s(4)
    key = q.key()
    await q.push(key, service, b"1", in_s(1), "always")
    await q.push(key, service, b"2", last_s, "always")
    assert [job["due_at_ms"] for job in await q.left(service)] == [last_s * 1000]
    [came] = await service.arrived()
    assert came.body == b"[1,2]"
    assert came.at_ms >= last_s * 1000
    await q.until_nothing_is_left(service)
    assert len(service.came) == 1


async def test_case_006_after_its_callback_a_group_begins_anew(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    key = q.key()
    await q.push(key, service, b"1", 0, "once")
    await service.arrived()
    await q.until_nothing_is_left(service)
    at_s = in_s(1)
    await q.push(key, service, b"2", at_s, "once")
    await service.arrived(2)
    await q.until_nothing_is_left(service)
    assert service.bodies == [b"[1]", b"[2]"]
    assert service.came[1].at_ms >= at_s * 1000


async def test_case_007_what_is_pushed_under_a_dash_is_called_back_one_by_one_as_it_is(exfe: Exfe) -> None:
    q, service, at_s = exfe.another(), exfe.service(), in_s(0)
    await q.push("-", service, b'"p"', at_s)
    await q.push("-", service, b'"q"', at_s)
    await service.arrived(2)
    await q.until_nothing_is_left(service)
    assert sorted(service.bodies) == [b'"p"', b'"q"']
    assert {came.headers["content-type"] for came in service.came} == {"application/json"}


async def test_case_009_a_key_that_is_an_encoded_dash_key_does_not_merge(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    for key in ("LXh5eg==", "LXh5eg%3D%3D"):
        for body in (b"1", b"2"):
            await q.push(key, service, body, 0)
    await service.arrived(4)
    await q.until_nothing_is_left(service)
    assert sorted(service.bodies) == [b"1", b"1", b"2", b"2"]


async def test_case_010_a_key_that_only_by_accident_decodes_to_a_dash_merges(exfe: Exfe) -> None:
    q, service, at_s = exfe.another(), exfe.service(), in_s(1)
    for body in (b"1", b"2"):
        await q.push("Lab1", service, body, at_s)
    await service.arrived()
    await q.until_nothing_is_left(service)
    assert service.bodies == [b"[1,2]"]


async def test_case_011_methods_part_groups_and_are_those_of_the_callbacks(exfe: Exfe) -> None:
    q, service, at_s = exfe.another(), exfe.service(), in_s(1)
    key = q.key()
    for method, body in (("POST", b"1"), ("PUT", b"2"), ("POST", b"3")):
        answer = await q.raw(f"{path(key, service.url, method)}?ontime={at_s}", body)
        assert answer.status == 200, answer
    await service.arrived(2)
    await q.until_nothing_is_left(service)
    assert sorted((came.method, came.body) for came in service.came) == [("POST", b"[1,3]"), ("PUT", b"[2]")]


async def test_case_013_without_update_the_first_time_counts(exfe: Exfe) -> None:
    q, service, first_s = exfe.another(), exfe.service(), in_s(2)
    key = q.key()
    await q.push(key, service, b"1", first_s)
    await q.push(key, service, b"2", 0)
    [came] = await service.arrived()
    assert came.body == b"[1,2]"
    assert came.at_ms >= first_s * 1000
    await q.until_nothing_is_left(service)


async def test_case_014_an_unknown_update_is_refused_in_the_words_of_the_original(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    answer = await q.raw(f"{path(q.key(), service.url)}?ontime=0&update=never", b"1")
    assert (answer.status, answer.headers["content-type"], answer.body) == (500, PLAIN, b"invalid update type: never\n")
    assert await q.left(service) == []


async def test_case_015_a_time_that_is_no_number_is_refused(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    for query, value in (
        ("?ontime=abc", "abc"),
        ("", ""),
        ("?ontime=", ""),
        ("?ontime=1.5", "1.5"),
        ("?ontime=9223372036854775808", "9223372036854775808"),
        ("?ontime=%D9%A1", "\u0661"),
        ("?ontime=1_0", "1_0"),
    ):
        answer = await q.raw(path(q.key(), service.url) + query, b"1")
        assert (answer.status, answer.headers["content-type"]) == (400, PLAIN), answer
        assert answer.body.decode() == f"id(ontime)'s value({value}) is invalid int64\n"
    assert await q.left(service) == []


async def test_case_017_a_time_of_zero_or_in_the_past_is_now(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    for ontime in (0, 1, -5):
        await q.push(q.key(), service, str(ontime).encode(), ontime)
    await service.arrived(3)
    await q.until_nothing_is_left(service)
    assert sorted(service.bodies) == [b"[-5]", b"[0]", b"[1]"]


async def test_case_018_a_service_that_is_no_base64_is_refused(exfe: Exfe) -> None:
    q = exfe.another()
    for service, place in (("@@@", 0), ("aHR0cDov", None), ("aHR0cA=", 7), ("aHR0cA", 4), ("aH=0cA==", 3)):
        answer = await q.raw(f"/v3/queue/{q.key()}/POST/{service}?ontime=0", b"1")
        assert (answer.status, answer.headers["content-type"]) == (400, PLAIN), answer
        text = f"illegal base64 data at input byte {place}\n" if place is not None else ""
        assert answer.body.decode().startswith(f"service({service}) invalid: {text}"), answer


async def test_case_019_a_form_is_not_read_as_one(exfe: Exfe) -> None:
    q, service, at_s = exfe.another(), exfe.service(), in_s(1)
    target = f"{path(q.key(), service.url)}?ontime={at_s}"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await q.raw(target, b"ontime=1&x=%41", headers=headers)).status == 200
    [came] = await service.arrived()
    assert came.body == b"[ontime=1&x=%41]"
    assert came.at_ms >= at_s * 1000
    await q.until_nothing_is_left(service)


async def test_case_021_a_delete_drops_its_own_group_and_no_other(exfe: Exfe) -> None:
    q, service, at_s = exfe.another(), exfe.service(), in_s(2)
    dropped, kept = q.key(), q.key()
    for key in (dropped, kept, "-dropped", "-kept"):
        await q.push(key, service, f'"{key}"'.encode(), at_s)
    await q.drop(dropped, service)
    await q.drop("-dropped", service)
    await q.drop(dropped, service)  # once more is fine, and so is what never was
    await q.drop(kept, service, method="PUT")
    await service.arrived(2)
    await q.until_nothing_is_left(service)
    assert sorted(service.bodies) == [b'"-kept"', f'["{kept}"]'.encode()]


async def test_case_022_a_comma_in_a_service_is_nothing_special(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    for key in (q.key(), "with,comma"):
        answer = await q.raw(f"{path(key, service.url + '?a=1,2')}?ontime=0", b"1")
        assert (answer.status, answer.body) == (200, b""), answer
    await service.arrived(2)
    await q.until_nothing_is_left(service)
    assert [came.query for came in service.came] == ["a=1,2"] * 2


async def test_case_023_a_failed_group_comes_again_as_it_was_until_it_is_taken(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    answers = iter((500, 500))

    async def answer(_: ReceivedCall) -> web.Response:
        return web.Response(status=next(answers, 200))

    service.answer = answer
    key = q.key()
    at_s = in_s(1)
    await q.push(key, service, b"1", at_s)
    await q.push(key, service, b"2", at_s)
    await service.arrived(3)
    await q.until_nothing_is_left(service)
    assert service.bodies == [b"[1,2]"] * 3
    assert all(later.at_ms - sooner.at_ms >= 1000 for sooner, later in itertools.pairwise(service.came))


async def test_case_023_a_push_while_a_callback_runs_begins_a_new_group(exfe: Exfe) -> None:
    q, service, go = exfe.another(), exfe.service(), asyncio.Event()

    async def answer(came: ReceivedCall) -> web.Response:
        if came.body == b"[1]":
            await go.wait()
        return web.Response()

    service.answer = answer
    key = q.key()
    await q.push(key, service, b"1", 0)
    await service.arrived()
    await q.push(key, service, b"2", 0)
    await service.arrived(2)
    go.set()
    await q.until_nothing_is_left(service)
    assert service.bodies == [b"[1]", b"[2]"]


async def test_case_023_a_push_between_two_tries_joins_the_group_and_brings_its_own_time(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()

    async def answer(came: ReceivedCall) -> web.Response:
        # So late that no try of the ladder can come between; the time of the next push decides.
        return web.Response() if len(service.came) > 1 else web.Response(status=503, headers={"Retry-After": "3600"})

    service.answer = answer
    key = q.key()
    await q.push(key, service, b"1", 0, "once")
    await service.arrived()
    await until(lambda: q.left(service), lambda left: [job["state"] for job in left] == ["scheduled"], within_s=60)
    at_s = in_s(1)
    await q.push(key, service, b"2", at_s, "once")
    await service.arrived(2)
    await q.until_nothing_is_left(service)
    assert service.bodies == [b"[1]", b"[1,2]"]
    assert service.came[1].at_ms >= at_s * 1000


async def test_case_023_with_retry_off_there_is_one_call_and_the_group_is_gone(exfe_once: Exfe) -> None:
    q, service = exfe_once.another(), exfe_once.service()

    async def answer(_: ReceivedCall) -> web.Response:
        return web.Response(status=500)

    service.answer = answer
    await q.push(q.key(), service, b"1", 0)
    await q.push("-", service, b"2", 0)
    await service.arrived(2)
    await q.until_nothing_is_left(service)
    topic = await q.client.ask("GET", "/v1/topics/exfe.queue", headers={"Dueline-Namespace": "exfe"})
    assert topic.json()["counts"]["dead"] == 0  # gone, and not set aside
    assert sorted(service.bodies) == [b"2", b"[1]"]


async def test_case_025_a_path_without_its_three_parts_is_not_found(exfe: Exfe) -> None:
    q = exfe.another()
    for target in ("/v3/queue/onlyone", "/v3/queue/one/POST", "/v3/queue/one/POST/", "/v3/queue/", "/v3/queue//POST/x"):
        answer = await q.raw(f"{target}?ontime=0", b"1")
        assert (answer.status, answer.headers["content-type"], answer.body) == (404, PLAIN, b"404 page not found\n")


async def test_the_first_of_several_faults_is_the_one_of_the_original(exfe: Exfe) -> None:
    q = exfe.another()
    for target, status, text in (
        ("/POST/@@@?ontime=x&update=never", 400, "id(ontime)'s value(x) is invalid int64\n"),
        ("/CONNECT/@@@?ontime=0&update=never", 400, "invalid method: CONNECT\n"),
        ("/POST/@@@?ontime=0&update=never", 400, "service(@@@) invalid: illegal base64 data at input byte 0\n"),
        (f"/POST/{encoded('http://10.0.0.1/')}?ontime=0&update=never", 500, "invalid update type: never\n"),
    ):
        answer = await q.raw(f"/v3/queue/{q.key()}{target}", b"1")
        assert (answer.status, answer.body.decode()) == (status, text)


async def test_other_methods_are_not_allowed(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    answer = await q.raw(path(q.key(), service.url), method="GET")
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, POST")


async def test_an_address_that_must_not_be_called_is_refused_with_the_reason_and_nothing_is_kept(exfe: Exfe) -> None:
    q = exfe.another()
    for url in ("http://169.254.169.254/latest", "http://10.0.0.1/", "http://[::ffff:169.254.169.254]/"):
        answer = await q.raw(f"{path(q.key(), url)}?ontime=0", b"1")
        assert (answer.status, answer.headers["content-type"]) == (403, PLAIN), answer
        assert answer.body.decode().startswith(f"service({url}) refused: "), answer
        assert len(answer.body.decode()) > len(f"service({url}) refused: \n")
    line = await q.served.logged("egress guard")
    assert (line["level"], line["setting"]) == ("warning", "push.allow")


async def test_what_is_no_url_is_refused(exfe: Exfe) -> None:
    q = exfe.another()
    for url in ("ftp://127.0.0.1/x", "nothing", "http://", "http://user@127.0.0.1/"):
        answer = await q.raw(f"{path(q.key(), url)}?ontime=0", b"1")
        assert answer.status in (400, 403), answer
        assert answer.body.decode().startswith("service("), answer


async def test_slashes_and_escapes_in_the_path_are_read_as_they_are_meant(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    escaped = encoded(service.url).replace("=", "%3D")
    assert (await q.raw(f"/v3/queue/{q.key()}/POST/{escaped}?ontime=0", b"1")).status == 200
    assert (await q.raw(f"/v3/queue/{q.key()}%2FPOST%2F{escaped}?ontime=0", b"2")).status == 200
    await service.arrived(2)
    await q.until_nothing_is_left(service)
    assert sorted(service.bodies) == [b"[1]", b"[2]"]


async def test_a_body_of_any_bytes_travels_as_it_is(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    every_byte = bytes(range(256))
    await q.push("-", service, every_byte, 0)
    await q.push(q.key(), service, b"", 0)
    await service.arrived(2)
    await q.until_nothing_is_left(service)
    assert sorted(service.bodies) == sorted([every_byte, b"[]"])


async def test_a_time_beyond_all_times_waits(exfe: Exfe) -> None:
    q, service = exfe.another(), exfe.service()
    key = q.key()
    await q.push(key, service, b"1", (1 << 63) - 1)
    [job] = await q.left(service)
    assert (job["state"], job["due_at_ms"]) == ("scheduled", 253402300799999)
    await q.drop(key, service)
    assert await q.left(service) == []


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("cross123_789", True),
        ("-", False),
        ("-abc", False),
        ("-1234567", False),
        ("LXh5eg==", False),
        ("LXh5eg", True),  # without its padding it is no encoding
        ("Lab1", True),
        (encoded("-\x07bell"), True),  # what decodes to control characters was never encoded
        (encoded("-\u4f60"), False),
        (encoded("a-b"), True),
    ],
)
def test_whether_a_key_merges(key: str, expected: bool) -> None:
    assert merges(key) is expected


async def test_a_full_group_waits_for_its_time_and_the_next_push_opens_another_one(exfe: Exfe) -> None:
    q, service, at_s = exfe.another(), exfe.service(), in_s(12)
    key = q.key()
    others = [q.another() for _ in range(20)]  # all pushes must come before their time, even on a busy machine

    async def push_some(first: int) -> None:
        for number in range(first, 1000, len(others)):
            await others[first].push(key, service, str(number).encode(), at_s)

    await asyncio.gather(*map(push_some, range(len(others))))
    await q.push(key, service, b"1000", at_s)
    assert service.came == [] or now_ms() >= at_s * 1000
    await service.arrived(2)
    await q.until_nothing_is_left(service)
    assert all(came.at_ms >= at_s * 1000 for came in service.came), "called back early"
    items = [came.body[1:-1].split(b",") for came in service.came]
    assert sorted(map(len, items)) == [1, 1000]
    assert sorted(int(item) for some in items for item in some) == list(range(1001))


async def test_first_pushes_that_come_together_are_all_taken(exfe_once: Exfe) -> None:
    service = exfe_once.service()
    clients = [exfe_once.another() for _ in range(40)]
    await asyncio.gather(*(q.push(q.key(), service, b"1", 0) for q in clients))
    await service.arrived(40)
    await exfe_once.until_nothing_is_left(service)
