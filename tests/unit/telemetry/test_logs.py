"""The log has one shape for all, and no secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dueline.event_log import EventLog
from dueline.telemetry import logs
from tests.kit.log_lines import logging_restored

CANARY = "canary-7d1f"


@contextmanager
def configured(format: str, stream: io.StringIO, always: dict[str, object] | None = None) -> Iterator[None]:
    with logging_restored():
        logs.configure("info", format, stream, always)
        yield


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    with configured("json", stream):
        yield stream


def test_both_kinds_of_loggers_write_the_same_shape(out: io.StringIO) -> None:
    EventLog("dueline.a").info("one", job="x")
    logging.getLogger("dueline.b").warning("two %s", "words")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    shapes = [{key: line[key] for key in ("event", "level", "logger")} for line in lines]
    assert shapes == [
        {"event": "one", "level": "info", "logger": "dueline.a"},
        {"event": "two words", "level": "warning", "logger": "dueline.b"},
    ]
    assert lines[0]["job"] == "x"


def test_what_is_below_the_level_is_not_written(out: io.StringIO) -> None:
    logging.getLogger("dueline").debug("quiet")
    assert out.getvalue() == ""


def test_secrets_are_taken_out_by_name_and_by_look(out: io.StringIO) -> None:
    log = EventLog("dueline")
    log.info("a", token=CANARY, Authorization=CANARY, store_password=CANARY, nested={"api_key": CANARY})
    log.info(
        f"cannot reach redis://:{CANARY}@host:6379/0", url=f"rediss://user:{CANARY}@host", many=[f"Bearer {CANARY}"]
    )
    log.info(f"token dl_abc_{CANARY}{'x' * 30}")
    log.info(f'sent {{"Authorization": "Token {CANARY}", "Cookie": "a={CANARY}; b=1"}}', headers=f"X-Api-Key: {CANARY}")
    log.info("answered " + json.dumps(f'{{"authorization": "Digest {CANARY}"}}'))
    logging.getLogger("other").error("failed: redis://u:%s@host", CANARY)
    try:
        raise ValueError(f"redis://:{CANARY}@host")
    except ValueError:
        log.exception("broken")
    written = out.getvalue()
    assert CANARY not in written
    assert len(written.splitlines()) == 7
    assert "redis://***@host:6379/0" in written


def test_a_line_for_people_has_its_fields_and_traceback_behind_the_text() -> None:
    out = io.StringIO()
    with configured("text", out, {"worker": 1}):
        try:
            raise ValueError("no")
        except ValueError:
            EventLog("dueline.a").exception("broken", job="x", reason="two words")
    first, *trace = out.getvalue().splitlines()
    assert first.partition("Z ")[2] == "[error   ] broken [dueline.a] worker=1 job=x reason='two words'"
    assert (trace[0], trace[-1]) == ("Traceback (most recent call last):", "ValueError: no")


def test_a_field_of_every_line_gives_way_to_that_of_the_line() -> None:
    out = io.StringIO()
    with configured("json", out, {"worker": 1}):
        EventLog("dueline.a").info("one")
        EventLog("dueline.a").info("two", worker=2, what=ValueError("no"))
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["event"], line["worker"]) for line in lines] == [("one", 1), ("two", 2)]
    assert lines[1]["what"] == "ValueError('no')"


def test_a_program_with_a_log_of_its_own_sees_the_fields_in_the_message(caplog: pytest.LogCaptureFixture) -> None:
    EventLog("dueline.a").warning("100 % full", job="x", bytes=1)
    assert [record.getMessage() for record in caplog.records] == ["100 % full job='x' bytes=1"]
