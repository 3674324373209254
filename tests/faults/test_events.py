"""A server is killed while it records events: every event that is missing lies behind a gap."""

from __future__ import annotations

import asyncio
import random
import uuid
from pathlib import Path

import pytest

from dueline import AsyncClient, DuelineApiError, Patience
from dueline.engine.event_feeds import parse_id
from dueline.engine.event_stream import SILENCES
from tests.kit.fault_suite import FaultSuite
from tests.kit.sse import Listener, Message
from tools.faults.scenario import Scenario
from tools.faults.server_process import ServerProcess

from ..kit.valkey import PrivateValkey

SENDERS = 8
NO_RETRY = Patience(deadline_s=0)


def url_of(server: ServerProcess) -> str:
    return "http://{}:{}".format(*server.address)


async def load(server: ServerProcess, topic: str, over: asyncio.Event) -> int:
    """Send until the server is gone. Returns how many sends were tried."""
    tried = 0

    async def sender(client: AsyncClient) -> None:
        nonlocal tried
        while not over.is_set():
            tried += 1
            try:
                await client.send(topic, tried, delay="1h")
            except DuelineApiError:
                return

    async with AsyncClient(url_of(server), patience=NO_RETRY) as client:
        await asyncio.gather(*(sender(client) for _ in range(SENDERS)))
    return tried


async def stored(server: ServerProcess, topic: str) -> set[str]:
    async with AsyncClient(url_of(server)) as client:
        return {job.id async for job in client.list_jobs(topic)}


async def heard(listener: Listener, ends: str) -> list[Message]:
    """All messages up to a gap that says lost, or up to the job with this id."""
    found: list[Message] = []
    while True:
        message = await listener.next()
        assert message is not None, "the stream has ended"
        found.append(message)
        if message.data.get("reason" if ends == "lost" else "id") == ends:
            return found


async def begun(listener: Listener, server: ServerProcess, topic: str) -> list[Message]:
    """Send through a server until the listener hears of it: then it records."""
    async with AsyncClient(url_of(server)) as client:
        await client.send(topic, 1, id="probe", delay="1h")
        sent = asyncio.ensure_future(heard(listener, "probe"))
        while not (await asyncio.wait([sent], timeout=1.0))[0]:
            await client.cancel(topic, "probe")  # the first one may have been before it recorded
    return await sent


def missing(jobs: set[str], messages: list[Message]) -> set[str]:
    reported = {message.data["id"] for message in messages if message.event == "job"}
    assert reported <= jobs, "an event of a job that was never stored"
    return jobs - reported


@pytest.mark.faults
@pytest.mark.timeout(900)
async def test_what_a_killed_server_did_not_tell_is_behind_a_gap(
    suite: FaultSuite, private_valkey: PrivateValkey, folder: Path
) -> None:
    dice = random.Random(suite.seed)
    rounds, operations, unsaid = suite.rounds(2, 10), 0, 0
    other = ServerProcess(folder / "other", store_url=private_valkey.url)
    await other.start()
    try:
        for number in range(rounds):
            topic = f"t-{uuid.uuid4().hex}"
            victim = ServerProcess(folder / f"victim-{number}", store_url=private_valkey.url)
            await victim.start()
            async with Listener(url_of(other), f"?topic={topic}") as listener:
                first = await begun(listener, victim, topic)
                over = asyncio.Event()
                loading = asyncio.ensure_future(load(victim, topic, over))
                first.append(await listener.job())
                await asyncio.sleep(dice.uniform(0.1, 0.6))  # the moment of the kill is what varies
                await victim.kill()
                async with AsyncClient(url_of(other)) as client:
                    killed_at = parse_id((await anext(client.events())).cursor or "")
                over.set()
                operations += await loading
                messages = first
                for _ in range(SILENCES):  # both reports, so that the second one is not taken for the next victim's
                    messages += await heard(listener, "lost")
            assert parse_id(messages[-1].id) > killed_at, "the gap is not behind the kill"
            unsaid += len(missing(await stored(other, topic), messages))
    finally:
        await other.kill()
    suite.report(Scenario(name="server killed, events", seed=suite.seed, operations=operations, faults=rounds))
    control = Scenario(
        name="server killed, events: gaps ignored",
        seed=suite.seed,
        operations=operations,
        faults=rounds,
        lost=unsaid,
        control=True,
    )
    suite.report(control)


@pytest.mark.faults
@pytest.mark.timeout(900)
async def test_a_server_that_stops_tells_everything_and_leaves_no_gap(
    private_valkey: PrivateValkey, folder: Path
) -> None:
    topic = f"t-{uuid.uuid4().hex}"
    other, stopped = (ServerProcess(folder / name, store_url=private_valkey.url) for name in ("other", "stopped"))
    await asyncio.gather(other.start(), stopped.start())
    try:
        async with Listener(url_of(other), f"?topic={topic}") as listener:
            first = await begun(listener, stopped, topic)
            over = asyncio.Event()
            loading = asyncio.ensure_future(load(stopped, topic, over))
            first.append(await listener.job())
            await stopped.stop()
            over.set()
            await loading
            async with AsyncClient(url_of(other)) as client:
                await client.send(topic, 1, id="last", delay="1h")
            messages = first + await heard(listener, "last")
        assert [message for message in messages if message.event == "gap" and message.data["reason"] == "lost"] == []
        assert missing(await stored(other, topic), messages) == set()
    finally:
        await asyncio.gather(other.kill(), stopped.kill())
