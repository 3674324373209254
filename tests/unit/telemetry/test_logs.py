"""The log has one shape for all, and no secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from dueline.telemetry import logs

CANARY = "canary-7d1f"


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.configure("info", "json", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_both_kinds_of_loggers_write_the_same_shape(out: io.StringIO) -> None:
    structlog.get_logger("dueline.a").info("one", job="x")
    logging.getLogger("dueline.b").warning("two %s", "words")
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    shapes = [{key: line[key] for key in ("event", "level", "logger")} for line in lines]
    assert shapes == [
        {"event": "one", "level": "info", "logger": "dueline.a"},
        {"event": "two words", "level": "warning", "logger": "dueline.b"},
    ]
    assert lines[0]["job"] == "x"


def test_what_is_below_the_level_is_not_written(out: io.StringIO) -> None:
    structlog.get_logger("dueline").debug("quiet")
    logging.getLogger("dueline").debug("quiet")
    assert out.getvalue() == ""


def test_secrets_are_taken_out_by_name_and_by_look(out: io.StringIO) -> None:
    log = structlog.get_logger("dueline")
    log.info("a", token=CANARY, Authorization=CANARY, store_password=CANARY, nested={"api_key": CANARY})
    log.info(
        f"cannot reach redis://:{CANARY}@host:6379/0", url=f"rediss://user:{CANARY}@host", many=[f"Bearer {CANARY}"]
    )
    log.info(f"token dl_abc_{CANARY}{'x' * 30}")
    logging.getLogger("other").error("failed: redis://u:%s@host", CANARY)
    try:
        raise ValueError(f"redis://:{CANARY}@host")
    except ValueError:
        log.exception("broken")
    written = out.getvalue()
    assert CANARY not in written
    assert len(written.splitlines()) == 5
    assert "redis://***@host:6379/0" in written
