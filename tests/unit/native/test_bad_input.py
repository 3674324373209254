"""Bad input: a clear 4xx in the one error shape, never a 500, nothing stored."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dueline.api.operations import OPERATIONS
from dueline.dialects.native.wire import is_name
from dueline.engine.json_text import depth
from dueline.engine.limits import Limits, check_name

from .kit import CODES, Api, Reply, assert_error

JOBS = "/v1/topics/t/jobs"
DEEP = 100_000


def some_names(number: int) -> bytes:
    return json.dumps([f"n{place}" for place in range(number)]).encode()


def some_headers(number: int) -> bytes:
    return json.dumps({f"n{place}": "x" for place in range(number)}).encode()


NOT_JSON = {
    "empty": b"",
    "blank": b" \r\n",
    "word": b"hello",
    "half": b'{"body":1',
    "half text": b'{"body":"',
    "trailing": b'{"body":1}x',
    "two values": b'{"body":1}{"body":2}',
    "trailing comma": b'{"body":1,}',
    "single quotes": b"{'body':1}",
    "comment": b'{"body":1/*x*/}',
    "NaN": b'{"body":NaN}',
    "Infinity": b'{"body":-Infinity}',
    "leading zero": b'{"body":01}',
    "plus": b'{"body":+1}',
    "hex": b'{"body":0x10}',
    "control character": b'{"body":"\x01"}',
    "bad escape": b'{"body":"\\x41"}',
    "bytes that are not UTF-8": b'{"body":"\xff"}',
    "overlong UTF-8": b'{"body":"\xc0\xaf"}',
    "surrogate in UTF-8": b'{"body":"\xed\xa0\x80"}',
    "not UTF-8 in a name": b'{"\xff":1}',
    "byte order mark": b'\xef\xbb\xbf{"body":1}',
    "UTF-16": '{"body":1}'.encode("utf-16"),
    "UTF-16 without mark": '{"body":1}'.encode("utf-16-le"),
    "UTF-32": '{"body":1}'.encode("utf-32"),
    "NUL": b"\0",
    "half a text after a lone surrogate": b'{"body":"\\ud800',
    "deep body": b'{"body":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "deep objects": b'{"body":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "deep and broken": b'{"body":' + b"[" * DEEP,
}

NOT_A_JOB = {
    "a number": (b"5", "invalid_field", None),
    "null": (b"null", "invalid_field", None),
    "a text": (b'"x"', "invalid_field", None),
    "a list of numbers": (b"[1]", "invalid_field", "[0]"),
    "deep lists": (b"[" * DEEP + b"]" * DEEP, "invalid_field", "[0]"),
    "no body": (b"{}", "missing_field", "body"),
    "two bodies": (b'{"body":1,"body_base64":"AA=="}', "invalid_field", "body_base64"),
    "unknown field": (b'{"body":1,"delays":5}', "unknown_field", "delays"),
    "unknown field with a backtick": (b'{"body":1,"a` - at `b":5}', "unknown_field", "a` - at `b"),
    "unknown field in an item": (b'[{"body":1},{"body":1,"x":1}]', "unknown_field", "[1].x"),
    "id of a wrong type": (b'{"body":1,"id":5}', "invalid_field", "id"),
    "empty id": (b'{"body":1,"id":""}', "invalid_field", "id"),
    "long id": (b'{"body":1,"id":"' + b"a" * 129 + b'"}', "invalid_field", "id"),
    "id with a space": (b'{"body":1,"id":"a b"}', "invalid_field", "id"),
    "id with a line end": (b'{"body":1,"id":"a\\n"}', "invalid_field", "id"),
    "id not ASCII": ('{"body":1,"id":"é"}'.encode(), "invalid_field", "id"),
    "deep body of 65": (b'{"body":' + b"[" * 65 + b"]" * 65 + b"}", "invalid_field", "body"),
    "deep body of 65 in an item": (b'[{"body":' + b"[" * 65 + b"]" * 65 + b"}]", "invalid_field", "[0].body"),
    "number of 400 digits": (b'{"body":1' + b"0" * 5000 + b"}", "invalid_field", "body"),
    "number beyond a double": (b'{"body":[1e400]}', "invalid_field", "body"),
    "delay beyond everything": (b'{"body":1,"delay_ms":1' + b"0" * 5000 + b"}", "invalid_field", "delay_ms"),
    "delay with a fraction": (b'{"body":1,"delay_ms":1.5}', "invalid_field", "delay_ms"),
    "delay as a text": (b'{"body":1,"delay_ms":"5"}', "invalid_field", "delay_ms"),
    "delay as a boolean": (b'{"body":1,"delay_ms":true}', "invalid_field", "delay_ms"),
    "negative delay": (b'{"body":1,"delay_ms":-1}', "invalid_field", "delay_ms"),
    "delay over 10 years": (b'{"body":1,"delay_ms":316224000001}', "invalid_field", "delay_ms"),
    "duration without a unit": (b'{"body":1,"delay":"5"}', "invalid_field", "delay"),
    "duration of a wrong unit": (b'{"body":1,"delay":"5y"}', "invalid_field", "delay"),
    "negative duration": (b'{"body":1,"delay":"-5s"}', "invalid_field", "delay"),
    "endless duration": (b'{"body":1,"delay":"1' + b"0" * 400 + b's"}', "invalid_field", "delay"),
    "long duration": (b'{"body":1,"delay":"9999999d"}', "invalid_field", "delay"),
    "two times": (b'{"body":1,"delay":"5s","at_ms":5}', "invalid_field", "at_ms"),
    "four times": (b'{"body":1,"delay":"5s","delay_ms":5,"at":"x","at_ms":5}', "invalid_field", "delay_ms"),
    "time without an offset": (b'{"body":1,"at":"2030-01-01T00:00:00"}', "invalid_field", "at"),
    "time that is only a date": (b'{"body":1,"at":"2030-01-01"}', "invalid_field", "at"),
    "time of month 13": (b'{"body":1,"at":"2030-13-01T00:00:00Z"}', "invalid_field", "at"),
    "time of year 0": (b'{"body":1,"at":"0000-01-01T00:00:00Z"}', "invalid_field", "at"),
    "time of hour 24": (b'{"body":1,"at":"2030-01-01T24:00:00Z"}', "invalid_field", "at"),
    "time of a strange offset": (b'{"body":1,"at":"2030-01-01T00:00:00+99:00"}', "invalid_field", "at"),
    "time of offset minute 60": (b'{"body":1,"at":"2030-01-01T00:00:00+00:60"}', "invalid_field", "at"),
    "time before all time": (b'{"body":1,"at":"0001-01-01T00:00:00+23:59"}', None, None),
    "time in other digits": ('{"body":1,"at":"２030-01-01T00:00:00Z"}'.encode(), "invalid_field", "at"),
    "time over 10 years as a text": (b'{"body":1,"at":"9999-12-31T23:59:59Z"}', "invalid_field", "at"),
    "time over 10 years in an item": (
        b'[{"body":1,"at_ms":0},{"body":1,"at":"9999-12-31T23:59:59Z"}]',
        "invalid_field",
        "[1].at",
    ),
    "time over 10 years": (b'{"body":1,"at_ms":99999999999999}', "invalid_field", "at_ms"),
    "base64 with a space": (b'{"body_base64":"AA =="}', "invalid_field", "body_base64"),
    "base64 without padding": (b'{"body_base64":"AA"}', "invalid_field", "body_base64"),
    "base64 for URLs": (b'{"body_base64":"__-_"}', "invalid_field", "body_base64"),
    "base64 not canonical": (b'{"body_base64":"AB=="}', "invalid_field", "body_base64"),
    "base64 not ASCII": ('{"body_base64":"é==="}'.encode(), "invalid_field", "body_base64"),
    "zero attempts": (b'{"body":1,"max_attempts":0}', "invalid_field", "max_attempts"),
    "many attempts": (b'{"body":1,"max_attempts":10001}', "invalid_field", "max_attempts"),
    "zero lease": (b'{"body":1,"lease_ms":0}', "invalid_field", "lease_ms"),
    "zero ttl": (b'{"body":1,"ttl_ms":0}', "invalid_field", "ttl_ms"),
    "unknown conflict": (b'{"body":1,"on_conflict":"x"}', "invalid_field", "on_conflict"),
    "empty retry": (b'{"body":1,"retry":{}}', "missing_field", "retry.base_ms"),
    "retry of both kinds": (b'{"body":1,"retry":{"ladder":["1s"],"jitter":0}}', "invalid_field", "retry.jitter"),
    "retry that is a list": (b'{"body":1,"retry":["1s"]}', "invalid_field", "retry"),
    "ladder of numbers": (b'{"body":1,"retry":{"ladder":[5]}}', "invalid_field", "retry.ladder[0]"),
    "ladder of no durations": (b'{"body":1,"retry":{"ladder":["1s","x"]}}', "invalid_field", "retry.ladder[1]"),
    "ladder of 33": (b'{"body":1,"retry":{"ladder":["1s"' + b',"1s"' * 32 + b"]}}", "too_many_items", "retry.ladder"),
    "long ladder of no durations": (
        b'{"body":1,"retry":{"ladder":["x"' + b',"x"' * 700_000 + b"]}}",
        "too_many_items",
        "retry.ladder",
    ),
    "empty ladder": (b'{"body":1,"retry":{"ladder":[]}}', "invalid_field", "retry.ladder"),
    "shrinking backoff": (b'{"body":1,"retry":{"base_ms":1,"factor":0.5}}', "invalid_field", "retry.factor"),
    "cap below base": (b'{"body":1,"retry":{"base_ms":10,"max_ms":5}}', "invalid_field", "retry.max_ms"),
    "jitter over 1": (b'{"body":1,"retry":{"base_ms":1,"jitter":1.1}}', "invalid_field", "retry.jitter"),
    "tags as a text": (b'{"body":1,"tags":"x"}', "invalid_field", "tags"),
    "tag of a wrong type": (b'{"body":1,"tags":["x",1]}', "invalid_field", "tags[1]"),
    "17 tags": (b'{"body":1,"tags":' + some_names(17) + b"}", "too_many_items", "tags"),
    "many tags": (b'{"body":1,"tags":' + some_names(100_000) + b"}", "too_many_items", "tags"),
    "33 headers": (b'{"body":1,"headers":' + some_headers(33) + b"}", "too_many_items", "headers"),
    "many headers": (b'[{"body":1,"headers":' + some_headers(100_000) + b"}]", "too_many_items", "[0].headers"),
    "1001 jobs": (b'[{"body":1}' + b',{"body":1}' * 1000 + b"]", "too_many_items", None),
    "headers as a list": (b'{"body":1,"headers":[]}', "invalid_field", "headers"),
    "header of a wrong type": (b'{"body":1,"headers":{"a":1}}', "invalid_field", "headers[...]"),
    "header with a line end": (b'{"body":1,"headers":{"a":"b\\r\\nc: d"}}', "invalid_field", "headers"),
    "merge as a text": (b'{"body":1,"merge":"k"}', "invalid_field", "merge"),
    "merge without a key": (b'{"body":1,"merge":{"quiet_ms":5}}', "missing_field", "merge.key"),
    "merge with an unknown field": (b'{"body":1,"merge":{"key":"k","delay":5}}', "unknown_field", "merge.delay"),
    "merge and an id": (b'{"id":"a","body":1,"merge":{"key":"k"}}', "invalid_field", "id"),
    "merge and a conflict rule": (
        b'{"body":1,"on_conflict":"keep","merge":{"key":"k"}}',
        "invalid_field",
        "on_conflict",
    ),
    "merge key of a wrong type": (b'{"body":1,"merge":{"key":5}}', "invalid_field", "merge.key"),
    "empty merge key": (b'{"body":1,"merge":{"key":""}}', "invalid_field", "merge.key"),
    "long merge key": (b'{"body":1,"merge":{"key":"' + b"k" * 513 + b'"}}', "invalid_field", "merge.key"),
    "merge key with a control character": (b'{"body":1,"merge":{"key":"a\\u0000"}}', "invalid_field", "merge.key"),
    "merge key with a lone surrogate": (b'{"body":1,"merge":{"key":"\\ud800"}}', "invalid_field", "merge"),
    "negative quiet time": (b'{"body":1,"merge":{"key":"k","quiet_ms":-1}}', "invalid_field", "merge.quiet_ms"),
    "quiet time as a duration": (b'{"body":1,"merge":{"key":"k","quiet_ms":"5s"}}', "invalid_field", "merge.quiet_ms"),
    "quiet time over 10 years": (
        b'{"body":1,"merge":{"key":"k","quiet_ms":316224000001}}',
        "invalid_field",
        "merge.quiet_ms",
    ),
    "quiet time and a delay": (
        b'{"body":1,"delay":"5s","merge":{"key":"k","quiet_ms":5}}',
        "invalid_field",
        "merge.quiet_ms",
    ),
    "quiet time and a time": (
        b'{"body":1,"at_ms":5,"merge":{"key":"k","quiet_ms":5}}',
        "invalid_field",
        "merge.quiet_ms",
    ),
    "negative wait": (b'{"body":1,"merge":{"key":"k","max_wait_ms":-1}}', "invalid_field", "merge.max_wait_ms"),
    "no items": (b'{"body":1,"merge":{"key":"k","max_items":0}}', "invalid_field", "merge.max_items"),
    "1001 items": (b'{"body":1,"merge":{"key":"k","max_items":1001}}', "invalid_field", "merge.max_items"),
    "unknown update": (b'{"body":1,"merge":{"key":"k","update":"often"}}', "invalid_field", "merge.update"),
    "empty item id": (b'{"body":1,"merge":{"key":"k","item_id":""}}', "invalid_field", "merge.item_id"),
    "item id with a space": (b'{"body":1,"merge":{"key":"k","item_id":"a b"}}', "invalid_field", "merge.item_id"),
    "bad merge in an item": (
        b'[{"body":1,"merge":{"key":"k"}},{"body":1,"merge":{"key":""}}]',
        "invalid_field",
        "[1].merge.key",
    ),
    "header name with a space": (b'{"body":1,"headers":{"a b":"c"}}', "invalid_field", "headers"),
}


def assert_nothing_stored(api: Api) -> None:
    assert api.get("/v1/topics") == (200, {"topics": [], "next_cursor": None})


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_is_not_json_is_refused(api: Api, body: bytes) -> None:
    assert_error(api.raw("POST", JOBS, body), 400, "bad_json")
    assert_error(api.raw("POST", "/v1/topics/t/ack", body), 400, "bad_json") if b"body" not in body else None
    assert_nothing_stored(api)


@pytest.mark.parametrize(("body", "code", "field"), NOT_A_JOB.values(), ids=NOT_A_JOB.keys())
def test_what_is_not_a_job_is_refused_and_the_field_is_named(
    api: Api, body: bytes, code: str | None, field: str | None
) -> None:
    reply = api.raw("POST", JOBS, body)
    if code is None:
        assert reply.status == 201
    else:
        assert_error(reply, 400, code, field)
        assert_nothing_stored(api)


UNPAIRED = {
    "high": (b'{"body":"\\ud800"}', "body"),
    "low": (b'{"body":{"a":["\\uDC00"]}}', "body"),
    "high before a letter": (b'{"body":"\\uDBFF\\u0041"}', "body"),
    "high before a pair": (b'{"body":"\\ud83d\\ud83d\\ude00"}', "body"),
    "after an escaped backslash": (b'{"body":"\\\\\\ud800"}', "body"),
    "in a name": (b'{"body":{"\\ud800":1}}', "body"),
    "in an id": (b'{"id":"\\ud800","body":1}', "id"),
    "in a tag": (b'{"body":1,"tags":["\\udfff"]}', "tags"),
    "in an item": (b'[{"body":"\\ud83d\\ude00"},{"body":"!lone0"},{"body":"\\ud800"}]', "[2].body"),
}


@pytest.mark.parametrize(("body", "field"), UNPAIRED.values(), ids=UNPAIRED.keys())
def test_a_lone_surrogate_is_called_by_its_name_where_it_stands(api: Api, body: bytes, field: str) -> None:
    reply = api.raw("POST", JOBS, body)
    assert_error(reply, 400, "invalid_field", field)
    assert "unpaired surrogate" in reply.json["error"]["message"]
    assert_nothing_stored(api)


def test_escapes_that_only_look_like_lone_surrogates_are_taken(api: Api) -> None:
    assert api.raw("POST", JOBS, b'{"body":["\\\\ud800","\\ud83d\\ude00","\\ud7ff"]}').status == 201


@pytest.mark.parametrize("delay", [{"at": "9999-01-01T00:00:00Z"}, {"at_ms": 99999999999999}])
def test_a_patch_to_a_time_out_of_reach_names_the_field_that_was_sent(api: Api, delay: dict[str, Any]) -> None:
    api.send()
    [field] = delay
    assert_error(api.patch(f"{JOBS}/a", delay), 400, "invalid_field", field)


TOO_MANY = {
    "ack": ({"jobs": [{"id": "a", "lease": "x"}] * 1001}, "jobs"),
    "release": ({"jobs": [{"id": "a", "lease": "x"}] * 1001}, "jobs"),
    "extend": ({"jobs": [{"id": "a", "lease": "x", "lease_ms": 1}] * 1001}, "jobs"),
    "cancel": ({"ids": ["a"] * 1001}, "ids"),
    "dead/revive": ({"ids": ["a"] * 1001}, "ids"),
    "dead/purge": ({"ids": ["a"] * 1001}, "ids"),
}


@pytest.mark.parametrize("path", TOO_MANY)
def test_more_items_than_a_call_may_have_are_refused(api: Api, path: str) -> None:
    body, field = TOO_MANY[path]
    assert_error(api.post(f"/v1/topics/t/{path}", body), 400, "too_many_items", field)


@pytest.mark.parametrize("path", TOO_MANY)
def test_the_configured_number_of_items_is_refused_in_the_same_way(path: str) -> None:
    api = Api(Limits(max_items=10))
    try:
        body, field = TOO_MANY[path]
        few = {name: items[:11] for name, items in body.items()}
        assert_error(api.post(f"/v1/topics/t/{path}", few), 400, "too_many_items", field)
    finally:
        api.close()


@pytest.mark.parametrize(
    ("topics", "code", "field"),
    [
        (["", "t"], "invalid_field", "topics[0]"),
        (["t", "a" * 513], "invalid_field", "topics[1]"),
        (["t", "a\n"], "invalid_field", "topics[1]"),
        ([f"t{number}" for number in range(101)], "too_many_items", "topics"),
        (["t", "t"], "invalid_field", "topics"),
        ([], "invalid_field", "topics"),
    ],
)
def test_a_pull_of_several_topics_names_the_one_that_is_wrong(
    api: Api, topics: list[str], code: str, field: str
) -> None:
    assert_error(api.post("/v1/pull", {"topics": topics}), 400, code, field)


@pytest.mark.parametrize("tags", [["a"] * 17, ["x", "x"], [""], ["y" * 65], ["a\x00"]])
def test_tags_have_limits(api: Api, tags: list[str]) -> None:
    reply = api.post(JOBS, {"body": 1, "tags": tags})
    assert reply.status == 400
    assert reply.json["error"]["field"] == "tags"
    assert_nothing_stored(api)


def test_a_body_may_be_64_deep_and_brackets_in_texts_do_not_count(api: Api) -> None:
    assert api.raw("POST", JOBS, b'{"body":' + b"[" * 64 + b"]" * 64 + b"}").status == 201
    text = json.dumps({"a": '[{"\\"' * 200, "b": [{"c": "}]" * 100}] * 200})
    assert api.raw("POST", JOBS, b'{"body":' + text.encode() + b"}").status == 201


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def real_depth(value: object) -> int:
    if isinstance(value, list):
        return 1 + max(map(real_depth, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(real_depth, value.values()), default=0)
    return 0


@given(values)
@settings(max_examples=60, deadline=None)
def test_the_depth_of_json_is_counted_right(value: object) -> None:
    assert depth(json.dumps(value).encode()) == real_depth(value)


def test_a_wide_body_is_taken(api: Api) -> None:
    assert api.raw("POST", JOBS, b'{"id":"a","body":[' + b'{"a":[1]},' * 20_000 + b"1]}").status == 201


def assert_some_refusal_or_success(reply: Reply) -> None:
    if reply.status >= 400:
        error = reply.json["error"]
        assert error["code"] in CODES[reply.status]
        assert set(error) - {"done"} == {"code", "message", "field"}
    else:
        assert reply.status in (200, 201)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_json_at_all_makes_a_500(data: st.DataObject) -> None:
    """Any value under any known or unknown name, on any operation."""
    operation = data.draw(st.sampled_from([o for o in OPERATIONS if o.request is not None and not o.parks]))
    names = ["id", "body", "delay", "delay_ms", "at", "at_ms", "jobs", "ids", "filter", "retry", "tags", "headers", "x"]
    names += ["lease_ms", "max_attempts", "ttl_ms", "version", "until_ms", "partitions", "dry_run", "on_conflict"]
    names += ["name", "rights", "topics", "namespace", "expires", "expires_at_ms", "overlap"]
    names += ["topic", "job", "cron", "tz", "every", "starts_at_ms", "ends_at_ms", "misfire", "jitter_ms", "paused"]
    body = data.draw(st.dictionaries(st.sampled_from(names), values, max_size=4) | values)
    api = Api()
    try:
        path = operation.pattern.format(topic="t", id="a", token="5d41402abc4b", name="s")
        assert_some_refusal_or_success(api.raw(operation.method, path, json.dumps(body).encode()))
    finally:
        api.close()


@given(st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_bytes_at_all_make_a_500(body: bytes) -> None:
    api = Api()
    try:
        assert_some_refusal_or_success(api.raw("POST", JOBS, body))
    finally:
        api.close()


@given(st.text(max_size=140) | st.from_regex(r"[A-Za-z0-9._:-]{1,140}", fullmatch=True))
def test_the_rules_for_a_native_name_are_stricter_than_those_of_the_engine(name: str) -> None:
    # So the engine does not check such an id again (Send.plain_id).
    assert is_name(name) == bool(re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", name))
    assert not is_name(name) or check_name(name, "id") == name
