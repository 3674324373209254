"""What OpenAPI promises, asked by schemathesis of the real front on the reference store: never a 500, always the one
error shape, answers as described. Bounded and without randomness: the same calls in every run.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from dueline.dialects.contract import DialectContext
from dueline.dialects.native.dialect import NativeDialect
from dueline.dialects.settings import DialectSettings
from dueline.engine.engine import Engine
from dueline.engine.limits import Limits
from dueline.server.front import Front
from dueline.server.openapi import document
from dueline.server.router import Router
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock

from .kit import CODES, START_MS, info, push_rules

pytestmark = pytest.mark.slow

LIMITS = Limits(max_wait_ms=0)  # a fuzzer would wait for minutes
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    allow_header_conformance,
]
config = schemathesis.Config.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": [400, 404, 405, 413, 414, 415]}}}
)
schema = schemathesis.openapi.from_dict(json.loads(document("0")), config=config).include(path_regex="^/v1/")
schema = schema.exclude(path="/v1/events")  # its answer does not end


class ServedApi:
    """The native API in a thread of its own."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.port = 0
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def start(self) -> None:
        self.thread.start()
        assert self.ready.wait(10)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.end.set)
        self.thread.join(10)

    async def _serve(self) -> None:
        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()
        store = MemoryStore(VirtualClock(START_MS))
        await store.start()
        engine = Engine(store, LIMITS)
        await engine.start()
        front = Front(Router([NativeDialect(DialectSettings(), DialectContext(engine, info, push_rules()))]))
        sock = socket.create_server(("127.0.0.1", 0))
        await front.start(sock)
        self.port = sock.getsockname()[1]
        self.ready.set()
        await self.end.wait()
        await front.drain(1)
        await engine.stop()
        await store.stop()


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    served = ServedApi()
    served.start()
    yield f"http://127.0.0.1:{served.port}"
    served.stop()


@schema.parametrize()
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_server_does_what_its_description_says(case: schemathesis.Case, base_url: str) -> None:
    response = case.call(base_url=base_url)
    case.validate_response(response, checks=CHECKS)
    if response.status_code >= 400 and case.method != "HEAD":
        error = response.json()["error"]
        assert error["code"] in CODES[response.status_code] | (
            {"bad_request"} if response.status_code == 400 else set()
        )
        assert set(error) - {"done"} == {"code", "message", "field"}
