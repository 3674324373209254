"""I17: many keys, many sends of each, consumers that fail now and then, and kill -9 of a server in the middle.

Every item that was acknowledged is in exactly one group that was acked, and each group has its items in send order.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tools.faults.connection import Answer, Connection, NoAnswer, NotSent
from tools.faults.server_process import ServerProcess

from ..kit.valkey import PrivateValkey
from .kit import serving

pytestmark = pytest.mark.slow

KEYS = 100
SENDS = 20
PRODUCERS = 10
CONSUMERS = 6
PATIENCE_S = 90.0
T = "/v1/topics/digests"


class Run:
    """Producers and consumers of merge groups. `acked`: the items of every group whose ack was certain."""

    def __init__(self, servers: list[ServerProcess]) -> None:
        self.servers = servers
        self.acked: dict[str, list[str]] = {}
        self.repeats = 0  # calls whose answer was lost, sent again
        self._turn = itertools.count()
        self._news = asyncio.Condition()

    @property
    def items(self) -> int:
        return sum(map(len, self.acked.values()))

    async def reached(self, items: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: self.items >= items)

    def connection(self) -> Connection:
        return Connection(*self.servers[next(self._turn) % len(self.servers)].address)

    async def ask(self, connection: Connection, path: str, body: Any) -> Any:
        """The answer of a call that may be repeated until it has one; None: refused (4xx)."""
        while True:
            try:
                answer = await connection.request("POST", T + path, msgspec.json.encode(body))
            except (NotSent, NoAnswer):
                answer = Answer(503, b"")
            if answer.status != 503:
                assert answer.status in (200, 201, 409), answer
                return answer.json() if answer.status < 300 else None
            self.repeats += 1
            await asyncio.sleep(0.02)

    async def produce(self, keys: range) -> None:
        connection = self.connection()
        for number in range(SENDS):
            for key in keys:
                item = f"{key}-{number}"
                merge = {"key": f"key {key}", "quiet_ms": 100, "max_wait_ms": 500, "max_items": 7, "item_id": item}
                await self.ask(connection, "/jobs", {"body": item, "merge": merge, "max_attempts": 1_000})
        connection.close()

    async def consume(self, number: int) -> None:
        dice = random.Random(number)
        connection = self.connection()
        while True:
            pulled = await self.ask(connection, "/pull", {"max": 5, "lease_ms": 1_000, "wait_ms": 500})
            for job in pulled["jobs"]:
                assert {f"key {item.split('-')[0]}" for item in job["items"]} == {job["merge_key"]}
                lease = {"id": job["id"], "lease": job["lease"]}
                roll = dice.random()
                if roll < 0.1:
                    await self.ask(connection, "/release", {"jobs": [{**lease, "delay_ms": 50, "error": "x"}]})
                elif roll > 0.03 + 0.1 and await self.ask(connection, "/ack", {"jobs": [lease]}) is not None:
                    async with self._news:
                        self.acked[job["id"]] = job["items"]
                        self._news.notify_all()  # else: forgotten, its lease runs out

    async def until_all_is_acked(self) -> None:
        step = KEYS // PRODUCERS
        producers = [self.produce(range(first, first + step)) for first in range(0, KEYS, step)]
        consumers = [asyncio.create_task(self.consume(number)) for number in range(CONSUMERS)]
        try:
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                for producer in producers:
                    group.create_task(producer)
                for consumer in consumers:
                    consumer.add_done_callback(lambda done: done.cancelled() or done.result())
                await self.reached(KEYS * SENDS)
        finally:
            for consumer in consumers:
                consumer.cancel()
            await asyncio.gather(*consumers, return_exceptions=True)

    def check(self) -> None:
        found = Counter(item for items in self.acked.values() for item in items)
        assert found == Counter(f"{key}-{number}" for key in range(KEYS) for number in range(SENDS))
        for items in self.acked.values():
            numbers = [int(item.split("-")[1]) for item in items]
            assert numbers == sorted(numbers), items
        assert max(map(len, self.acked.values())) > 1  # they were groups indeed


async def nothing_left(server: ServerProcess) -> None:
    topic = (await Connection(*server.address).request("GET", T)).json()
    live = {state: topic["counts"][state] for state in ("scheduled", "ready", "leased", "dead")}
    assert live == {"scheduled": 0, "ready": 0, "leased": 0, "dead": 0}


async def test_every_item_is_in_one_acked_group_in_order_though_the_server_is_killed(folder: Path) -> None:
    async with serving(folder) as server:
        run = Run([server])
        everything = asyncio.create_task(run.until_all_is_acked())
        for part in (0.3, 0.7):
            await run.reached(int(KEYS * SENDS * part))
            await server.kill()
            await server.start()
        await everything
        run.check()
        assert run.repeats > 0
        await nothing_left(server)


async def test_the_same_over_two_servers_and_four_partitions_of_which_one_is_killed(
    folder: Path, private_valkey: PrivateValkey
) -> None:
    url = private_valkey.url
    async with serving(folder / "a", store_url=url) as stays, serving(folder / "b", store_url=url) as dies:
        made = await Connection(*stays.address).request("PUT", T, b'{"partitions":4}')
        assert made.status == 201, made
        run = Run([stays, dies])
        everything = asyncio.create_task(run.until_all_is_acked())
        for part in (0.3, 0.6):
            await run.reached(int(KEYS * SENDS * part))
            await dies.kill()
            await dies.start()
        await everything
        run.check()
        await nothing_left(stays)


@pytest.mark.parametrize(
    "acked",
    [
        {"g": [f"{key}-{number}" for number in range(SENDS) for key in range(KEYS)][:-1]},
        {"g": [f"{key}-{number}" for key in range(KEYS) for number in range(SENDS)]},
        {"g": ["0-0", *(f"{key}-{number}" for number in range(SENDS) for key in range(KEYS))]},
    ],
    ids=["one is missing", "out of order", "one twice"],
)
def test_the_check_sees_what_it_is_there_for(acked: dict[str, list[str]]) -> None:
    run = Run([])
    run.acked = acked
    with pytest.raises(AssertionError):
        run.check()
