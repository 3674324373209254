"""Service mode from the application's side, against our own server: jobs go out by `submit` and come back as work."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import msgspec
import pytest
from aiohttp import web

from dueline.worker import Context, TaskWorker
from dueline.worker.service import PATH, SpringService, SubmitFailed

from ..kit.eureka import Registry
from .serve_kit import served

WITHIN_S = 60.0
RARELY_S = 86_400  # the registry client's own heartbeat thread cannot be ended: it never begins

DONE: queue.Queue[tuple[str, Any]] = queue.Queue()
FAIL = threading.Event()


class Order(msgspec.Struct):
    order: int


class Close(TaskWorker):
    type = "task1"

    def invoke(self, params: str) -> None:
        DONE.put(("Close", params))


class CloseToo(TaskWorker):
    type = "task1"

    async def invoke(self, params: Any, context: Context) -> None:
        DONE.put(("CloseToo", (params, context.id, context.topic)))


class Typed(TaskWorker):
    type = "typed"

    def invoke(self, params: Order) -> None:
        DONE.put(("Typed", params))


class Fails(TaskWorker):
    type = "fails"

    def invoke(self, params: str) -> None:
        DONE.put(("Fails", params))
        if FAIL.is_set():
            raise LookupError(params)


def next_done() -> tuple[str, Any]:
    return DONE.get(timeout=WITHIN_S)


def test_all_classes_of_a_module_are_the_task_types() -> None:
    assert SpringService("a", modules=[__name__]).task_types == ("task1", "typed", "fails", "leaves")


@pytest.mark.parametrize("strict", [False, True])
def test_work_is_answered_with_200_accepted_unless_it_failed_and_that_is_wanted(strict: bool) -> None:
    service = SpringService("a", modules=[__name__], strict=strict)
    FAIL.set()
    assert service.take(b'{"taskId":"1","taskType":"fails","params":"p"}') == (
        (500, b"failed") if strict else (200, b"accepted")
    )
    assert next_done() == ("Fails", "p")
    assert service.take(b'{"taskId":"1","taskType":"unknown"}') == (200, b"accepted")
    assert service.take(b'{"taskId":"1","taskType":"typed","params":"{\\"order\\":7}","new":1}') == (200, b"accepted")
    assert next_done() == ("Typed", Order(7))


class Leaves(TaskWorker):
    type = "leaves"

    def invoke(self, params: str) -> None:
        raise {"exit": SystemExit, "interrupt": KeyboardInterrupt, "cancel": asyncio.CancelledError}[params](3)


class LeavesToo(TaskWorker):
    type = "leaves"

    async def invoke(self, params: str) -> None:
        DONE.put(("LeavesToo", params))
        Leaves().invoke(params)


@pytest.mark.parametrize("how", ["exit", "interrupt", "cancel"])
@pytest.mark.parametrize("strict", [False, True])
def test_a_task_cannot_end_the_program_that_runs_it(how: str, strict: bool) -> None:
    service = SpringService("a", tasks=[Leaves, LeavesToo], strict=strict)
    answer = (500, b"failed") if strict else (200, b"accepted")
    body = msgspec.json.encode({"taskId": "1", "taskType": "leaves", "params": how})
    assert asyncio.run(asked(service, "POST", PATH, body)) == answer
    assert next_done() == ("LeavesToo", how), "the others of its type run all the same"
    if how != "interrupt":  # in the main thread that is the user, who ends the program
        assert service.take(body) == answer
        assert next_done() == ("LeavesToo", how)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", PATH, b"", 405),
        ("POST", "/elsewhere", b"{}", 404),
        ("POST", PATH, b"not json", 400),
        ("POST", PATH, b'{"taskType":"\xff"}', 400),
        ("POST", PATH, b'{"taskType":"task1"}', 400),
        ("POST", PATH, b"[" * 100_000, 400),
        ("POST", PATH, b'{"taskId":"1","taskType":"task1","new":' + b"[" * 100_000, 400),
        ("POST", f"/below{PATH}", b'{"taskId":"","taskType":""}', 200),
        ("POST", PATH, b" " * ((8 << 20) + 1), 413),
    ],
)
async def test_what_is_not_work_is_refused_alike_by_asgi_and_wsgi(
    method: str, path: str, body: bytes, status: int
) -> None:
    service = SpringService("a", modules=[__name__])
    assert (await asked(service, method, path, body))[0] == status
    seen: list[str] = []

    class Input:
        def read(self, size: int) -> bytes:
            return body[:size]

    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "CONTENT_LENGTH": str(len(body)), "wsgi.input": Input()}
    service.wsgi(environ, lambda line, headers: seen.append(line))
    assert seen[0].startswith(f"{status} ")


@pytest.mark.parametrize(("length", "status"), [("x", 400), ("-1", 400), ("", 400), ("9" * 5000, 413)])
def test_a_length_that_cannot_be_is_refused_by_wsgi(length: str, status: int) -> None:
    seen: list[str] = []
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": PATH, "CONTENT_LENGTH": length, "wsgi.input": None}
    SpringService("a").wsgi(environ, lambda line, headers: seen.append(line))
    assert seen[0].startswith(f"{status} ")


async def asked(service: SpringService, method: str, path: str, body: bytes) -> tuple[int, bytes]:
    """One request to the ASGI application."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await service.asgi({"type": "http", "method": method, "path": path}, receive, send)
    return sent[0]["status"], sent[1]["body"]


@asynccontextmanager
async def by_asgi(service: SpringService) -> AsyncIterator[int]:
    """Its ASGI application behind a real socket."""

    async def take(request: web.Request) -> web.Response:
        status, body = await asked(service, request.method, request.path, await request.read())
        return web.Response(status=status, body=body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def by_wsgi(service: SpringService) -> Iterator[int]:
    """Its WSGI application behind a real socket."""
    with make_server("127.0.0.1", 0, service.wsgi, handler_class=Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


async def test_a_job_that_is_submitted_comes_back_as_work_by_way_of_our_server_and_a_registry(tmp_path: Path) -> None:
    FAIL.clear()
    registry = Registry()
    await registry.start()
    variables = {"DUELINE_PUSH__ALLOW": "127.0.0.0/8", "DUELINE_DISCOVERY__EUREKA__URL": registry.url}
    serving = served(tmp_path / "data", **variables)
    server = await asyncio.to_thread(serving.__enter__)
    service = SpringService("billing", center_url=f"{server}/", modules=[__name__], strict=True)
    try:
        async with (
            by_asgi(service) as port,
            service.registered(registry.url, port, "127.0.0.1", renewal_interval_in_secs=RARELY_S),
        ):
            assert await service.asubmit("task1", "p", id="1", delay="50ms") == "1"
            both = [await asyncio.to_thread(next_done) for _ in range(2)]
            assert both == [("Close", "p"), ("CloseToo", ("p", "1", "task1"))]
            await service.asubmit("typed", {"order": 7}, at="2020-01-01T00:00:00Z")
            assert await asyncio.to_thread(next_done) == ("Typed", Order(7))
        other = SpringService("shipping", server, tasks=[Fails])
        with by_wsgi(other) as port:
            async with other.registered(registry.url, port, "127.0.0.1", renewal_interval_in_secs=RARELY_S):
                await other.asubmit("fails", "q")
                assert await asyncio.to_thread(next_done) == ("Fails", "q")
    finally:
        await asyncio.to_thread(serving.__exit__, None, None, None)
        await registry.stop()


def test_what_the_queue_does_not_take_is_reported() -> None:
    with pytest.raises(SubmitFailed) as unreachable:
        SpringService("a", center_url="http://user:hunter2@127.0.0.1:1").submit("task1", "p")
    assert (unreachable.value.status, "hunter2" in str(unreachable.value)) == (None, False)
    with pytest.raises(ValueError, match="center_url"):
        SpringService("a").submit("task1", "p")
    with pytest.raises(ValueError, match="not both"):
        SpringService("a", "http://127.0.0.1:1").submit("task1", "p", delay="1s", at="2030-01-01T00:00:00Z")
    with by_wsgi(SpringService("other")) as port, pytest.raises(SubmitFailed) as refused:
        SpringService("a", f"http://127.0.0.1:{port}").submit("task1", "p")
    assert refused.value.status == 404
