"""The embedded store's memory ceiling: sends are refused in good time, the rest goes on, and it heals by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from dueline.store.valkey.embedded import EmbeddedStore
from dueline.store.valkey.embedded_memory import SHARE, memory_bytes
from tests.kit.waiting import until
from tools.faults.connection import Answer, Connection
from tools.faults.server_process import ServerProcess

CEILING = 16 << 20
BODY = "x" * 200_000
JOBS = "/v1/topics/big/jobs"


class Caller:
    """One client of a server, with what these tests ask."""

    def __init__(self, server: ServerProcess) -> None:
        self.connection = Connection(*server.address)

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        return await self.connection.request(method, path, b"" if body is None else msgspec.json.encode(body))

    async def send(self, id: str) -> Answer:
        return await self.ask("POST", JOBS, {"id": id, "body": BODY})

    async def pull(self, most: int) -> list[dict[str, Any]]:
        return (await self.ask("POST", f"{JOBS[:-5]}/pull", {"max": most})).json()["jobs"]

    async def settle(self, verb: str, jobs: list[dict[str, Any]], **more: Any) -> list[str]:
        refs = [{"id": job["id"], "lease": job["lease"], **more} for job in jobs]
        return [
            one["result"] for one in (await self.ask("POST", f"{JOBS[:-5]}/{verb}", {"jobs": refs})).json()["results"]
        ]

    async def readiness(self, warnings: list[str]) -> None:
        """Wait until /readyz is 200 with exactly these warnings."""

        async def look() -> list[str]:
            answer = await self.ask("GET", "/readyz")
            assert answer.status == 200
            return [one["code"] for one in answer.json().get("warnings", [])]

        await until(look, lambda found: found == warnings)

    async def metric(self, name: str) -> float:
        page = (await self.ask("GET", "/metrics")).body.decode()
        return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"{name} "))


async def test_a_full_store_refuses_sends_drains_and_takes_sends_again_without_a_restart(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", env={"DUELINE_STORE__MAX_MEMORY_BYTES": str(CEILING)})
    await server.start()
    try:
        caller = Caller(server)
        stored = 0
        while (answer := await caller.send(f"job-{stored}")).status == 201:
            stored += 1
            assert stored < 200, "there is no ceiling"
        assert (answer.status, answer.json()["error"]["code"]) == (507, "store_full")
        assert stored > 20, "it was full from the start: this test shows nothing"
        await caller.readiness(["store_full"])
        assert await caller.metric('dueline_store_guard{guard="store_full",shard="embedded"}') == 1
        assert await caller.metric("dueline_store_maxmemory_bytes") == CEILING

        leased = await caller.pull(5)
        assert len(leased) == 5
        assert await caller.settle("extend", leased[:2], lease_ms=60_000) == ["extended"] * 2
        assert await caller.settle("release", leased[:2], delay_ms=3_600_000, error="later") == ["released"] * 2
        assert await caller.settle("ack", leased[2:3]) == ["acked"]
        cancelled = await caller.ask("DELETE", f"{JOBS}/{leased[0]['id']}")
        assert (cancelled.status, cancelled.json()["result"]) == (200, "cancelled")
        assert (await caller.send("still-full")).status in (201, 507), "never unknown, never a crash"
        await caller.settle("ack", leased[3:])
        while jobs := await caller.pull(10):
            assert await caller.settle("ack", jobs) == ["acked"] * len(jobs)

        assert (await caller.send("after")).status == 201
        await caller.readiness([])
        assert await caller.metric('dueline_store_guard{guard="store_full",shard="embedded"}') == 0
        assert await caller.metric("dueline_store_restarts_total") == 0
        lines = [line for line in server.output if "the store is full" in line or "the store has room again" in line]
        assert len(lines) == 2, lines
    finally:
        await server.stop()


async def test_without_a_setting_the_ceiling_is_a_share_of_the_machine(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.start()
    try:
        assert int(
            (await store._connection.call("INFO", "memory")).split(b"\r\nmaxmemory:")[1].split(b"\r\n")[0]
        ) == int(memory_bytes() * SHARE)
    finally:
        await store.stop()
