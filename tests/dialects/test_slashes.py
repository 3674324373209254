"""Doubled slashes, and slashes at the end of a path: as each original reads them, on a shared address and alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dueline.dialects.ouqiang.decode import clean_path
from dueline.dialects.spring.decode import lookup_path
from dueline.testing.process import free_port

from .kit import Answer, Client, Served, serve

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SERVICE = "aHR0cDovLzEyNy4wLjAuMS94"  # http://127.0.0.1/x
Scenario = Callable[[Served, dict[str, int]], Awaitable[None]]


def run(tmp_path: Path, scenario: Scenario, *alone: str) -> None:
    """With a server that gives these dialects addresses of their own. The scenario gets the port of each."""

    async def whole() -> None:
        ports = {name: free_port() for name in alone}
        env = {f"DUELINE_DIALECTS__{name.upper()}__LISTEN": f"127.0.0.1:{port}" for name, port in ports.items()}
        served = await serve(tmp_path / "data", {"DUELINE_PUSH__ALLOW": "127.0.0.0/8", **env})
        try:
            await scenario(served, ports)
        finally:
            await served.stop()

    asyncio.run(whole())


async def ask(port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
    client = Client(port)
    try:
        return await client.ask(method, path, body, headers)
    finally:
        client.close()


@pytest.mark.parametrize("alone", [True, False])
def test_ouqiang_redirects_to_the_clean_path_and_finds_nothing_behind_a_slash(tmp_path: Path, alone: bool) -> None:
    async def scenario(served: Served, ports: dict[str, int]) -> None:
        port = ports.get("ouqiang", served.server.port)
        for path, clean in (
            ("//push", "/push"),
            ("///pop", "/pop"),
            ("/./get?a=//b", "/get?a=//b"),
            ("/x/../push", "/push"),
        ):
            for method in ("POST", "PUT"):
                answer = await ask(port, method, path, b'{"topic":"t","id":"1","delay":9,"ttr":9}')
                assert (answer.status, answer.headers["location"], answer.body) == (301, clean, b""), path
            page = await ask(port, "GET", path)
            assert (page.status, page.headers["location"]) == (301, clean)
            assert page.body == f'<a href="{clean}">Moved Permanently</a>.\n\n'.encode()
        assert (await ask(port, "POST", "/push/", b"{}")).status == 404
        assert (await ask(port, "POST", "/get", b'{"id":"1"}')).json()["data"] is None, "a redirect does nothing"
        unknown = await ask(port, "POST", "/push//")
        if alone:
            assert (unknown.status, unknown.headers["location"]) == (301, "/push/")
            assert (await ask(port, "GET", "//nothing")).headers["location"] == "/nothing"
            assert (await ask(port, "GET", "//\\evil.example")).headers["location"] == "/%5Cevil.example"
        else:
            assert unknown.status == 404, "elsewhere the path may be anybody's"
            assert (await ask(port, "GET", "//docs")).status == 404

    run(tmp_path, scenario, *(["ouqiang"] if alone else []))


@pytest.mark.parametrize("alone", [True, False])
def test_spring_takes_doubled_slashes_and_one_at_the_end(tmp_path: Path, alone: bool) -> None:
    async def scenario(served: Served, ports: dict[str, int]) -> None:
        port = ports.get("spring", served.server.port)
        for number, path in enumerate(("/job/add", "/job/add/", "//job//add", "/job///add//")):
            job = f'{{"taskId":"{number}","taskType":"t{number}","appName":"a","delayTime":9999999999999}}'
            added = await ask(port, "POST", path, job.encode(), JSON)
            assert (added.status, added.body) == (200, b""), path
            assert (await ask(port, "GET", path)).status == 405, path
        for path in ("/task/type/list", "/task/type/list/", "//task/type//list"):
            assert sorted((await ask(port, "GET", path)).json()) == [f"a-t{number}" for number in range(4)], path
        missing = await ask(port, "GET", "//task//nothing/")
        assert missing.status == 404
        assert "timestamp" in missing.json() if alone else "error" in missing.json()

    run(tmp_path, scenario, *(["spring"] if alone else []))


@pytest.mark.parametrize("alone", [True, False])
def test_camellia_knows_each_path_in_one_spelling(tmp_path: Path, alone: bool) -> None:
    async def scenario(served: Served, ports: dict[str, int]) -> None:
        port = ports.get("camellia", served.server.port)
        form = b"topic=t&msg=m&delayMillis=9999"
        path = "/camellia/delayQueue/sendMsg"
        for other in (path + "/", "/" + path, "/camellia//delayQueue/sendMsg", path + "//"):
            answer = await ask(port, "POST", other, form, FORM)
            assert answer.status == 404, other
        assert (await ask(port, "POST", path, form, FORM)).json()["code"] == 200

    run(tmp_path, scenario, *(["camellia"] if alone else []))


def test_exfe_takes_a_slash_behind_the_method_as_part_of_the_service(tmp_path: Path) -> None:
    async def scenario(served: Served, _: dict[str, int]) -> None:
        port = served.server.port
        for path in (f"//v3/queue/k/POST/{SERVICE}", f"/v3//queue/k/POST/{SERVICE}", f"/v3/queue//POST/{SERVICE}",
                     f"/v3/queue/k//{SERVICE}", "/v3/queue/k/POST/", "/v3/queue/k/POST"):  # fmt: skip
            answer = await ask(port, "POST", path + "?ontime=9999999999", b"1")
            assert answer.status == 404, path
        for service, at in ((f"/{SERVICE}", 0), (f"{SERVICE}/", len(SERVICE))):
            answer = await ask(port, "POST", f"/v3/queue/k/POST/{service}?ontime=9999999999", b"1")
            told = f"service({service}) invalid: illegal base64 data at input byte {at}\n"
            assert (answer.status, answer.body.decode()) == (400, told)

    run(tmp_path, scenario)


def test_youzan_takes_one_slash_more_at_the_end(tmp_path: Path) -> None:
    async def scenario(served: Served, _: dict[str, int]) -> None:
        for path in ("/", "//", "/delay-queue", "/delay-queue/"):
            answer = await ask(served.server.port, "POST", path, b'{"command":"pop","topic":"t"}')
            assert (answer.status, answer.json()["success"]) == (200, True), path
        for path in ("/delay-queue//", "//delay-queue", "///"):
            assert (await ask(served.server.port, "POST", path, b'{"command":"pop","topic":"t"}')).status != 200, path

    run(tmp_path, scenario)


def test_the_native_api_knows_each_path_in_one_spelling(tmp_path: Path) -> None:
    async def scenario(served: Served, _: dict[str, int]) -> None:
        for path in ("/v1/topics/", "//v1/topics", "/v1//topics", "/healthz/", "//healthz", "/docs/"):
            assert (await ask(served.server.port, "GET", path)).status == 404, path

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("path", "clean"),
    [("/push", "/push"), ("", "/"), ("/", "/"), ("//", "/"), ("/a//b", "/a/b"), ("/a/", "/a/"), ("/a//", "/a/"),
     ("/a/./b/", "/a/b/"), ("/a/../b", "/b"), ("/../a", "/a"), ("a", "/a"), ("/..", "/"), ("*", "/*")],
)  # fmt: skip
def test_a_path_is_cleaned_as_go_cleans_it(path: str, clean: str) -> None:
    assert clean_path(path) == clean


@pytest.mark.parametrize(
    ("path", "found"), [("/a/b", "/a/b"), ("/a/b/", "/a/b"), ("//a///b//", "/a/b"), ("/", "/"), ("//", "/")]
)
def test_a_path_is_looked_up_as_spring_looks_it_up(path: str, found: str) -> None:
    assert lookup_path(path) == found
