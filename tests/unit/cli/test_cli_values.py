"""What people type becomes what the API takes; what cannot be meant is a usage error."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable

import msgspec
import pytest
import typer
from msgspec import UNSET, Raw
from rich.console import Console, RenderableType

from dueline.api.answers import Counts, Event, Topic
from dueline.cli import tables, values
from dueline.cli.bulk import BATCH_JOBS, BadLine, Line, batches, read_lines
from dueline.cli.events import show
from dueline.cli.output import Output, Printer, merged, safe
from dueline.cli.push import target_values
from dueline.cli.values import BodyAs

DEEP = 100_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("2026-12-24T18:00:00.123Z", 1798135200123),
        ("1970-01-01T00:00:00.0000001Z", 0),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1798135200123", 1798135200123),
    ],
)
def test_a_time_is_read_to_the_millisecond_and_part_ones_round_up(text: str, ms: int) -> None:
    assert values.time_ms(text) == ms


def test_a_time_without_a_zone_is_this_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        assert values.time_ms("1970-01-02T08:00:00") == 86_400_000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01", "-5", "1e3", "٣"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        values.time_ms(text)


@pytest.mark.parametrize("text", ["", "5", "5x", "-1s", "1 h", "99999d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        values.duration(text)


@pytest.mark.parametrize(
    ("data", "how", "fields"),
    [
        (b' {"a": 1.0}\n', BodyAs.AUTO, (Raw(b'{"a": 1.0}'), None)),
        (b"42", BodyAs.AUTO, (Raw(b"42"), None)),
        (b"42", BodyAs.TEXT, (Raw(b'"42"'), None)),
        (b"hello\n", BodyAs.AUTO, (Raw(b'"hello\\n"'), None)),
        (b"\xff\x00", BodyAs.AUTO, (UNSET, "/wA=")),
        (b"42", BodyAs.BYTES, (UNSET, "NDI=")),
        (b"null", BodyAs.JSON, (Raw(b"null"), None)),
    ],
)
def test_a_body_is_taken_as_it_is_meant(data: bytes, how: BodyAs, fields: tuple[object, object]) -> None:
    assert values.body_fields(data, how) == fields


@pytest.mark.parametrize(
    ("data", "how"),
    [
        (b"{", BodyAs.JSON),
        (b"\xff", BodyAs.JSON),
        (b"\xff", BodyAs.TEXT),
        (b"[" * DEEP, BodyAs.JSON),
        (b"[" * DEEP, BodyAs.AUTO),
    ],
)
def test_a_body_that_is_not_what_it_is_said_to_be_is_refused(data: bytes, how: BodyAs) -> None:
    with pytest.raises(typer.BadParameter):
        values.body_fields(data, how)


def test_policy_values_are_json_or_durations_or_text() -> None:
    texts = ["max_attempts=5", "lease_ms=1m60s", "ttl_ms=null", 'retry={"ladder":["1m"]}', "on_conflict=keep"]
    assert values.policy_values(texts) == {
        "max_attempts": 5,
        "lease_ms": 120_000,
        "ttl_ms": None,
        "retry": {"ladder": ["1m"]},
        "on_conflict": "keep",
    }


@pytest.mark.parametrize("read", [values.policy_values, target_values])
def test_a_value_that_is_too_deep_is_refused_by_its_key(read: Callable[[list[str]], object]) -> None:
    with pytest.raises(typer.BadParameter, match="headers: is nested too deeply"):
        read(["headers=" + "[" * DEEP])


@pytest.mark.parametrize("text", ["", "k", "=v"])
def test_a_pair_without_key_or_sign_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        values.pairs([text], "--header")


def test_control_characters_of_a_job_cannot_drive_the_terminal() -> None:
    assert safe("ok\x1b[2J\x07\u009b1m\u202eend\n漢") == "ok\\x1b[2J\\x07\\x9b1m\\u202eend\n漢"


def test_a_line_of_a_file_keeps_its_bytes_and_gets_an_id_when_it_has_none() -> None:
    one, two = read_lines([b'{"body": 1.0, "id": "a"}\n', b"\n", b'{"body":{"x" : 2}}\n'])
    assert (one.number, one.id, one.job) == (1, "a", {"body": Raw(b"1.0"), "id": Raw(b'"a"')})
    assert (two.number, len(two.id), two.job["body"]) == (3, 32, Raw(b'{"x" : 2}'))


def test_a_line_that_joins_a_group_gets_the_id_of_its_item_and_none_of_its_own() -> None:
    lines = [
        b'{"body": 1.0, "merge": {"key": "k", "quiet_ms": 5}}\n',
        b'{"body":1,"merge":{"item_id":"i","key":"k"}}\n',
    ]
    one, two = read_lines(lines)
    assert (len(one.id), set(one.job)) == (32, {"body", "merge"})
    assert msgspec.json.decode(one.job["merge"]) == {"key": "k", "quiet_ms": 5, "item_id": one.id}
    assert (two.id, msgspec.json.decode(two.job["merge"])) == ("i", {"key": "k", "item_id": "i"})
    [plain] = read_lines([b'{"body":1,"merge":null}\n'])
    assert set(plain.job) == {"body", "merge", "id"}


@pytest.mark.parametrize(
    "text",
    [
        b"[1]\n",
        b"{\n",
        b'{"id": 5}\n',
        b"\xff\n",
        b'{"merge":1}\n',
        b'{"merge":{"item_id":5}}\n',
        b'{"body":' + b"[" * DEEP,
    ],
)
def test_a_line_that_is_no_job_is_named_by_its_number(text: bytes) -> None:
    with pytest.raises(BadLine, match="line 2"):
        list(read_lines([b"{}\n", text]))


def test_batches_hold_as_many_lines_and_bytes_as_a_server_takes() -> None:
    small = [Line(n, "x", {}, 10) for n in range(BATCH_JOBS + 1)]
    large = [Line(n, "x", {}, 900_000) for n in range(5)]
    assert [len(batch) for batch in batches(small)] == [BATCH_JOBS, 1]
    assert [len(batch) for batch in batches(large)] == [2, 2, 1]


def test_pages_become_one_list_of_the_same_shape() -> None:
    pages = [b'{"jobs":[{"a": 1.0}],"next_cursor":"x","by_reason":{"expired":3}}', b'{"jobs":[2],"next_cursor":null}']
    assert msgspec.json.decode(merged(pages, "jobs")) == {
        "jobs": [{"a": 1.0}, 2],
        "next_cursor": None,
        "by_reason": {"expired": 3},
    }


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (61_000, "1m 1s"),
        (3_600_000, "1h"),
        (90_061_000, "1d 1h"),
        (None, "-"),
    ],
)
def test_a_length_of_time_has_two_units_at_most(ms: int | None, text: str) -> None:
    assert tables.age(ms) == text


def shown(what: RenderableType) -> str:
    out = io.StringIO()
    Console(width=300, file=out).print(what)
    return re.sub(r" +", " ", out.getvalue())


def test_a_topic_shows_how_fast_it_is_how_late_and_what_its_histories_lack() -> None:
    quick = Topic("orders", Counts(), done_per_s=12.34, late_p99_ms=1500.0, history_dropped=3)
    fresh = Topic("new", Counts())
    watched = shown(tables.topics((quick, fresh), 0, {"orders": 1.0}))
    assert "CHANGE/S DONE/S LATE P99" in watched
    assert "+1.0 12.3 1s" in watched
    facts = shown(tables.topic(quick, 0))
    assert "done per second 12.3" in facts
    assert "3 entries did not fit limits.max_history_bytes" in facts
    assert "did not fit" not in shown(tables.topic(fresh, 0))


def test_a_line_of_an_event_says_to_whom_a_job_was_delivered_and_who_did_the_rest(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    printer = Printer(Output.TABLE)
    job = Event(event="job", at_ms=0, what="delivered", topic="orders", id="a", attempt=1, by="mailer-1")
    show(printer, job)
    show(printer, msgspec.structs.replace(job, what="acked", attempt=None))
    lines = capfdbinary.readouterr().out.decode().splitlines()
    assert [line.split("orders ")[1] for line in lines] == ["a attempt 1 to mailer-1", "a by mailer-1"]
