"""The same routes behind any ASGI server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dueline.server.asgi import AsgiApp
from dueline.server.authentication import Authenticator, OpenAccess
from dueline.server.router import Router

from .kit import Answer, Probe, assert_error
from .test_authentication import TOKEN, Guests


class Exchange:
    """One request to the application, as an ASGI server would make it."""

    def __init__(self, method: str, path: str, chunks: list[bytes], headers: dict[str, str]) -> None:
        raw_path, _, query = path.encode().partition(b"?")
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": "/decoded-by-the-server",
            "raw_path": raw_path,
            "query_string": query,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for place, chunk in enumerate(chunks):
            self.messages.put_nowait({"type": "http.request", "body": chunk, "more_body": place < len(chunks) - 1})
        self.sent: list[dict[str, Any]] = []
        self.gone = False

    async def send(self, message: dict[str, Any]) -> None:
        if self.gone:
            raise OSError("the client is gone")
        self.sent.append(message)

    def answer(self) -> Answer:
        start, body = self.sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], headers, body["body"])


async def ask(
    method: str,
    path: str,
    chunks: list[bytes] | None = None,
    headers: dict[str, str] | None = None,
    limit: int = 1000,
    between: Callable[[Probe, Exchange], Awaitable[None]] | None = None,
    auth: Authenticator = OpenAccess(),
) -> tuple[Exchange, Probe]:
    probe = Probe()
    app = AsgiApp(Router([probe]), max_body_bytes=limit, auth=auth)
    exchange = Exchange(method, path, chunks or [b""], headers or {})
    call = asyncio.ensure_future(app(exchange.scope, exchange.messages.get, exchange.send))
    if between is not None:
        await between(probe, exchange)
    await asyncio.wait_for(asyncio.gather(call, return_exceptions=True), 5)
    return exchange, probe


async def test_a_request_arrives_whole() -> None:
    exchange, _ = await ask("POST", "/things/a%2Fb?q=1", [b"he", b"llo"], {"X-A": "1"})
    shown = exchange.answer().json()
    assert (shown["params"], shown["query"], shown["body"], shown["headers"]) == (["a/b"], "q=1", "hello", {"x-a": "1"})


async def test_head_has_a_length_and_no_body() -> None:
    answer = (await ask("HEAD", "/refused"))[0].answer()
    assert (answer.status, answer.body) == (400, b"")
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("chunks", "headers"),
    [([b"x" * 600, b"x" * 600], {}), ([b""], {"content-length": "1001"}), ([b""], {"content-length": "9" * 30})],
)
async def test_a_body_over_the_limit_is_refused(chunks: list[bytes], headers: dict[str, str]) -> None:
    exchange, probe = await ask("POST", "/echo", chunks, headers)
    assert_error(exchange.answer(), 413, "body_too_large")
    assert probe.seen == []


async def test_both_length_headers_are_refused() -> None:
    exchange, _ = await ask("POST", "/echo", [b"x"], {"content-length": "1", "transfer-encoding": "chunked"})
    assert_error(exchange.answer(), 400, "bad_request")


async def test_a_poll_whose_token_ended_meanwhile_gets_no_job() -> None:
    guests = Guests(TOKEN)

    async def revoke(probe: Probe, _: Exchange) -> None:
        await probe.parked.wait()
        guests.tokens.clear()
        probe.release.set()

    exchange, probe = await ask(
        "GET", "/own/park", headers={"authorization": f"Bearer {TOKEN}"}, between=revoke, auth=guests
    )
    assert_error(exchange.answer(), 401, "unauthorized")
    assert probe.undelivered.is_set()


async def test_a_client_that_leaves_cancels_its_parked_handler() -> None:
    async def leave(probe: Probe, exchange: Exchange) -> None:
        await probe.parked.wait()
        exchange.messages.put_nowait({"type": "http.disconnect"})
        await probe.cancelled.wait()

    exchange, _ = await ask("GET", "/park", between=leave)
    assert exchange.sent == []


async def test_a_client_that_leaves_while_it_sends_reaches_no_handler() -> None:
    probe = Probe()
    exchange = Exchange("POST", "/echo", [], {})
    exchange.messages.put_nowait({"type": "http.request", "body": b"x", "more_body": True})
    exchange.messages.put_nowait({"type": "http.disconnect"})
    await AsgiApp(Router([probe]))(exchange.scope, exchange.messages.get, exchange.send)
    assert (exchange.sent, probe.seen) == ([], [])


async def test_an_answer_that_cannot_be_written_counts_as_undelivered() -> None:
    async def vanish(probe: Probe, exchange: Exchange) -> None:
        await probe.parked.wait()
        exchange.gone = True
        probe.release.set()
        await probe.undelivered.wait()

    await ask("GET", "/park", between=vanish)


async def test_the_lifespan_runs_the_hooks() -> None:
    done: list[str] = []

    async def start() -> None:
        done.append("start")

    async def stop() -> None:
        raise RuntimeError("no")

    messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    messages.put_nowait({"type": "lifespan.startup"})
    messages.put_nowait({"type": "lifespan.shutdown"})
    sent: list[str] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message["type"])

    await AsgiApp(Router([Probe()]), startup=start, shutdown=stop)({"type": "lifespan"}, messages.get, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.failed"]
    assert done == ["start"]


async def test_no_piece_of_a_stream_is_sent_after_the_end_of_its_grant() -> None:
    guests = Guests(TOKEN)

    async def expire(probe: Probe, exchange: Exchange) -> None:
        await probe.parked.wait()
        guests.tokens.clear()
        probe.release.set()

    headers = {"Authorization": f"Bearer {TOKEN}"}
    exchange, probe = await ask("GET", "/pieces?3", headers=headers, between=expire, auth=guests)
    assert (exchange.answer().status, exchange.answer().body) == (200, b"")
    assert probe.undelivered.is_set()
