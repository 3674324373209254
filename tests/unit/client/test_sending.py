"""Python values as the API's words: durations, moments, bodies, options."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from dueline.api import answers as r
from dueline.cli.values import duration as typed_duration
from dueline.client import errors, new_job
from dueline.client.api import Api
from dueline.client.times import duration_ms, moment_ms
from dueline.durations import datetime_of
from dueline.engine.policy import duration_ms as engine_duration_ms


def wire(*args: Any, **options: Any) -> Any:
    """A job as it travels, without the id that was made for it."""
    job = msgspec.json.decode(msgspec.json.encode(new_job(*args, **options)))
    return {name: value for name, value in job.items() if name != "id" or "id" in options}


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("90s", 90_000),
        ("1.5h", 5_400_000),
        ("0.1ms", 1),
        ("1w", 604_800_000),
        ("1h30m", 5_400_000),
        (0, 0),
        (30, 30_000),
        (0.0001, 1),
        (1.5, 1500),
        (timedelta(days=15), 1_296_000_000),
        (timedelta(microseconds=1), 1),
    ],
)
def test_a_duration_is_a_text_seconds_or_a_timedelta_and_rounds_up(value: Any, ms: int) -> None:
    assert duration_ms(value) == ms


@given(st.from_regex(r"([0-9]{1,3}(\.[0-9]{1,3})?(ms|s|m|h)){1,3}", fullmatch=True))
def test_client_server_and_command_line_read_a_duration_in_the_same_way(text: str) -> None:
    assert duration_ms(text) == engine_duration_ms(text) == typed_duration(text)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("90", ValueError),
        ("-1s", ValueError),
        ("1 s", ValueError),
        ("１s", ValueError),
        (-0.5, ValueError),
        (timedelta(seconds=-1), ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (True, TypeError),
        ([], TypeError),
    ],
)
def test_what_is_no_duration_is_refused_by_its_name(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^lease: "):
        duration_ms(value, "lease")


def test_a_moment_is_an_aware_datetime_or_a_text_with_an_offset_and_rounds_up() -> None:
    berlin = timezone(timedelta(hours=1))
    assert [
        moment_ms(value)
        for value in (
            datetime(1970, 1, 1, 1, 0, 1, tzinfo=berlin),
            datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            "1970-01-01T00:00:01Z",
            datetime(1969, 1, 1, tzinfo=UTC),
        )
    ] == [1000, 1, 1000, 0]
    assert datetime_of(1000) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime(2030, 1, 1), ValueError),
        ("2030-01-01T00:00:00", ValueError),
        ("tomorrow", ValueError),
        (1893456000000, TypeError),
    ],
)
def test_what_is_no_moment_is_refused_by_its_name(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^until: "):
        moment_ms(value, "until")


def test_a_text_is_sent_as_it_was_written_and_a_value_in_milliseconds() -> None:
    noon = datetime(1970, 1, 2, tzinfo=UTC)
    assert [wire(1, delay="30m"), wire(1, delay=1.5), wire(1, at="2030-01-01T08:00:00Z"), wire(1, at=noon)] == [
        {"body": 1, "delay": "30m"},
        {"body": 1, "delay_ms": 1500},
        {"body": 1, "at": "2030-01-01T08:00:00Z"},
        {"body": 1, "at_ms": 86_400_000},
    ]


def test_every_option_has_its_place() -> None:
    options: dict[str, Any] = {"id": "a", "on_conflict": "keep", "lease": "1m", "ttl": 5, "max_attempts": None}
    options |= {"retry": ["2m", 10, timedelta(hours=1)], "tags": ["x"], "headers": {"k": "v"}}
    assert wire({"n": 1}, **options) == {
        "id": "a",
        "body": {"n": 1},
        "on_conflict": "keep",
        "lease_ms": 60_000,
        "ttl_ms": 5000,
        "max_attempts": None,
        "retry": {"ladder": ["2m", "10000ms", "3600000ms"]},
        "tags": ["x"],
        "headers": {"k": "v"},
    }
    assert wire(1, retry={"base_ms": 10}) == {"body": 1, "retry": {"base_ms": 10}}


def test_an_item_of_a_merge_group_has_an_id_of_its_own_so_that_a_repeat_adds_it_once() -> None:
    one, two = (wire(1, merge="user-7")["merge"] for _ in range(2))
    assert one["key"] == two["key"] == "user-7"
    assert one["item_id"] != two["item_id"]
    options = {"key": "k", "quiet": "10s", "max_wait": 60, "max_items": 5, "update": "once"}
    merge = wire(1, merge=options)["merge"]
    del merge["item_id"]
    assert merge == {"key": "k", "quiet_ms": 10_000, "max_wait_ms": 60_000, "max_items": 5, "update": "once"}


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"delay": "1m", "at": "2030-01-01T00:00:00Z"}, ValueError, "delay or at"),
        ({"delayed": "1m"}, TypeError, "no option delayed"),
        ({"tags": "x"}, TypeError, "tags"),
        ({"retry": "2m"}, TypeError, "retry"),
        ({"lease": -1}, ValueError, "lease"),
        ({"at": datetime(2030, 1, 1)}, ValueError, "at"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_sent(options: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        new_job(1, **options)


@dataclass
class Order:
    number: int
    price: Decimal


class Model:
    """What a pydantic model looks like from outside."""

    def __init__(self, number: int) -> None:
        self.number = number

    def model_dump(self, mode: str, by_alias: bool) -> dict[str, int]:
        assert (mode, by_alias) == ("json", True)
        return {"number": self.number}

    @classmethod
    def model_validate_json(cls, data: bytes) -> Model:
        return cls(msgspec.json.decode(data)["number"])


@pytest.mark.parametrize(
    ("body", "field", "travels"),
    [
        (None, "body", None),
        ("text", "body", "text"),
        (b"\x00\xff", "body_base64", "AP8="),
        (bytearray(b"\x00"), "body_base64", "AA=="),
        (memoryview(b"\x00"), "body_base64", "AA=="),
        (Raw(b"[1]"), "body", [1]),
        (Order(7, Decimal("1.50")), "body", {"number": 7, "price": "1.50"}),
        (Model(7), "body", {"number": 7}),
        (datetime(2030, 1, 1, tzinfo=UTC), "body", "2030-01-01T00:00:00Z"),
    ],
)
def test_a_body_is_json_text_or_bytes(body: Any, field: str, travels: Any) -> None:
    assert wire(body) == {field: travels}


def test_what_is_neither_json_nor_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be the body"):
        new_job(object())


def leased_job(body: Any) -> r.LeasedJob:
    fields = {
        "id": "a",
        "topic": "t",
        "attempt": 1,
        "delivery": 1,
        "lease": "L",
        "lease_until_ms": 2,
        "due_at_ms": 1000,
    }
    return msgspec.json.decode(msgspec.json.encode({**fields, "created_at_ms": 0, "body": body}), type=r.LeasedJob)


def test_a_body_comes_back_as_the_type_that_is_asked_for() -> None:
    order = leased_job({"number": 7, "price": "1.50"})
    assert order.body_as(Order) == Order(7, Decimal("1.50"))
    assert order.body_as(dict[str, Any]) == order.json() == {"number": 7, "price": "1.50"}
    assert order.body_as(Model).number == 7
    with pytest.raises(msgspec.ValidationError):
        leased_job("text").body_as(Order)
    assert order.due_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_an_error_survives_the_way_between_processes() -> None:
    error = errors.error_of("lease_lost", "m", "[3].lease", 409, "a")
    error.retry_after_s, error.results = 2.0, (r.Outcome("b", "acked"),)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.__dict__) == (errors.LeaseLost, str(error), error.__dict__)


def test_every_error_class_has_a_code() -> None:
    def all_of(kind: type[errors.DuelineApiError]) -> list[type[errors.DuelineApiError]]:
        return [kind, *(below for child in kind.__subclasses__() for below in all_of(child))]

    codes = [kind.code for kind in all_of(errors.DuelineApiError)]
    assert len(set(codes)) == len(codes) == 16
    assert {code: kind.code for code, kind in errors.BY_CODE.items()} == {code: code for code in errors.BY_CODE}


def test_a_number_of_retries_is_one_attempt_more() -> None:
    assert wire(retry=3) == {"body": None, "max_attempts": 4}
    assert wire(retry=0) == {"body": None, "max_attempts": 1}
    assert Api.patch(Api(), "t", "a", retry=3).request == {"max_attempts": 4}
    assert Api.set_topic(Api(), "t", retry=3, lease="1m").request == {"lease_ms": 60000, "max_attempts": 4}


@pytest.mark.parametrize(
    ("options", "kind", "wrong"),
    [
        ({"retry": -1}, ValueError, "retry: a number of retries must be at least 0"),
        ({"retry": True}, TypeError, "retry: "),
        ({"retry": "3"}, TypeError, "retry: "),
        ({"retry": 3, "max_attempts": 4}, ValueError, "retry=3 means max_attempts=4: give only one of them"),
        ({"retry": 3, "max_attempts": None}, ValueError, "give only one of them"),
    ],
)
def test_a_number_of_retries_that_cannot_be_meant_is_refused(options: Any, kind: type[Exception], wrong: str) -> None:
    with pytest.raises(kind, match=wrong):
        new_job(1, **options)


def test_a_push_target_has_waits_but_no_number_of_retries() -> None:
    retry: Any = 3
    with pytest.raises(TypeError, match="retry: "):
        Api.set_push(Api(), "t", "http://127.0.0.1:1", retry=retry)
