"""A listener of its own, and several processes that are one server."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dueline.config.load import ConfigError, load
from dueline.server.listeners import addresses
from dueline.testing.process import free_port
from tests.kit.waiting import until

from ..kit import RunningServer, after, now_ms, serve
from .kit import BASE, SUCCESS, Camellia, framework_page, ids, shown

WINDOW_MS = 4_000


@asynccontextmanager
async def workers_with_a_port_for_camellia() -> AsyncIterator[tuple[RunningServer, int]]:
    port = free_port()
    env = {
        "DUELINE_DIALECTS__CAMELLIA__LISTEN": f"127.0.0.1:{port}",
        "DUELINE_DIALECTS__CAMELLIA__MONITOR_WINDOW_MS": str(WINDOW_MS),
    }
    with tempfile.TemporaryDirectory() as data:
        served = await serve(Path(data), env, ["--workers", "2"])
        try:
            yield served, port
        finally:
            await served.stop()


async def test_a_dialect_with_an_address_answers_there_only_and_its_workers_are_one_server(camellia: Camellia) -> None:
    async with workers_with_a_port_for_camellia() as (served, port):
        main = await served.client().ask("POST", BASE + "pullMsg?topic=t")
        assert (main.status, main.json()["error"]["code"]) == (404, "no_route")
        assert f", camellia on http://127.0.0.1:{port})" in "\n".join(served.server.output)
        many = [Camellia(served) for _ in range(12)]
        for q in many:
            q.client = served.client(port)
        q = many[0]
        assert await q.page("/v1/info") == framework_page(404, "Not Found", "/v1/info")
        assert await q.page("/readyz") == (200, {"ready": True})
        await after(now_ms() + WINDOW_MS - now_ms() % WINDOW_MS)  # so that all falls into one window
        sent = [(await one.send("t", str(n)))["msgId"] for n, one in enumerate(many)]
        pulled = [id for one in many for id in ids(await one.pull("t"))]
        assert sorted(pulled) == sorted(sent)
        assert await _sends_of_all_workers(q) == len(many)
        assert await q.page("/camellia/health/offline") == (500, {"code": 500})
        assert {str(await one.page("/camellia/health/status")) for one in many} == {str((500, {"code": 500}))}
        assert await many[-1].page("/camellia/health/online") == (200, {"code": 200})
        assert {str(await one.page("/camellia/health/status")) for one in many} == {str((200, {"code": 200}))}
        for one, id in zip(reversed(many), pulled, strict=True):
            assert await one.post("ackMsg", topic="t", msgId=id, ack="true") == (200, SUCCESS)
        assert await q.empty("t")


def test_an_address_that_others_can_reach_is_refused_like_the_main_one() -> None:
    with pytest.raises(ConfigError, match=r"(?s)dialects\.camellia\.listen = 0\.0\.0\.0:8080: .*--insecure"):
        load(env={"DUELINE_DIALECTS__CAMELLIA__LISTEN": "0.0.0.0:8080"})
    load({"server.insecure": True}, {"DUELINE_DIALECTS__CAMELLIA__LISTEN": "0.0.0.0:8080"})


def test_a_dialect_is_spoken_at_its_own_address_or_at_the_main_one_or_nowhere() -> None:
    main = load().server.listen
    assert "camellia" in addresses(load())[main]
    own = addresses(load(env={"DUELINE_DIALECTS__CAMELLIA__LISTEN": "127.0.0.1:8080"}))
    assert (own["127.0.0.1:8080"], "camellia" in own[main], next(iter(own))) == (("camellia",), False, main)
    off = addresses(load(env={"DUELINE_DIALECTS__CAMELLIA__ENABLED": "false"}))
    assert not any("camellia" in names for names in off.values())


async def _sends_of_all_workers(q: Camellia) -> int:
    """Every process counts its own share; the page of any of them shows the sum."""

    async def counted() -> list[dict[str, int]]:
        _, page = shown(await q.client.ask("GET", BASE + "getMonitorData"))
        return page["data"]["requestStatsList"]

    return (await until(counted))[0]["sendMsg"]
