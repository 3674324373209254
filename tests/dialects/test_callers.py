"""Who may call a dialect on a server with tokens: one server, a different choice for each dialect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dueline.dialects.settings import ForeignSettings
from dueline.dialects.table import DIALECTS
from dueline.testing.process import free_port

from .camellia.kit import BASE, Camellia, framework_page
from .kit import Client, Runner, RunningServer, serve_with_tokens
from .ouqiang.kit import ADDED
from .youzan.kit import Youzan

CHOSEN = {"camellia": "network", "ouqiang": "header", "youzan": "none"}
OFF = [spec.name for spec in DIALECTS if issubclass(spec.settings, ForeignSettings) and spec.name not in CHOSEN]
CALLERS = CHOSEN | dict.fromkeys(OFF, "off")
PUSH = json.dumps({"topic": "callers", "id": "1", "delay": 60, "ttr": 9, "body": "x"}).encode()


@dataclass(frozen=True)
class ServerKit:
    """A server. Its clients have no token, unless a test gives them one."""

    served: RunningServer
    token: str
    camellia_port: int


@pytest.fixture(scope="module")
def kit(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerKit]:
    port = free_port()
    env = {
        "DUELINE_DIALECTS__CAMELLIA__AUTH": "network",
        "DUELINE_DIALECTS__CAMELLIA__LISTEN": f"127.0.0.1:{port}",
        "DUELINE_DIALECTS__CAMELLIA__NETWORKS": "127.0.0.1/32, ::1",
        "DUELINE_DIALECTS__OUQIANG__AUTH": "header",
        "DUELINE_DIALECTS__YOUZAN__AUTH": "none",
        "DUELINE_DIALECTS__EXFE__ENABLED": "false",
    }
    served = runner.run(serve_with_tokens(tmp_path_factory.mktemp("callers"), env))
    assert served.token is not None
    token, served.token = served.token, None
    yield ServerKit(served, token, port)
    runner.run(served.stop())


async def test_the_start_and_the_server_say_who_may_call(kit: ServerKit) -> None:
    said = await kit.served.logged("who may call the dialects")
    assert {name: said[name] for name in CALLERS} == CALLERS
    off = (await kit.served.logged("off, because"))["event"]
    names = [name for name in OFF if name != "exfe"]  # it was disabled
    assert f": {', '.join(names)}. To serve {names[0]}: [dialects.{names[0]}] auth = " in off
    everyone = await kit.served.logged("everyone who can reach the server may use youzan without a token")
    assert everyone["level"] == "warning"
    info = await Client(kit.served.server.port).ask("GET", "/v1/info", headers=bearer(kit.token))
    assert (info.json()["auth"], info.json()["dialects"]) == ("tokens", CALLERS)


async def test_a_header_dialect_takes_its_token_only_there(kit: ServerKit) -> None:
    client = kit.served.client()
    assert (await client.ask("POST", "/push", PUSH, bearer(kit.token))).json() == ADDED
    for answer in (await client.ask("POST", "/push", PUSH), await client.ask("POST", f"/{kit.token}/push", PUSH)):
        assert (answer.status, answer.json()["code"]) == (401, 1)


async def test_a_dialect_for_everyone_needs_no_token_and_the_native_api_does(kit: ServerKit) -> None:
    q, topic = Youzan(kit.served), kit.served.topic()
    await q.add(topic, "callers-1", body="a")
    assert await q.pop(topic) == ("callers-1", "a")
    await q.finish("callers-1")
    await q.add(topic, "callers-2", delay=60)
    assert (await q.ask(command="delete", id="callers-2"))["success"]
    native = await kit.served.client().ask("GET", "/v1/topics", headers={"Dueline-Namespace": "youzan"})
    assert native.status == 401


async def test_a_network_dialect_lets_its_networks_in_without_admin(kit: ServerKit) -> None:
    q = Camellia(kit.served)
    q.client = kit.served.client(kit.camellia_port)
    topic = kit.served.topic()
    second = Camellia(kit.served)
    second.client = kit.served.client(kit.camellia_port)
    waiting = asyncio.ensure_future(second.poll(topic))
    sent = await q.send(topic, "a")
    assert [msg["msgId"] for msg in await waiting] == [sent["msgId"]]
    await q.ack(topic, sent["msgId"])
    later = await q.send(topic, "b", delay=60_000)
    assert (await q.delete(topic, later["msgId"]))[0] == 200
    assert await q.page("/camellia/health/status") == (200, {"code": 200})
    forbidden = framework_page(403, "Forbidden", "/camellia/health/offline")
    assert await q.page("/camellia/health/offline") == forbidden
    assert await q.page("/camellia/health/status") == (200, {"code": 200})
    assert (await q.client.ask("GET", "/metrics")).status == 401


async def test_a_network_dialect_closes_the_connections_of_others(kit: ServerKit) -> None:
    before = await refused_connections(kit)
    stranger = Client(kit.camellia_port, source="127.0.0.2")
    with pytest.raises((EOFError, ConnectionError)):
        await stranger.ask("POST", BASE + "pullMsg?topic=t")
    assert await refused_connections(kit) == before + 1
    logged = await kit.served.logged("a connection was closed")
    assert (logged["client"], logged["listen"]) == ("127.0.0.2", f"127.0.0.1:{kit.camellia_port}")
    elsewhere = Client(kit.served.server.port, source="127.0.0.2")
    assert (await elsewhere.ask("GET", "/healthz")).status == 200  # only that listener is closed to them


async def test_a_dialect_without_a_choice_is_not_served(kit: ServerKit) -> None:
    client = kit.served.client()
    for path in ("/job/add", "/v3/queue/a/POST/aHR0cDovL3g", BASE + "pullMsg"):
        answer = await client.ask("POST", path, b"{}", bearer(kit.token))
        assert (answer.status, answer.json()["error"]["code"]) == (404, "no_route"), path


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def refused_connections(kit: ServerKit) -> float:
    page = await Client(kit.served.server.port).ask("GET", "/metrics", headers=bearer(kit.token))
    [line] = [line for line in page.body.decode().split("\n") if line.startswith("dueline_http_connections_refused")]
    return float(line.split()[1])
