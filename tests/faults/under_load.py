"""Real servers on one store under recorded load: what the scenarios of the fault suite share.

A scenario starts servers and load (`loaded`), injects its faults, and ends with `LoadedServers.finished`, which stops
the producers, drains, dumps, runs fsck, reads the counters of the servers, and checks the history.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import uuid
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from dueline.engine.guards import RULES, Guard
from dueline.testing.history import Final, Recorder, write
from tools.faults.connection import Answer, Connection
from tools.faults.load import Load, Plan
from tools.faults.recording_client import RecordingClient
from tools.faults.scenario import Scenario, judged
from tools.faults.server_process import ServerProcess
from tools.faults.store_check import findings_at

DRAINED_WITHIN_S = 120.0
PLAN = Plan(max_delay_ms=800, pause_ms=15.0, retry_s=40.0, max_jobs=1_000_000)
TAME = msgspec.structs.replace(PLAN, wild=False, lease_ms=(30_000,))
"""Every call of this load succeeds when nothing fails: no stale tokens, no conflicts, no lease that runs out."""


class LoadedServers:
    """The servers, their load and its history. `dice` is for the schedule of faults."""

    def __init__(self, store_url: str, servers: Sequence[ServerProcess], plan: Plan, seed: int) -> None:
        self.store_url = store_url
        self.servers = servers
        self.seed = seed
        self.recorder = Recorder()
        self.load = Load(plan, [server.address for server in servers], self.recorder, seed)
        self.dice = random.Random(f"{seed}/faults")
        self.others: list[str] = []  # what a scenario itself finds wrong
        self._clients: list[RecordingClient] = []

    async def start(self) -> None:
        await asyncio.gather(*(server.start() for server in self.servers))
        await self.load.start()
        await self.load.acknowledged_reaches(50, 90.0)

    async def stop(self) -> None:
        await self.load.stop()
        for client in self._clients:
            await client.close()
        await asyncio.gather(*(server.kill() for server in self.servers))

    def client(self, name: str, server: int = 0, timeout_s: float = 60.0) -> RecordingClient:
        """One more client in the same history."""
        client = RecordingClient(name, *self.servers[server].address, self.recorder, timeout_s)
        self._clients.append(client)
        return client

    async def serves(self, sends: int = 30, within_s: float = 120.0) -> None:
        """Return when this many more sends were accepted."""
        await self.load.acknowledged_reaches(self.load.acknowledged + sends, within_s)

    async def get(self, path: str, server: int = 0) -> Answer:
        connection = Connection(*self.servers[server].address)
        try:
            return await connection.request("GET", path)
        finally:
            connection.close()

    async def finished(
        self,
        name: str,
        *,
        gap_topics: Collection[str] | None = None,
        extra_topics: Sequence[str] = (),
        control: bool = False,
        **figures: Any,
    ) -> Scenario:
        """End the load and judge. `figures`: fields of the scenario that the history does not have."""
        await self.load.stop_sending()
        drained = await self.load.drained(DRAINED_WITHIN_S)
        await self.load.stop()
        final = await self.load.dump(90.0)
        for topic in extra_topics:
            final |= await self._dumped(topic)
        others = await self.trouble()
        if not drained:
            others.append("live jobs were left after the drain")
        await asyncio.gather(*(server.stop() for server in self.servers))
        others += [f"fsck: {finding}" for finding in await findings_at(self.store_url)]
        scenario = judged(
            name, self.seed, self.recorder.events, final, topics=gap_topics, others=others, control=control
        )
        scenario = msgspec.structs.replace(scenario, **figures)
        if scenario.failures():
            kept = self._kept(final)
            scenario = msgspec.structs.replace(scenario, others=(*scenario.others, f"history and logs: {kept}"))
        return scenario

    async def trouble(self) -> list[str]:
        """Problems that the history does not show. Called while the servers run."""
        bugs = [f"status 500 or worse: {bug}" for bug in self._bugs()]
        return [*self.others, *bugs, *await clock_steps(self.servers)]

    def _kept(self, final: Final) -> Path:
        """Write the history and the output of the servers to a new folder, for whoever looks for the reason."""
        folder = Path(tempfile.mkdtemp(prefix="dueline-faults-"))
        write(folder / "history.jsonl", self.recorder.events, final)
        for server in self.servers:
            (folder / f"{server.port}.log").write_text("\n".join(server.output))
        return folder

    async def _dumped(self, topic: str) -> Final:
        client = self.client("dump")
        return await client.dump(topic)

    def _bugs(self) -> list[str]:
        return [*self.load.bugs, *(bug for client in self._clients for bug in client.bugs)]


async def clock_steps(servers: Sequence[ServerProcess]) -> list[str]:
    """No scenario moves a clock, so no server may count a step. What one counted before it was killed is in its log."""
    found: list[str] = []
    for server in servers:
        connection = Connection(*server.address)
        try:
            page = (await connection.request("GET", "/metrics")).body.decode()
        finally:
            connection.close()
        counted = re.search(r"^dueline_clock_steps_total(?:\{\})? (\S+)$", page, re.MULTILINE)
        logged = sum(1 for line in server.output if RULES[Guard.CLOCK_STEP].entered in line)
        if counted is None or float(counted[1]) != 0 or logged:
            found.append(f"server {server.port} counted a clock step: {counted and counted[1]}, in its log: {logged}")
    return found


@asynccontextmanager
async def loaded(
    folder: Path,
    store_url: str,
    seed: int,
    *,
    plan: Plan = PLAN,
    servers: int = 2,
    durability: str = "replicated",
    topics: Sequence[str] = (),
) -> AsyncIterator[LoadedServers]:
    """That many servers on this store, under load. `topics`: new ones if there are none."""
    env = {"DUELINE_STORE__DURABILITY": durability}
    names = topics or [f"load-{uuid.uuid4().hex}" for _ in plan.topics]  # other scenarios use the same store
    plan = msgspec.structs.replace(plan, topics=tuple(names))
    made = [ServerProcess(folder / str(number), store_url=store_url, env=env) for number in range(servers)]
    running = LoadedServers(store_url, made, plan, seed)
    try:
        await running.start()
        yield running
    finally:
        await running.stop()
