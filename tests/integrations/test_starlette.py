"""FastAPI and Starlette: parts that live as long as the application, and the server mounted inside of it."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from dueline import AsyncClient, Client, NotAllowed
from dueline.cli.direct import StoreClient
from dueline.client import Patience
from dueline.integrations.mounted import MountedServer, _below
from dueline.integrations.starlette import lifespan
from dueline.testing.queue import VirtualQueue
from dueline.worker import Worker


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of a real uvicorn in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        started = threading.Event()
        startup = server.startup

        async def startup_and_signal(*args: Any, **options: Any) -> None:
            await startup(*args, **options)
            started.set()

        server.startup = startup_and_signal  # uvicorn has no other signal for "I listen"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            assert started.wait(30)
            yield url
        finally:
            server.should_exit = True
            thread.join(30)


def shop(data: Path) -> tuple[FastAPI, MountedServer, list[int], Worker]:
    """A web shop with its own queue inside: one process, no other service."""
    server = MountedServer(data=data, env={}, insecure=True)
    worker = Worker(f"embedded:{data}")
    closed: list[int] = []

    @worker.handles("order.close")
    async def close(order: int) -> None:
        closed.append(order)

    app = FastAPI(lifespan=lifespan(server, worker))
    app.mount("/queue", server)

    @app.post("/orders/{order}")
    async def place(order: int) -> str:
        return (await close.asend(order, id=f"close-{order}")).result

    return app, server, closed, worker


def test_a_mounted_server_a_worker_and_an_application_are_one_process(tmp_path: Path) -> None:
    app, _, closed, worker = shop(tmp_path / "data")
    done = threading.Event()

    @worker.handles("signal")
    async def signal(body: int) -> None:
        done.set()

    with served(app) as url, Client(f"{url}/queue") as client:
        assert client.info().store.startswith("embedded")
        with pytest.raises(Exception, match="404"):
            Client(url).info()
        client.send("order.close", 7)
        client.send("other", 1, id="a:b")
        assert client.get("other", "a:b").json() == 1
        client.send("signal", 1, delay=0.05)
        assert done.wait(20)
        assert closed == [7]
        assert [job.json() for job in client.pull("other", wait="1s")] == [1]
    with pytest.raises(Exception, match="no server answers"):
        Client(url, patience=_once()).info()


def test_what_was_sent_before_a_restart_is_there_after_it(tmp_path: Path) -> None:
    for number in range(2):
        app, _, _, _ = shop(tmp_path / "data")
        with TestClient(app) as http:
            sent = http.post("/queue/v1/topics/later/jobs", json={"id": "a", "body": number, "delay": "1h"})
            assert sent.status_code == (201, 409)[number], sent.text


def test_it_answers_nobody_but_this_machine_unless_it_is_insecure(tmp_path: Path) -> None:
    server = MountedServer(data=tmp_path / "data", env={})
    app = Starlette(routes=[Mount("/queue", app=server)], lifespan=lifespan(server))
    with TestClient(app, client=("192.0.2.1", 5)) as stranger:
        answer = stranger.get("/queue/v1/info")
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
        here = TestClient(app, client=("127.0.0.1", 5))
        assert here.get("/queue/v1/info").status_code == 200
        assert here.get("/queue/healthz").status_code == 200
        assert here.head("/queue/healthz").content == b""
        assert here.get("/healthz").status_code == 404
        for name in ("Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP"):
            assert here.get("/queue/v1/info", headers={name: "127.0.0.1"}).status_code == 403, "who knows for whom"
        by_unix_socket = TestClient(app, client=cast("tuple[str, int]", None))
        assert by_unix_socket.get("/queue/v1/info").status_code == 403
    assert TestClient(app, client=("127.0.0.1", 5)).get("/queue/v1/info").status_code == 503


def test_with_tokens_it_answers_other_machines(tmp_path: Path) -> None:
    env = {"DUELINE_SERVER__AUTH": "tokens", "DUELINE_DIALECTS__OUQIANG__AUTH": "path"}
    server = MountedServer(data=tmp_path / "data", env=env)
    app = Starlette(routes=[Mount("/queue", app=server)], lifespan=lifespan(server))
    with TestClient(app, client=("192.0.2.1", 5)) as stranger:
        with StoreClient(f"embedded:{tmp_path / 'data'}", None, Patience()) as store:
            token = store.create_token("tests", ["admin"], namespace="*").token
            slow = store.create_token("slow", ["read"], requests_per_s=0.001).token
        bearer = {"Authorization": f"Bearer {token}"}
        assert stranger.get("/queue/v1/info").status_code == 401
        assert stranger.get("/queue/v1/info", headers=bearer).status_code == 200
        assert stranger.post("/queue/get", json={"id": "x"}).status_code == 401
        for path in (f"/queue/{token}/get", f"/queue/{token}//get"):
            answer = stranger.post(path, json={"id": "x"}, follow_redirects=False)
            assert (answer.status_code, answer.json()["code"]) == (200, 0)
        assert stranger.post("/queue/job/add").status_code == 404, "a dialect without a choice is off"
        calls = [stranger.get("/queue/v1/info", headers={"Authorization": f"Bearer {slow}"}) for _ in range(11)]
        assert [call.status_code for call in calls] == [200] * 10 + [429], "limits hold here, too"


def test_it_runs_alone_under_any_asgi_server(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = MountedServer(data=tmp_path / "data", env={})
    caplog.set_level(logging.INFO)
    with served(server) as url, Client(url) as client:
        client.send("t", 1, delay="200ms")
        assert [job.json() for job in client.pull("t", wait="10s")] == [1]
    asyncio.run(server.stop())


@pytest.mark.parametrize(
    ("root", "path", "raw", "below"),
    [
        ("", "/v1/info", b"/v1/info", ("/v1/info", b"/v1/info")),
        ("/queue", "/queue/v1/info", b"/queue/v1/info", ("/v1/info", b"/v1/info")),
        ("/a/b", "/a/b/v3/x y/z", b"/a%62/b/v3/x%20y%2Fz", ("/v3/x y/z", b"/v3/x%20y%2Fz")),
        ("/queue", "/queue/v1/info", None, ("/v1/info", None)),
        ("/proxy", "/v1/info", b"/v1/info", ("/v1/info", b"/v1/info")),
    ],
)
def test_a_path_is_that_below_the_mount_and_stays_escaped(
    root: str, path: str, raw: bytes | None, below: tuple[str, bytes | None]
) -> None:
    scope: dict[str, Any] = {"type": "http", "root_path": root, "path": path}
    seen = _below(scope if raw is None else {**scope, "raw_path": raw})
    assert (seen["path"], seen.get("raw_path")) == below


def test_what_cannot_be_mounted_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no addresses of its own"):
        MountedServer(data=tmp_path, env={"DUELINE_DIALECTS__CAMELLIA__LISTEN": "127.0.0.1:8080"})
    everyone = {"DUELINE_SERVER__AUTH": "tokens", "DUELINE_DIALECTS__EXFE__AUTH": "none"}
    with pytest.raises(ValueError, match=r'dialects\.exfe\.auth = "none"'):
        MountedServer(data=tmp_path, env=everyone)
    assert MountedServer(data=tmp_path, env=everyone, insecure=True) is not None
    with pytest.raises(ValueError, match=r"push\.allow"):
        MountedServer(data=tmp_path, env={"DUELINE_PUSH__ALLOW": "not an address/99"})


async def test_a_folder_in_use_stops_the_application_from_starting(tmp_path: Path) -> None:
    async with MountedServer(data=tmp_path / "data", env={}):
        with pytest.raises(Exception, match="in use"):
            await MountedServer(data=tmp_path / "data", env={}).start()


def test_parts_start_in_order_and_end_in_the_opposite_one_around_the_applications_own() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def part(name: str, fails: bool = False) -> AsyncGenerator[None]:
        if fails:
            raise ZeroDivisionError
        seen.append(f"{name} starts")
        try:
            yield
        finally:
            seen.append(f"{name} ends")

    @asynccontextmanager
    async def own(app: Any) -> AsyncGenerator[dict[str, int]]:
        seen.append("own starts")
        yield {"answer": 42}
        seen.append("own ends")

    with TestClient(Starlette(lifespan=lifespan(part("a"), part("b"), inner=own))) as client:
        assert client.app_state == {"answer": 42}
    assert seen == ["a starts", "b starts", "own starts", "own ends", "b ends", "a ends"]
    seen.clear()
    with pytest.raises(ZeroDivisionError), TestClient(Starlette(lifespan=lifespan(part("a"), part("b", fails=True)))):
        pass
    assert seen == ["a starts", "a ends"]


def test_an_application_is_tested_in_virtual_time(dueline_queue: VirtualQueue) -> None:
    worker, closed = Worker("http://127.0.0.1:1"), list[int]()

    @worker.handles("order.close")
    def close(order: int) -> None:
        closed.append(order)

    app = FastAPI()

    @app.post("/orders/{order}")
    async def place(order: int) -> None:
        await close.asend(order, delay="30m")

    @app.post("/sync-orders/{order}")
    def place_in_a_thread(order: int) -> None:
        close.send(order, delay="30m")

    dueline_queue.work(worker)
    with TestClient(app) as http:
        assert http.post("/orders/7").status_code == 200
        assert http.post("/sync-orders/8").status_code == 200
        dueline_queue.clock.advance("29m")
        assert closed == []
        dueline_queue.clock.advance("1m")
    assert closed == [7, 8]


def test_the_async_client_of_an_application_may_be_the_queues_own(dueline_queue: VirtualQueue) -> None:
    app = FastAPI()
    clients: dict[str, AsyncClient] = {"queue": dueline_queue.async_client}

    @app.post("/orders/{order}")
    async def place(order: int) -> str:
        return (await clients["queue"].send("order.close", order, id=f"close-{order}", delay="30m")).result

    with TestClient(app) as http:
        assert [http.post("/orders/7").json() for _ in range(2)] == ["created", "kept"]
    dueline_queue.clock.advance("30m")
    assert [job.json() for job in dueline_queue.client.pull("order.close", max=5)] == [7]


def _once() -> Any:
    from dueline import Patience

    return Patience(deadline_s=0)


def test_refusals_of_the_mount_are_errors_of_the_client(tmp_path: Path) -> None:
    server = MountedServer(data=tmp_path / "data", env={})

    async def stranger(scope: Any, receive: Any, send: Any) -> None:
        await server({**scope, "client": ("192.0.2.1", 1)} if scope["type"] == "http" else scope, receive, send)

    with served(stranger) as url, pytest.raises(NotAllowed):
        Client(url).info()


@pytest.mark.parametrize("started_by", ["the test", "the application"])
def test_an_application_with_its_worker_inside_is_tested_in_virtual_time(
    dueline_queue: VirtualQueue, started_by: str
) -> None:
    worker, closed = Worker("http://127.0.0.1:1"), list[int]()

    @worker.handles("order.close")
    def close(order: int) -> None:
        closed.append(order)

    @worker.handles("order.review")
    async def review(order: int) -> None:
        await asyncio.sleep(3600)
        closed.append(-order)

    app = FastAPI(lifespan=lifespan(worker))

    @app.post("/orders/{order}")
    async def place(order: int) -> None:
        await close.asend(order, delay="30m")

    @app.post("/orders-now/{order}")
    async def place_now(order: int) -> None:
        await close.asend(order)

    (dueline_queue.work if started_by == "the test" else dueline_queue.host)(worker)
    for order in (7, 8):  # the second time the application starts the worker that it has stopped
        with TestClient(app) as http:
            assert http.post(f"/orders/{order}").status_code == 200
            dueline_queue.clock.advance("29m")
            assert order not in closed
            dueline_queue.clock.advance("1m")
            assert order in closed
    with TestClient(app):
        dueline_queue.client.send("order.review", 9)
        dueline_queue.clock.advance("1m")  # it has begun, and the application ends before it is done
    assert closed == [7, 8]
    with TestClient(app) as http:
        http.post("/orders-now/9")  # its handler, a plain function, runs in the grace of the stop
    assert closed == [7, 8, 9]
    dueline_queue.client.send("order.close", 10)
    dueline_queue.clock.advance("1h")
    assert closed == [7, 8, 9], "the worker ended with the application"
