"""When the server cannot: HTTP 200 with a code, because the SDK leaks a connection at any other status."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from dueline.dialects.camellia import encode
from dueline.dialects.camellia.handlers import CamelliaHandlers
from dueline.dialects.camellia.monitor import Monitor, Report
from dueline.dialects.camellia.pages import CamelliaPages
from dueline.dialects.camellia.settings import CamelliaSettings
from dueline.dialects.http import Request
from dueline.engine import errors
from dueline.engine.completion import Done, poll
from dueline.engine.engine import Engine
from dueline.engine.limits import Limits
from dueline.engine.metrics import EngineMetrics

POLL = Request("POST", "/camellia/delayQueue/longPollingMsg", "topic=t&longPollingTimeoutMillis=60000", {}, b"")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.StoreDown(), 500),
        (errors.UnknownOutcome(id="x"), 500),
        (errors.StoreFull(), 500),
        (errors.Loading(), 500),
        (errors.Draining(), 500),
        (errors.RateLimited(), 500),
        (errors.IdExists(), 400),
        (errors.InvalidField("too long", "id"), 400),
        (errors.BodyTooLarge(), 400),
        (errors.NotFound(), 404),
    ],
)
def test_refusals_of_the_engine_are_codes(error: errors.DuelineError, code: int) -> None:
    answer = encode.failed(POLL, error)
    assert (answer.status, b'{"code":%d,"msg":"' % code in answer.body) == (200, True)


@pytest.mark.parametrize(
    ("error", "status", "phrase"),
    [
        (errors.NoRoute(), 404, "Not Found"),
        (errors.MethodNotAllowed(), 405, "Method Not Allowed"),
        (errors.Unauthorized(), 401, "Unauthorized"),
        (errors.Forbidden(), 403, "Forbidden"),
    ],
)
def test_refusals_before_the_application_are_the_frameworks_pages(
    error: errors.DuelineError, status: int, phrase: str
) -> None:
    answer = encode.failed(POLL, error)
    assert (answer.status, f'"error":"{phrase}"'.encode() in answer.body) == (status, True)


class RefusingEngine:
    """An engine whose pulls fail."""

    def __init__(self, error: errors.DuelineError) -> None:
        self._error = error

    def post_pull(self, command: Any, done: Done) -> None:
        done(self._error)


@pytest.mark.parametrize(("error", "least_s"), [(errors.StoreDown(), 0.99), (errors.Draining(), 0.0)])
async def test_a_long_poll_learns_of_trouble_after_a_moment_so_that_the_sdk_does_not_run_hot(
    error: errors.DuelineError, least_s: float
) -> None:
    monitor = Monitor("camellia", 60_000, lambda: 0, EngineMetrics())
    handlers = CamelliaHandlers(cast(Engine, RefusingEngine(error)), Limits(), CamelliaSettings(), monitor)
    began_s = time.monotonic()
    with pytest.raises(type(error)):
        await poll(handlers.long_polling_msg, POLL)
    assert time.monotonic() - began_s >= least_s


class Unready:
    """A server that is up and cannot serve."""

    def ready(self) -> bool:
        return False

    def online(self) -> bool:
        return True

    def set_online(self, online: bool) -> None: ...

    async def report(self) -> Report:
        return Report()


async def test_a_server_that_is_not_ready_is_not_online() -> None:
    pages = CamelliaPages(cast(Engine, None), "camellia", Unready())
    assert (await pages.health_status(POLL)).status == 500
    assert (await pages.health_check(POLL)).status == 200
