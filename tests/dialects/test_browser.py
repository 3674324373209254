"""No web page can drive a server that asks for no token: every route of every dialect, on a real server."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dueline.config.settings import Settings
from dueline.dialects.http import Browser, Route
from dueline.dialects.settings import ForeignSettings
from dueline.dialects.table import DIALECTS
from dueline.runtime.locations import ExternalStore
from dueline.server.app import App

from .kit import Answer, Client, Runner, RunningServer, serve

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ALLOW = {"DUELINE_PUSH__ALLOW": "127.0.0.0/8"}
SERVICE = "aHR0cDovLzEyNy4wLjAuMS94"  # http://127.0.0.1/x
FOREIGN = {spec.name for spec in DIALECTS if issubclass(spec.settings, ForeignSettings)}
SENDS: dict[str, tuple[str, str, bytes, Mapping[str, str]]] = {
    "default": ("POST", "/v1/topics/t/jobs", b'{"body": 1}', JSON),
    "camellia": ("POST", "/camellia/delayQueue/sendMsg", b"topic=t&msg=m&delayMillis=9999", FORM),
    "ouqiang": ("POST", "/push", b'{"topic":"t","id":"o","delay":99,"ttr":9,"body":""}', FORM),
    "youzan": ("POST", "/", b'{"command":"add","topic":"t","id":"y","delay":99}', FORM),
    "spring": ("POST", "/job/add", b'{"taskId":"s","taskType":"t","appName":"a","delayTime":9999999999999}', JSON),
    "exfe": ("POST", f"/v3/queue/k/POST/{SERVICE}?ontime=9999999999", b"1", FORM),
}


def routes() -> list[tuple[str, str, Route]]:
    """(method, path, route) of everything that a server answers by default."""
    [front] = App(Settings(), ExternalStore("unix:///nowhere")).fronts
    found: list[tuple[str, str, Route]] = []
    for route in front.router.routes():
        path = re.sub(r"\{\w+\}", "x", route.pattern.replace("{place*}", f"k/POST/{SERVICE}"))
        methods = ("GET", "POST", "OPTIONS") if route.method == "*" else (route.method,)
        found += [(method, path, route) for method in methods]
    return found


@asynccontextmanager
async def served(tmp_path: Path, **env: str) -> AsyncIterator[RunningServer]:
    running = await serve(tmp_path / "data", {**ALLOW, **env})
    try:
        yield running
    finally:
        await running.stop()


@pytest.fixture(scope="module")
def running(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server for the tests that store nothing."""
    server = runner.run(serve(tmp_path_factory.mktemp("browser"), ALLOW))
    yield server
    runner.run(server.stop())


async def ask(running: RunningServer, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
    """One request on a connection of its own: a refusal ends the connection."""
    client = Client(running.server.port)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await client.ask(method, path, body, named)
    finally:
        client.close()


def foreign(port: int) -> list[dict[str, str]]:
    return [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{port + 1}", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
        {"Host": f"evil.example:{port}"},
        {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}", "Sec-Fetch-Site": "same-origin"},
    ]


def own(port: int) -> list[dict[str, str]]:
    return [
        {},
        {"Host": f"localhost:{port}"},
        {"Host": f"[::1]:{port}"},
        {"Host": "192.168.1.5"},
        {"Sec-Fetch-Mode": "cors", "User-Agent": "node"},
        {"Origin": f"http://127.0.0.1:{port}", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    ]


async def test_every_route_of_every_dialect_refuses_pages_from_elsewhere_and_answers_the_rest(
    running: RunningServer,
) -> None:
    assert {route.name.split("_")[0] for _, _, route in routes()} >= FOREIGN, "a route is named after its dialect"
    port = running.server.port
    for method, path, route in routes():
        for headers in foreign(port):
            answer = await ask(running, method, path, **headers)
            assert answer.status == 403, (method, path, headers, answer)
            if method != "HEAD":
                assert answer.json()["error"]["code"] == "forbidden", (method, path, headers)
                assert "server." in answer.json()["error"]["message"] or route.browser is Browser.REFUSED
            assert "access-control-allow-origin" not in answer.headers
        for headers in own(port):
            if route.browser is Browser.REFUSED and any(name in headers for name in ("Origin", "Sec-Fetch-Site")):
                continue
            answer = await ask(running, method, path, **headers)
            assert answer.status != 403, (method, path, headers, answer)


def test_there_is_a_send_of_every_dialect() -> None:
    assert SENDS.keys() == FOREIGN | {"default"}, "add a send of the dialect to SENDS, by its namespace"


async def test_a_refused_send_stores_nothing_in_any_dialect(tmp_path: Path) -> None:
    async def topics(running: RunningServer, namespace: str) -> list[str]:
        answer = await ask(running, "GET", "/v1/topics", **{"Dueline-Namespace": namespace})
        return [topic["topic"] for topic in answer.json()["topics"]]

    async with served(tmp_path) as running:
        for method, path, body, kind in SENDS.values():
            for headers in foreign(running.server.port):
                answer = await ask(running, method, path, body, **kind, **headers)
                assert answer.status == 403, (path, headers, answer)
        assert {name: await topics(running, name) for name in SENDS} == {name: [] for name in SENDS}
        for method, path, body, kind in SENDS.values():
            answer = await ask(running, method, path, body, **kind)
            assert answer.status in (200, 201), (path, answer)
        for name in SENDS:
            assert await topics(running, name) != [], name


async def test_no_get_of_a_browser_takes_a_server_offline(running: RunningServer) -> None:
    async def status(running: RunningServer) -> int:
        return (await ask(running, "GET", "/camellia/health/status")).status

    browsers = [*foreign(running.server.port), *own(running.server.port)[-2:], {"Referer": "http://x.example/"}]
    for headers in browsers:
        answer = await ask(running, "GET", "/camellia/health/offline", **headers)
        assert (answer.status, await status(running)) == (403, 200), headers
    await ask(running, "GET", "/camellia/health/offline")
    assert await status(running) == 500
    for headers in browsers:
        answer = await ask(running, "GET", "/camellia/health/online", **headers)
        assert (answer.status, await status(running)) == (403, 500), headers
    await ask(running, "GET", "/camellia/health/online")
    assert await status(running) == 200


async def test_configured_names_and_origins_are_answered(tmp_path: Path) -> None:
    env = {"DUELINE_SERVER__HOSTS": "queue.corp", "DUELINE_SERVER__ORIGINS": "https://shop.example"}

    async with served(tmp_path, **env) as running:
        for method, path, body, kind in SENDS.values():
            for headers in ({"Host": "queue.corp"}, {"Origin": "https://shop.example"}):
                answer = await ask(running, method, path, body, **kind, **headers)
                assert answer.status in (200, 201), (path, headers, answer)
            answer = await ask(running, method, path, body, **kind, Host="other.corp")
            assert answer.status == 403
            assert "server.hosts" in answer.body.decode()


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_the_native_api_takes_no_body_that_a_form_could_send(running: RunningServer, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}

    for method, path, route in routes():
        if path.startswith("/v1/") and method in ("POST", "PUT", "PATCH"):
            answer = await ask(running, method, path, b"{}", **headers)
            code = answer.json()["error"]["code"]
            assert (answer.status, code) == (415, "unsupported_media_type"), route.name
            accepted = await ask(running, method, path, b"{}", **JSON)
            assert accepted.status != 415, route.name
