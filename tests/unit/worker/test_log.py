"""The lines that a worker writes for people."""

from __future__ import annotations

import logging

import pytest

from dueline.worker.log import shown_log


def test_a_line_has_no_secrets_not_even_in_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    log, handler = logging.getLogger("dueline.worker.test"), shown_log("%(levelname)s %(message)s")
    log.addHandler(handler)
    try:
        raise ConnectionError("redis://:hunter2@host:6379 is away")
    except ConnectionError:
        log.exception("cannot reach %s", "rediss://me:hunter2@host")
    finally:
        log.removeHandler(handler)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert (first, last) == (
        "ERROR cannot reach rediss://***@host",
        "ConnectionError: redis://***@host:6379 is away",
    )
