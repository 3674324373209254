"""Health, readiness, metrics, OpenAPI and the docs page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dueline.api.operations import OPERATIONS
from dueline.dialects.http import Request, Response
from dueline.server.openapi import document
from dueline.server.router import Router
from dueline.server.system import SystemRoutes


async def ask(path: str, reasons: list[Any] | None = None, warnings: list[Any] | None = None) -> Response:
    async def metrics(accept: str) -> tuple[bytes, str]:
        return f"for {accept}".encode(), "text/plain; version=0.0.4"

    router = Router([SystemRoutes("1.2.3", lambda: reasons or [], lambda: warnings or [], metrics)])
    request = Request("GET", path, "", {"accept": "x"}, b"")
    return await router.respond(router.find("GET", path), request)


async def test_a_living_process_is_healthy_and_a_ready_one_is_ready() -> None:
    assert (await ask("/healthz")).status == 200
    assert ((await ask("/readyz")).status, (await ask("/readyz")).body) == (200, b'{"ready":true}')


async def test_a_process_that_is_not_ready_says_why() -> None:
    reply = await ask("/readyz", [{"code": "loading", "message": "the store is loading its data"}])
    assert reply.status == 503
    assert json.loads(reply.body) == {
        "ready": False,
        "reasons": [{"code": "loading", "message": "the store is loading its data"}],
    }
    assert (await ask("/healthz")).status == 200


async def test_a_warning_is_shown_and_leaves_the_process_ready() -> None:
    reply = await ask("/readyz", [], [{"code": "store_full", "message": "the store is full"}])
    assert reply.status == 200
    assert json.loads(reply.body) == {
        "ready": True,
        "warnings": [{"code": "store_full", "message": "the store is full"}],
    }


async def test_metrics_are_given_in_the_form_that_is_asked_for() -> None:
    reply = await ask("/metrics")
    assert (reply.body, reply.content_type) == (b"for x", "text/plain; version=0.0.4")


async def test_openapi_describes_every_operation_with_types_that_exist() -> None:
    described = json.loads((await ask("/openapi.json")).body)
    assert (described["openapi"], described["info"]["version"]) == ("3.1.0", "1.2.3")
    operations = {
        (method.upper(), path): operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    assert {(o.method, o.pattern) for o in OPERATIONS} <= set(operations)
    assert len({o["operationId"] for o in operations.values()}) == len(operations)
    schemas = described["components"]["schemas"]
    for reference in re.findall(r'"#/components/schemas/([^"]+)"', document("1").decode()):
        assert reference in schemas
    for operation in OPERATIONS:
        shown = operations[(operation.method, operation.pattern)]
        assert shown["summary"]
        assert ("requestBody" in shown) == (operation.request is not None)
        assert {"400", "429", "503"} <= set(shown["responses"])


def test_requests_in_openapi_take_no_other_fields() -> None:
    schemas = json.loads(document("1"))["components"]["schemas"]
    for operation in OPERATIONS:
        if operation.request is not None and isinstance(operation.request, type):
            assert schemas[operation.request.__name__]["additionalProperties"] is False


@pytest.mark.parametrize("path", ["/docs", "/docs/docs.js", "/docs/docs.css"])
async def test_the_docs_page_needs_nothing_from_elsewhere(path: str) -> None:
    reply = await ask(path)
    assert reply.status == 200
    headers = dict(reply.headers)
    assert headers["content-security-policy"].startswith("default-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    text = reply.body.decode()
    assert not re.search(r"https?://|//cdn|@import|innerHTML|eval\(|style=", text)
    if path == "/docs":
        assert not re.search(r"<script>|<style|\son\w+=", text)
        for target in re.findall(r'(?:src|href)="([^"]+)"', text):
            assert (await ask(target)).status == 200
