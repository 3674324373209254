"""The native API on the reference store with a clock that tests move: requests in, responses out, no sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from dueline.api.answers import Info, Job, LeasedJob
from dueline.dialects.contract import DialectContext, PushRules
from dueline.dialects.http import Request, Response
from dueline.dialects.native.dialect import NativeDialect
from dueline.dialects.settings import DialectSettings
from dueline.engine.engine import Engine
from dueline.engine.limits import Limits
from dueline.push.egress import Egress, check_token_list
from dueline.push.header_rules import check_target_headers
from dueline.push.signing import check_secret, masked
from dueline.server.router import Router
from dueline.store.memory import MemoryStore
from dueline.testing.clock import VirtualClock
from tests.kit.waiting import turns

START_MS = 1_800_000_000_000
JSON = {"content-type": "application/json"}
JOB_FIELDS = set(Job.__struct_fields__) - {"body", "body_base64", "items"}
LEASED_FIELDS = set(LeasedJob.__struct_fields__) - {"body", "body_base64", "items"}

CODES = {
    400: {"bad_json", "unknown_field", "missing_field", "invalid_field", "too_many_items"},
    401: {"unauthorized"},
    403: {"forbidden", "egress_refused"},
    404: {"not_found", "no_route"},
    405: {"method_not_allowed"},
    409: {
        "conflict",
        "id_exists",
        "version_mismatch",
        "lease_lost",
        "job_leased",
        "already_done",
        "topic_not_empty",
        "expanding",
        "too_many_tokens",
    },
    413: {"body_too_large"},
    414: {"url_too_long"},
    415: {"unsupported_media_type"},
    429: {"rate_limited"},
    503: {"unknown_outcome", "store_down", "store_replaced", "loading", "draining"},
    507: {"store_full"},
}


def info() -> Info:
    return Info("0.1.0", "", "fsync", "memory", {"max_body_bytes": 262144}, 0, "none")


def push_rules() -> PushRules:
    """What the server is wired with, but for the allow-list of a config."""
    return PushRules(
        url=lambda url, _namespace, _grant: Egress(allow=["127.0.0.9"]).check_url(url),
        allow_list=check_token_list,
        headers=check_target_headers,
        secret=check_secret,
        mask=masked,
    )


class Reply:
    """One response, read as a client reads it."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers = dict(response.headers)
        self.body = response.body
        self.undelivered = response.undelivered
        assert response.content_type == "application/json"
        self.json: Any = json.loads(response.body)

    def __eq__(self, other: object) -> bool:
        return (self.status, self.json) == other

    def __repr__(self) -> str:
        return f"{self.status} {self.body.decode()[:2000]}"


class Api:
    """A whole server without a transport. Calls run to their end, one after the other."""

    def __init__(self, limits: Limits = Limits(), runner: asyncio.Runner | None = None) -> None:
        self.clock = VirtualClock(START_MS)
        self.runner = runner or asyncio.Runner()
        self.store = MemoryStore(self.clock)
        self.engine = Engine(self.store, limits)
        dialect = NativeDialect(DialectSettings(), DialectContext(self.engine, info, push_rules()))
        self.router = Router([dialect], audit=self.engine.audit)
        self.run(self.store.start())
        self.run(self.engine.start())

    def close(self) -> None:
        self.run(self.engine.stop())
        self.run(self.store.stop())
        self.runner.close()

    def run(self, work: Any) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(work, 10)

        return self.runner.run(bounded())

    async def ask(self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
        path, _, query = target.partition("?")
        found = self.router.find(method, path)
        request = Request(method, path, query, JSON if headers is None else headers, body, found.params)
        return Reply(await self.router.respond(found, request))

    def raw(self, method: str, target: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
        return self.run(self.ask(method, target, body, headers))

    def get(self, target: str, **headers: str) -> Reply:
        return self.raw("GET", target, headers=headers or None)

    def delete(self, target: str) -> Reply:
        return self.raw("DELETE", target)

    def post(self, target: str, value: Any = None, namespace: str | None = None) -> Reply:
        headers = JSON if namespace is None else {**JSON, "dueline-namespace": namespace}
        return self.raw("POST", target, b"" if value is None else json.dumps(value).encode(), headers)

    def put(self, target: str, value: Any) -> Reply:
        return self.raw("PUT", target, json.dumps(value).encode())

    def patch(self, target: str, value: Any) -> Reply:
        return self.raw("PATCH", target, json.dumps(value).encode())

    # -- shortcuts for what a test needs first

    def send(self, id: str = "a", **fields: Any) -> dict[str, Any]:
        reply = self.post("/v1/topics/t/jobs", {"id": id, "body": {"n": 1}, **fields})
        assert reply.status in (200, 201), reply
        return reply.json

    def pull(self, max: int = 10, **fields: Any) -> list[dict[str, Any]]:
        reply = self.post("/v1/topics/t/pull", {"max": max, **fields})
        assert reply.status == 200, reply
        return reply.json["jobs"]

    def lease(self, id: str = "a", **fields: Any) -> str:
        """Send a job, pull it, and give its lease."""
        self.send(id, **fields)
        return next(job["lease"] for job in self.pull() if job["id"] == id)

    def job(self, id: str = "a") -> Reply:
        return self.get(f"/v1/topics/t/jobs/{quote(id, safe='')}")

    def counts(self) -> dict[str, int]:
        return self.get("/v1/topics/t").json["counts"]


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until something is so."""
    for _ in range(1000):
        if condition():
            return
        await turns()
    raise AssertionError("it never came true")


def assert_error(reply: Reply, status: int, code: str, field: str | None = None, results: bool = False) -> None:
    """The one error shape, of an answer to a whole call."""
    assert reply.status == status, reply
    beside = {"unknown_outcome": {"id"}, "version_mismatch": {"version"}}.get(code, set())
    assert set(reply.json) - ({"results"} if results else set()) - beside == {"error"}
    assert_refusal(reply.json["error"], status, code, field)
    if status in (429, 503):
        assert int(reply.headers["retry-after"]) >= 1


def assert_refusal(error: dict[str, Any], status: int, code: str, field: str | None = None) -> None:
    """The one error object, wherever it stands."""
    assert set(error) - ({"done"} if status == 503 else set()) == {"code", "message", "field"}
    assert code in CODES[status]
    assert (error["code"], error["field"]) == (code, field)
    assert isinstance(error["message"], str)
    assert error["message"]
    if status == 503:
        assert error["done"] is (None if code == "unknown_outcome" else False)
