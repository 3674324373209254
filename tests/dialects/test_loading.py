"""A server whose store is not there yet: a poll is refused a second later, because the client polls again at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dueline.testing.process import free_port
from tests.kit.waiting import until
from tools.faults.server_process import ServerProcess

from ..kit.valkey import PrivateValkey
from .kit import Answer, Client

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
Call = tuple[str, bytes, Mapping[str, str]]
POLLS: dict[str, Call] = {
    "camellia": ("/camellia/delayQueue/longPollingMsg", b"topic=t", FORM),
    "ouqiang": ("/pop", b'{"topic":"t"}', {}),
    "youzan": ("/", b'{"command":"pop","topic":"t","timeout":5}', {}),
    "native": ("/v1/topics/t/pull", b'{"wait_ms":5000}', {"Content-Type": "application/json"}),
}
SENDS: dict[str, Call] = {
    "camellia": ("/camellia/delayQueue/sendMsg", b"topic=t&msg=x&delayMillis=0", FORM),
    "ouqiang": ("/push", b'{"topic":"t","id":"i","delay":1,"ttr":1,"body":""}', {}),
    "native": ("/v1/topics/t/jobs", b'{"body":1}', {"Content-Type": "application/json"}),
}


class StartingServer:
    """A server that waits for its `store`, which a test starts later."""

    def __init__(self, data: Path) -> None:
        self.store = PrivateValkey(port=free_port())
        self.server = ServerProcess(data, store_url=f"redis://127.0.0.1:{self.store.port}")
        self._clients: list[Client] = []
        self.start: asyncio.Task[None] | None = None

    async def __aenter__(self) -> StartingServer:
        self.start = asyncio.create_task(self.server.start())
        await until(self._answers)
        return self

    async def _answers(self) -> bool:
        try:
            return (await self.client().ask("GET", "/healthz")).status == 200
        except OSError:
            return False

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        assert self.start is not None
        await self.server.kill()
        await asyncio.gather(self.start, return_exceptions=True)
        await asyncio.to_thread(self.store.stop)

    def client(self) -> Client:
        self._clients.append(Client(self.server.port))
        return self._clients[-1]

    async def timed(self, call: Call) -> tuple[Answer, float]:
        path, body, headers = call
        began_s = time.monotonic()
        return await self.client().ask("POST", path, body, headers), time.monotonic() - began_s


async def test_polls_are_refused_a_second_later_and_sends_at_once(tmp_path: Path) -> None:
    async with StartingServer(tmp_path) as one:
        polling = asyncio.gather(*(one.timed(call) for call in POLLS.values()))
        sent = await asyncio.gather(*(one.timed(call) for call in SENDS.values()))
        assert not polling.done(), "a send waits for nothing"
        assert [b"starting" in answer.body for answer, _ in sent] == [True] * len(SENDS)
        found = dict(zip(POLLS, await polling, strict=True))
    assert {
        name: (answer.status, b"starting" in answer.body, seconds >= 0.99) for name, (answer, seconds) in found.items()
    } == {
        "camellia": (200, True, True),
        "ouqiang": (200, True, True),
        "youzan": (200, True, True),
        "native": (503, True, True),
    }


async def test_polls_that_are_asked_over_the_start_get_their_jobs(tmp_path: Path) -> None:
    async with StartingServer(tmp_path) as one:
        worker = one.client()

        async def popped() -> Any:
            while (found := (await worker.ask("POST", "/pop", b'{"topic":"t"}')).json())["data"] is None:
                assert "starting" in found["message"]
            return found["data"]

        popping = asyncio.create_task(popped())
        await asyncio.to_thread(one.store.start)
        assert one.start is not None
        await one.start
        assert (await one.timed(SENDS["ouqiang"]))[0].json()["code"] == 0
        assert await popping == {"id": "i", "body": ""}
