"""100 merge keys x 100 pushes each, called back by the server, which is killed with -9 in the middle of delivering.

A delivery is successful when the target has answered 200 and the server lived to hear it. The target makes that exact:
before a kill it holds its answers, and the kill comes when the server has written down every answer it was given (the
groups of those calls are gone). So what is held at the kill was never successful, everything else was, and each item
must be in one successful delivery, in the order of the pushes of its key.

The control answers the held calls while the server is stopped and then kills it: their items come again, as at least
once promises, and the check must see them.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from base64 import urlsafe_b64encode
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web

from tests.kit.waiting import until
from tools.faults.connection import Connection, NoAnswer, NotSent
from tools.faults.server_process import ServerProcess

from ..kit.hook import Hook, ReceivedCall

KEYS = 100
SENDS = 100
PRODUCERS = 10
PATIENCE_S = 100.0
# A short time limit makes short leases: what the dead server had leased comes back soon.
ENV = {
    "DUELINE_PUSH__ALLOW": "127.0.0.0/8",
    "DUELINE_DIALECTS__EXFE__TIMEOUT_MS": "3000",
    "DUELINE_DIALECTS__EXFE__NAMESPACE": "default",  # the default namespace of the native API
}


class Target:
    """Where everything is delivered. `taken`: the items of each call that was answered, `groups` their ids."""

    def __init__(self) -> None:
        self.taken: list[list[str]] = []
        self.groups: list[str] = []
        self.held_calls = 0
        self._open = asyncio.Event()
        self._open.set()
        self._news = asyncio.Condition()

    async def answer(self, came: ReceivedCall) -> web.Response:
        items = json.loads(came.body)
        if not self._open.is_set():
            self.held_calls += 1
            async with self._news:
                self._news.notify_all()
            await self._open.wait()
        self.taken.append(items)
        self.groups.append(came.id)
        async with self._news:
            self._news.notify_all()
        return web.Response()

    @property
    def items(self) -> int:
        return sum(map(len, self.taken))

    async def reached(self, items: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: self.items >= items)

    async def hold(self) -> None:
        """Answer no more; return when calls wait for their answer."""
        self._open.clear()
        async with self._news:
            await self._news.wait_for(lambda: self.held_calls > 0)

    def go_on(self) -> None:
        self.held_calls = 0
        self._open.set()


class Run:
    """Pushes, by EXFE's protocol. A push whose answer was lost is not repeated: it is there or not (`unknown`)."""

    def __init__(self, server: ServerProcess, hook: Hook, target: Target) -> None:
        self.server = server
        self.target = target
        self.sure: set[str] = set()
        self.unknown: set[str] = set()
        self._service = urlsafe_b64encode(hook.url.encode()).decode()

    async def produce(self, keys: range) -> None:
        connection = Connection(*self.server.address)
        for number in range(SENDS):
            for key in keys:
                await self._push(connection, f"{key}-{number}", key)
        connection.close()

    async def _push(self, connection: Connection, item: str, key: int) -> None:
        while True:
            ontime = int(time.time()) + 1
            path = f"/v3/queue/key.{key}/POST/{self._service}?update=once&ontime={ontime}"
            try:
                answer = await connection.request("POST", path, json.dumps(item).encode())
            except NotSent:
                await asyncio.sleep(0.02)
                continue
            except NoAnswer:
                self.unknown.add(item)
                return
            if answer.status == 200:
                self.sure.add(item)
                return
            assert answer.status == 503, answer  # starting
            await asyncio.sleep(0.02)

    async def until_everything_answered_is_written_down(self) -> None:
        """A group whose success was written down is gone."""
        connection = Connection(*self.server.address)
        for group in self.target.groups:
            path = f"/v1/topics/exfe.queue/jobs/{group}"
            await until(lambda path=path: connection.request("GET", path), lambda answer: answer.status == 404)
        self.target.groups.clear()
        connection.close()

    async def until_nothing_is_left(self) -> None:
        connection = Connection(*self.server.address)

        async def look() -> dict[str, int]:
            return (await connection.request("GET", "/v1/topics/exfe.queue")).json()["counts"]

        live = ("scheduled", "ready", "leased")
        counts = await until(look, lambda counts: not any(counts[state] for state in live), within_s=90)
        connection.close()
        assert counts["dead"] == 0

    def check(self) -> None:
        found = Counter(item for items in self.target.taken for item in items)
        assert [item for item, times in found.items() if times > 1] == [], "in two successful deliveries"
        assert self.sure - set(found) == set(), "lost"
        assert set(found) - self.sure - self.unknown == set()
        for items in self.target.taken:
            [key] = {item.split("-")[0] for item in items}
            numbers = [int(item.split("-")[1]) for item in items]
            assert numbers == sorted(numbers), (key, numbers)
        assert max(map(len, self.target.taken)) > 1, "they were no groups"


async def _run(folder: Path, answered_while_stopped: bool) -> Run:
    target = Target()
    async with Hook(target.answer) as hook, asyncio.timeout(PATIENCE_S):
        server = ServerProcess(folder / "data", env=ENV)
        await server.start()
        try:
            run = Run(server, hook, target)
            step = KEYS // PRODUCERS
            producers = [asyncio.create_task(run.produce(range(at, at + step))) for at in range(0, KEYS, step)]
            for part in (0.2, 0.5):
                await target.reached(int(KEYS * SENDS * part))
                await target.hold()
                if answered_while_stopped:
                    server.signal(signal.SIGSTOP)
                    target.go_on()
                    await asyncio.sleep(0.2)  # the answers go into the stopped server's sockets: nothing tells when
                else:
                    await run.until_everything_answered_is_written_down()
                await server.kill()
                held_calls_are_over = asyncio.create_task(_idle(hook))
                await server.start()
                await held_calls_are_over
                target.go_on()
            await asyncio.gather(*producers)
            await run.until_nothing_is_left()
        finally:
            await server.stop()
    return run


async def _idle(hook: Hook) -> None:
    """The calls of the dead server are broken off: nobody will hear their answers."""
    await until(lambda: not hook.now)


@pytest.mark.slow
async def test_every_item_is_in_one_successful_delivery_in_push_order_though_the_server_is_killed(folder: Path) -> None:
    run = await _run(folder, answered_while_stopped=False)
    assert len(run.sure) + len(run.unknown) == KEYS * SENDS
    assert len(run.unknown) <= KEYS * SENDS // 50
    run.check()


@pytest.mark.slow
async def test_the_check_sees_what_a_server_forgot_that_died_before_it_heard_the_answer(folder: Path) -> None:
    run = await _run(folder, answered_while_stopped=True)
    with pytest.raises(AssertionError, match="in two successful deliveries"):
        run.check()
