"""The audit of calls by the router: by command, of clients that leave, and of errors of ours."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from dueline.api.answers import Info
from dueline.api.reply import Reply
from dueline.config.settings import NamespaceLimits
from dueline.dialects.http import NotGranted, Request, Response, Route, TokenPlace, plain_error
from dueline.dialects.native.api import NativeApi
from dueline.engine.audit_log import AuditEntry, AuditFilter
from dueline.engine.engine import Engine
from dueline.engine.errors import DuelineError, Loading, QuotaExceeded, RateLimited, Unauthorized
from dueline.rights import Grant, Right
from dueline.server.asgi import AsgiApp
from dueline.server.authentication import OpenAccess
from dueline.server.front import Front
from dueline.server.quotas import Quotas
from dueline.server.router import Found, Router
from dueline.store.memory import MemoryStore


class Owner:
    """Routes that say what they do, and wait or fail if they are asked to."""

    namespace = "own"

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    def routes(self) -> Sequence[Route]:
        one = Route("POST", "/one", self.handle, "own_one", Right.MANAGE, TokenPlace.HEADER, audited=True)
        commands = {"drop": "own_drop"}
        two = Route("POST", "/two", self.handle, "own_two", Right.MANAGE, TokenPlace.HEADER, audited=commands)
        return one, two

    def failed(self, request: Request, error: DuelineError) -> Response:
        return plain_error(400, error.code, error.message)

    async def handle(self, request: Request) -> Response:
        request.describe("t", ["a"], command=request.body.decode(), changed=1)
        self.begun.set()
        if request.query == "wait":
            await asyncio.Event().wait()
        if request.query == "fail":
            raise ZeroDivisionError
        if request.query == "load":
            raise Loading
        return Response(200)


class AuditKit:
    def __init__(self) -> None:
        self.engine = Engine(MemoryStore(lambda: 7))
        self.owner = Owner()
        self.router = Router([self.owner], audit=self.engine.audit)

    async def ask(self, path: str, query: str = "", body: bytes = b"") -> Response:
        found = self.router.find("POST", path)
        return await self.router.respond(found, Request("POST", path, query, {}, body))

    async def entries(self) -> list[AuditEntry]:
        await self.engine.audit.stop()
        return (await self.engine.store.audit.page(AuditFilter(), b"", 10))[0]


async def test_a_handler_says_what_its_call_is_about() -> None:
    kit = AuditKit()
    await kit.ask("/one")
    [entry] = await kit.entries()
    assert (entry.action, entry.namespace, entry.topic, entry.status) == ("own_one", "own", "t", 200)
    assert entry.details == {"ids": ["a"], "ids_count": 1, "changed": 1}


async def test_a_route_with_commands_is_audited_for_those_that_it_names() -> None:
    kit = AuditKit()
    await kit.ask("/two", body=b"add")
    await kit.ask("/two", body=b"drop")
    assert [entry.action for entry in await kit.entries()] == ["own_drop"]


async def test_a_call_whose_client_left_is_in_the_log() -> None:
    kit = AuditKit()
    call = asyncio.create_task(kit.ask("/one", "wait"))
    await kit.owner.begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert [(entry.status, entry.code) for entry in await kit.entries()] == [(0, "client_gone")]


async def test_an_error_of_ours_is_in_the_log_and_a_starting_server_is_not() -> None:
    kit = AuditKit()
    assert [(await kit.ask("/one", query)).status for query in ("fail", "load")] == [500, 400]
    assert [(entry.status, entry.code) for entry in await kit.entries()] == [(500, "internal")]


async def test_a_call_in_this_process_that_is_cancelled_is_in_the_log() -> None:
    engine, begun = Engine(MemoryStore(lambda: 7)), asyncio.Event()
    api = NativeApi(engine, lambda: Info("0"))

    async def pause(*_: Any) -> Reply:
        begun.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    api.handlers["pause"] = pause
    call = asyncio.create_task(api.answer("pause", None, ("t",), None))
    await begun.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await engine.audit.stop()
    [entry] = (await engine.store.audit.page(AuditFilter(), b"", 10))[0]
    assert (entry.who, entry.namespace, entry.topic, entry.code) == ("local", "default", "t", "client_gone")


READER = Grant(frozenset({Right.READ}), token_id="k7", name="reports")


class OnlyReaders(OpenAccess):
    """Knows one token, which may only read."""

    def admit(self, found: Found, token: str | None, namespace: str | None) -> Grant:
        raise NotGranted("no", READER) if token == "known" else Unauthorized


async def by_socket(kit: AuditKit, token: str, quotas: Quotas) -> int:
    front = Front(kit.router, auth=OnlyReaders(), quotas=quotas)
    sock = socket.create_server(("127.0.0.1", 0))
    await front.start(sock)
    try:
        reader, writer = await asyncio.open_connection(*sock.getsockname())
        writer.write(f"POST /one HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        status = int((await reader.readline()).split()[1])
        writer.close()
        return status
    finally:
        await front.drain(1)


async def by_asgi(kit: AuditKit, token: str, quotas: Quotas) -> int:
    sent: list[Any] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/one",
        "raw_path": b"/one",
        "client": ("127.0.0.1", 5),
        "headers": [(b"host", b"x"), (b"authorization", f"Bearer {token}".encode())],
    }

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    await AsgiApp(kit.router, auth=OnlyReaders(), quotas=quotas)(scope, receive, send)
    return sent[0]["status"]


@pytest.mark.parametrize("ask", [by_socket, by_asgi])
async def test_a_call_refused_at_its_head_is_in_the_log_with_its_token_if_that_is_known(ask: Any) -> None:
    kit = AuditKit()
    assert [await ask(kit, token, Quotas()) for token in ("unknown", "known")] == [401, 403]
    [entry] = await kit.entries()
    assert (entry.who, entry.who_name, entry.address) == ("k7", "reports", "127.0.0.1")
    assert (entry.action, entry.status, entry.code) == ("own_one", 403, "forbidden")


@pytest.mark.parametrize("ask", [by_socket, by_asgi])
async def test_calls_refused_at_the_head_count_as_requests_and_leave_one_entry(ask: Any) -> None:
    kit, quotas = AuditKit(), Quotas({"own": NamespaceLimits(requests_per_s=0.001)})
    assert [await ask(kit, "known", quotas) for _ in range(11)] == [403] * 10 + [429]
    assert [entry.status for entry in await kit.entries()] == [403]
    assert kit.engine.audit.merged == 9


async def test_a_server_that_has_too_many_calls_says_429_in_every_dialect() -> None:
    kit = AuditKit()
    found = kit.router.find("POST", "/one")
    for error, after_s in ((RateLimited(), "1"), (QuotaExceeded(retry_after_s=7), "7")):
        answer = kit.router.failed(found, Request("POST", "/one", "", {}, b""), error)
        assert (answer.status, answer.headers) == (429, (("retry-after", after_s),))
