"""Two server processes on one store, and many callers who know both and go to the other one when theirs is gone."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

from tools.faults.server_process import ServerProcess

from ..kit.valkey import PrivateValkey
from .kit import Client, RunningServer

T = TypeVar("T")
LEASE_S = 3
POLL_S = 1


@asynccontextmanager
async def two_servers(env: Mapping[str, str] | None = None) -> AsyncIterator[list[RunningServer]]:
    store = PrivateValkey()
    await asyncio.to_thread(store.start)
    with tempfile.TemporaryDirectory() as data:
        servers = [RunningServer(ServerProcess(Path(data), env=env, store_url=store.url)) for _ in range(2)]
        try:
            await asyncio.gather(*(served.server.start() for served in servers))
            yield servers
        finally:
            await asyncio.gather(*(served.stop() for served in servers))
            await asyncio.to_thread(store.stop)


class Caller:
    """One connection to one of the servers at a time. A call that gets no answer is made again at the other one."""

    def __init__(self, servers: Sequence[RunningServer], first: int) -> None:
        self._servers = servers
        self._at = first
        self._client: Client | None = None

    async def ask(self, target: str, body: bytes, headers: Mapping[str, str] | None = None) -> Any:
        while True:
            if self._client is None:
                self._at += 1
                self._client = Client(self._servers[self._at % len(self._servers)].server.port)
            try:
                answer = await self._client.ask("POST", target, body, headers)
            except (OSError, EOFError):
                self.close()
                continue
            assert answer.status == 200, answer
            return answer.json()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Words(Protocol):
    """The three calls that a life needs, in one protocol's words. `pop`: an id, None when nothing came."""

    name: str

    async def send(self, caller: Caller, topic: str, id: str) -> None: ...
    async def pop(self, caller: Caller, topic: str) -> str | None: ...
    async def finish(self, caller: Caller, topic: str, id: str) -> None: ...


class OuqiangWords:
    name = "ouqiang"

    async def send(self, caller: Caller, topic: str, id: str) -> None:
        assert (await self._ask(caller, "push", topic=topic, id=id, delay=1, ttr=LEASE_S, body=id))["code"] == 0

    async def pop(self, caller: Caller, topic: str) -> str | None:
        found = await self._ask(caller, "pop", topic=topic)
        return found["data"] and found["data"]["id"]

    async def finish(self, caller: Caller, topic: str, id: str) -> None:
        assert (await self._ask(caller, "finish", id=id))["code"] == 0

    async def _ask(self, caller: Caller, path: str, **fields: Any) -> Any:
        return await caller.ask(f"/{path}", json.dumps(fields).encode())


class YouzanWords:
    name = "youzan"

    def __init__(self, delay: Callable[[], float] = lambda: 1.0, ttr_s: float = LEASE_S) -> None:
        self._delay = delay
        self._ttr_s = ttr_s

    async def send(self, caller: Caller, topic: str, id: str) -> None:
        await self._ask(caller, command="add", topic=topic, id=id, delay=self._delay(), TTR=self._ttr_s, body=id)

    async def pop(self, caller: Caller, topic: str) -> str | None:
        return (await self._ask(caller, command="pop", topic=topic, timeout=POLL_S))["id"]

    async def finish(self, caller: Caller, topic: str, id: str) -> None:
        await self._ask(caller, command="finish", id=id)

    async def _ask(self, caller: Caller, **fields: Any) -> Any:
        found = await caller.ask("/", json.dumps(fields).encode())
        assert found["success"] is True, found
        return found


class CamelliaWords:
    name = "camellia"

    async def send(self, caller: Caller, topic: str, id: str) -> None:
        await self._ask(caller, "sendMsg", topic=topic, msgId=id, msg=id, delayMillis=1000)

    async def pop(self, caller: Caller, topic: str) -> str | None:
        form = {"topic": topic, "ackTimeoutMillis": LEASE_S * 1000, "longPollingTimeoutMillis": POLL_S * 1000}
        found = (await self._ask(caller, "longPollingMsg", **form))["delayMsgList"]
        return found[0]["msgId"] if found else None

    async def finish(self, caller: Caller, topic: str, id: str) -> None:
        await self._ask(caller, "ackMsg", topic=topic, msgId=id, ack="true")

    async def _ask(self, caller: Caller, operation: str, **form: Any) -> Any:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        found = await caller.ask(f"/camellia/delayQueue/{operation}", urlencode(form).encode(), headers)
        assert found["code"] == 200, found
        return found


class Tally:
    """How many there are by now, for whoever waits for that."""

    def __init__(self) -> None:
        self._number = 0
        self._news = asyncio.Event()

    def add(self) -> None:
        self._number += 1
        self._news.set()

    async def reaches(self, number: int) -> None:
        while self._number < number:
            self._news.clear()
            await self._news.wait()


async def sent(
    words: Words,
    servers: Sequence[RunningServer],
    topic: str,
    ids: Sequence[str],
    callers: int = 6,
    answered: Tally | None = None,
) -> None:
    """Send all, by callers at both servers."""
    left = list(reversed(ids))

    async def work(caller: Caller) -> None:
        while left:
            await words.send(caller, topic, left.pop())
            if answered is not None:
                answered.add()

    await _with_callers(servers, callers, work)


class Consumption:
    """Who got what, and what came after it had been finished."""

    def __init__(self) -> None:
        self.deliveries: Counter[str] = Counter()
        self.finished: set[str] = set()
        self.finishes = Tally()
        self.after_finish: list[str] = []


async def consumed(
    words: Words,
    servers: Sequence[RunningServer],
    topic: str,
    count: int,
    seen: Consumption,
    callers: int = 6,
    ends: bool = True,
) -> None:
    """Pop until `count` jobs were seen (and finished, if `ends`) and nothing more comes."""

    async def work(caller: Caller) -> None:
        while True:
            id = await words.pop(caller, topic)
            if id is None:
                if len(seen.finished if ends else seen.deliveries) >= count:
                    return
                continue
            if id in seen.finished:
                seen.after_finish.append(id)
            seen.deliveries[id] += 1
            if ends:
                await words.finish(caller, topic, id)
                seen.finished.add(id)
                seen.finishes.add()

    await _with_callers(servers, callers, work)


async def came_late(words: Words, servers: Sequence[RunningServer], topic: str, callers: int = 2) -> list[str]:
    """What still comes while every lease that could be left runs out."""
    late: list[str] = []
    until_s = asyncio.get_running_loop().time() + LEASE_S + POLL_S

    async def work(caller: Caller) -> None:
        while asyncio.get_running_loop().time() < until_s:
            id = await words.pop(caller, topic)
            if id is not None:
                late.append(id)

    await _with_callers(servers, callers, work)
    return late


async def live_jobs(server: RunningServer, namespace: str) -> dict[str, int]:
    """Live jobs of a namespace by state, over all its topics."""
    client = server.client()
    answer = await client.ask("GET", "/v1/topics?limit=500", headers={"Dueline-Namespace": namespace})
    topics = answer.json()["topics"]
    assert topics, answer
    return {state: sum(topic["counts"][state] for topic in topics) for state in ("scheduled", "ready", "leased")}


async def _with_callers(
    servers: Sequence[RunningServer], count: int, work: Callable[[Caller], Awaitable[None]]
) -> None:
    callers = [Caller(servers, place) for place in range(count)]
    try:
        await asyncio.gather(*(work(caller) for caller in callers))
    finally:
        for caller in callers:
            caller.close()
