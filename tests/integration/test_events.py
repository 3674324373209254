"""The event stream of real servers: over HTTP and ASGI, for clients, after a revocation and a stop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dueline import AsyncClient, Client
from dueline.api.answers import Event
from dueline.client import calls, new_job
from dueline.config.settings import Server, Settings, Store
from dueline.runtime.locations import ExternalStore
from dueline.server.app import App
from dueline.server.asgi import AsgiApp
from dueline.testing.server import PrivateServer
from tests.kit.sse import Listener

from ..kit.valkey import PrivateValkey
from .serve_kit import served
from .test_tokens import TokenServer


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("events") / "data") as url:
        yield url


async def test_a_listener_is_told_what_happens_to_its_topics(url: str) -> None:
    async with Listener(url, "?topic=one&topic=two") as listener, AsyncClient(url) as client:
        assert listener.status == 200
        assert "content-type: text/event-stream\r\n" in listener.head
        assert "content-length" not in listener.head
        hello = await listener.next()
        assert hello is not None
        assert (hello.event, list(hello.data)) == ("hello", ["at_ms"])
        for topic in ("one", "other", "two"):
            await client.send(topic, {"secret": "body"}, id="a", headers={"secret": "header"})
        [job] = await client.pull("one")
        await client.release(job, error="it <b>failed</b>\nagain")
        await client.pull("two", by="mailer-1")
        found = [await listener.job() for _ in range(5)]
    assert [(one.data["what"], one.data["topic"], one.data["id"]) for one in found] == [
        ("sent", "one", "a"),
        ("sent", "two", "a"),
        ("delivered", "one", "a"),
        ("released", "one", "a"),
        ("delivered", "two", "a"),
    ]
    names = {"at_ms", "what", "topic", "id", "attempt", "state", "reason", "error", "by"}
    assert {frozenset(one.data) for one in found} == {frozenset(names)}
    assert found[3].data["error"] == "it <b>failed</b>\nagain"
    assert [one.data["by"] for one in found] == ["127.0.0.1"] * 4 + ["mailer-1"]
    assert "secret" not in str(found)


async def test_a_listener_continues_with_the_last_id(url: str) -> None:
    async with AsyncClient(url) as client:
        async with Listener(url, "?topic=again") as listener:
            await listener.next()
            await client.send_many("again", [new_job(n, id=str(n)) for n in range(3)])
            first = await listener.job()
        await client.send("again", 1, id="missed")
        for listener in (Listener(url, "?topic=again", Last_Event_ID=first.id), Listener(url, f"?after={first.id}")):
            async with listener:
                found = [await listener.job() for _ in range(3)]
                assert [one.data["id"] for one in found] == ["1", "2", "missed"]


@pytest.mark.parametrize("query", ["?after=x", "?topics=a", "?wait_ms=-1", "?wait_ms=a", "?after=1-1&after=1-2"])
async def test_a_wrong_query_is_refused(url: str, query: str) -> None:
    async with Listener(url, query) as listener:
        assert listener.status == 400


async def test_head_has_no_stream(url: str) -> None:
    async with Listener(url, method="HEAD") as listener:
        assert (listener.status, await listener.next()) == (200, None)


async def test_both_clients_iterate_over_events(url: str) -> None:
    async with AsyncClient(url) as client:
        events = client.events("sdk")
        hello = await anext(events)
        assert (hello.event, hello.at is not None) == ("hello", True)
        await client.send("sdk", 1, id="a")
        found = [one async for one in _until(events, "a")]
        assert found[-1].what == "sent"

    def blocking() -> list[str | None]:
        with Client(url) as client:
            behind: list[str | None] = []
            for event in client.events("sdk", after=hello.cursor):
                behind.append(event.what)
                if event.id == "a":
                    return behind
            return behind

    assert "sent" in await asyncio.to_thread(blocking)


async def test_a_page_without_a_wait_has_what_is_there(url: str) -> None:
    async with AsyncClient(url) as client, Listener(url, "?topic=page") as listener:
        hello = await listener.next()
        assert hello is not None
        await client.send("page", 1, id="a")
        await listener.job()  # it is in the stream now
        page = (await client.call(calls.events(("page",), hello.id, 0))).value
        assert [one.id for one in page.events if one.event == "job"] == ["a"]


async def _until(events: Any, id: str) -> Any:
    async for event in events:
        yield event
        if isinstance(event, Event) and event.id == id:
            return


async def test_a_stop_ends_the_streams_and_takes_no_longer(tmp_path: Path) -> None:
    with PrivateServer(tmp_path / "data") as server:
        async with Listener(server.url) as listener:
            await listener.next()
            await asyncio.to_thread(server.stop)
            while await listener.next() is not None:
                pass


@pytest.fixture
def token_server(tmp_path: Path) -> Iterator[TokenServer]:
    with served(tmp_path / "data", DUELINE_SERVER__AUTH="tokens") as url:
        yield TokenServer(url, tmp_path / "data")


async def test_a_stream_needs_its_topics_and_ends_with_its_token(token_server: TokenServer) -> None:
    url = token_server.url
    async with AsyncClient(url, token=token_server.admin) as admin:
        made = await admin.create_token("page", ["read"], topics=["mine-*"], max_polls=1)
        held = f"Bearer {made.token}"
        for query, status in (("", 403), ("?topic=other", 403), ("?topic=mine-1&topic=other", 403)):
            async with Listener(url, query, Authorization=held) as refused:
                assert refused.status == status
        async with Listener(url) as nobody, Listener(url, "?topic=mine-1", Authorization=held) as listener:
            assert (nobody.status, listener.status) == (401, 200)
            await listener.next()
            async with Listener(url, "?topic=mine-1", Authorization=held) as second:
                assert second.status == 429
            await admin.revoke_token(made.id)
            while (message := await listener.next()) is not None:
                assert message.event in ("hello", "gap")


async def test_an_asgi_server_streams_until_the_client_leaves() -> None:
    with PrivateValkey() as store:
        app = App(Settings(server=Server(listen="127.0.0.1:0"), store=Store(url=store.url)), ExternalStore(store.url))
        await app.open()
        sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        gone = asyncio.Event()
        bodies = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> dict[str, Any]:
            for body in bodies:
                return body
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await sent.put(message)

        scope = {"type": "http", "method": "GET", "path": "/v1/events", "query_string": b"", "headers": []}
        running = asyncio.ensure_future(AsgiApp(app.fronts[0].router)(scope, receive, send))
        try:
            begun = await asyncio.wait_for(sent.get(), 30)
            assert begun["status"] == 200
            assert dict(begun["headers"])[b"content-type"] == b"text/event-stream"
            first = await asyncio.wait_for(sent.get(), 30)
            assert b"event: hello" in first["body"]
            assert first["more_body"]
            gone.set()
            await asyncio.wait_for(running, 30)
        finally:
            gone.set()
            await app.stop(asyncio.Event())
