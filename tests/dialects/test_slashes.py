"""Doubled slashes, and slashes at the end of a path: as each original reads them, on a shared address and alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dueline.dialects.ouqiang.decode import clean_path
from dueline.dialects.spring.decode import lookup_path
from dueline.testing.process import free_port

from .kit import Answer, Client, Runner, serve

JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SERVICE = "aHR0cDovLzEyNy4wLjAuMS94"  # http://127.0.0.1/x
OWN_PORTS = ("ouqiang", "spring", "camellia")


@dataclass(frozen=True)
class ServerKit:
    """One server: the port of each dialect."""

    ports: dict[str, int]
    alone: bool  # whether the dialects of OWN_PORTS have addresses of their own


@pytest.fixture(scope="module", params=[False, True], ids=["shared", "alone"])
def kit(
    request: pytest.FixtureRequest, runner: Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerKit]:
    ports = {name: free_port() for name in OWN_PORTS} if request.param else {}
    env = {f"DUELINE_DIALECTS__{name.upper()}__LISTEN": f"127.0.0.1:{port}" for name, port in ports.items()}
    data = tmp_path_factory.mktemp("slashes")
    served = runner.run(serve(data, {"DUELINE_PUSH__ALLOW": "127.0.0.0/8", **env}))
    shared = dict.fromkeys((*OWN_PORTS, "exfe", "youzan", "native"), served.server.port)
    yield ServerKit({**shared, **ports}, request.param)
    runner.run(served.stop())


async def ask(port: int, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
    client = Client(port)
    try:
        return await client.ask(method, path, body, headers)
    finally:
        client.close()


async def test_ouqiang_redirects_to_the_clean_path_and_finds_nothing_behind_a_slash(kit: ServerKit) -> None:
    port = kit.ports["ouqiang"]
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
    if kit.alone:
        assert (unknown.status, unknown.headers["location"]) == (301, "/push/")
        assert (await ask(port, "GET", "//nothing")).headers["location"] == "/nothing"
        assert (await ask(port, "GET", "//\\evil.example")).headers["location"] == "/%5Cevil.example"
    else:
        assert unknown.status == 404, "elsewhere the path may be anybody's"
        assert (await ask(port, "GET", "//docs")).status == 404


async def test_spring_takes_doubled_slashes_and_one_at_the_end(kit: ServerKit) -> None:
    port = kit.ports["spring"]
    for number, path in enumerate(("/job/add", "/job/add/", "//job//add", "/job///add//")):
        job = f'{{"taskId":"{number}","taskType":"t{number}","appName":"a","delayTime":9999999999999}}'
        added = await ask(port, "POST", path, job.encode(), JSON)
        assert (added.status, added.body) == (200, b""), path
        assert (await ask(port, "GET", path)).status == 405, path
    for path in ("/task/type/list", "/task/type/list/", "//task/type//list"):
        assert sorted((await ask(port, "GET", path)).json()) == [f"a-t{number}" for number in range(4)], path
    missing = await ask(port, "GET", "//task//nothing/")
    assert missing.status == 404
    assert "timestamp" in missing.json() if kit.alone else "error" in missing.json()


async def test_camellia_knows_each_path_in_one_spelling(kit: ServerKit) -> None:
    port = kit.ports["camellia"]
    form = b"topic=t&msg=m&delayMillis=9999"
    path = "/camellia/delayQueue/sendMsg"
    for other in (path + "/", "/" + path, "/camellia//delayQueue/sendMsg", path + "//"):
        answer = await ask(port, "POST", other, form, FORM)
        assert answer.status == 404, other
    assert (await ask(port, "POST", path, form, FORM)).json()["code"] == 200


async def test_exfe_takes_a_slash_behind_the_method_as_part_of_the_service(kit: ServerKit) -> None:
    port = kit.ports["exfe"]
    for path in (f"//v3/queue/k/POST/{SERVICE}", f"/v3//queue/k/POST/{SERVICE}", f"/v3/queue//POST/{SERVICE}",
                 f"/v3/queue/k//{SERVICE}", "/v3/queue/k/POST/", "/v3/queue/k/POST"):  # fmt: skip
        answer = await ask(port, "POST", path + "?ontime=9999999999", b"1")
        assert answer.status == 404, path
    for service, at in ((f"/{SERVICE}", 0), (f"{SERVICE}/", len(SERVICE))):
        answer = await ask(port, "POST", f"/v3/queue/k/POST/{service}?ontime=9999999999", b"1")
        message = f"service({service}) invalid: illegal base64 data at input byte {at}\n"
        assert (answer.status, answer.body.decode()) == (400, message)


async def test_youzan_takes_one_slash_more_at_the_end(kit: ServerKit) -> None:
    port = kit.ports["youzan"]
    for path in ("/", "//", "/delay-queue", "/delay-queue/"):
        answer = await ask(port, "POST", path, b'{"command":"pop","topic":"t"}')
        assert (answer.status, answer.json()["success"]) == (200, True), path
    for path in ("/delay-queue//", "//delay-queue", "///"):
        assert (await ask(port, "POST", path, b'{"command":"pop","topic":"t"}')).status != 200, path


async def test_the_native_api_knows_each_path_in_one_spelling(kit: ServerKit) -> None:
    port = kit.ports["native"]
    for path in ("/v1/topics/", "//v1/topics", "/v1//topics", "/healthz/", "//healthz", "/docs/"):
        assert (await ask(port, "GET", path)).status == 404, path


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
