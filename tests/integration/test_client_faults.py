"""Both clients when the network and the server fail: what was answered is there once, what is unknown says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dueline import AsyncClient, Client, NewJob, Patience
from dueline.api.requests import Merge
from dueline.client import errors
from dueline.client.calls import json_body
from tests.kit.async_tests import one_loop
from tests.kit.waiting import until
from tools.faults.proxy import Cut, FaultProxy
from tools.faults.server_process import ServerProcess

from .shells import QUICK, both


class ClientKit:
    """A real server behind a proxy that breaks connections, and a client of either kind that talks through it."""

    def __init__(self, kind: type[Any], server: ServerProcess, proxy: FaultProxy, direct: AsyncClient) -> None:
        self.kind = kind
        self.server = server
        self.proxy = proxy
        self.direct = direct  # around the proxy, to see what is stored

    def client(self, **options: Any) -> Any:
        host, port = self.proxy.address
        return self.kind(f"http://{host}:{port}", **{"timeout_s": 5, "patience": QUICK, **options})

    async def ask(self, client: Any, method: str, *args: Any, **options: Any) -> Any:
        """Call a method, of a sync client in a thread of its own."""
        if isinstance(client, Client):
            return await asyncio.to_thread(getattr(client, method), *args, **options)
        return await getattr(client, method)(*args, **options)

    async def stored(self, topic: str) -> list[str]:
        """The live jobs of a topic."""
        return [job.id async for job in self.direct.list_jobs(topic) if job.state in ("scheduled", "ready", "leased")]


@asynccontextmanager
async def client_kit(kind: type[Any], data: Path) -> AsyncIterator[ClientKit]:
    server = ServerProcess(data)
    await server.start()
    proxy = FaultProxy(server.address)
    await proxy.start()
    try:
        async with AsyncClient(f"http://127.0.0.1:{server.port}") as direct:
            yield ClientKit(kind, server, proxy, direct)
    finally:
        await proxy.stop()
        await server.stop()


loop_runner = one_loop  # the tests share servers


@pytest.fixture(scope="module")
def kits(
    loop_runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[type[Any]], ClientKit]]:
    """One server for all tests of a kind of client, started when the first of them asks for it."""
    stack, started = AsyncExitStack(), dict[type[Any], ClientKit]()

    def kit_of(kind: type[Any]) -> ClientKit:
        if kind not in started:
            kit = client_kit(kind, tmp_path_factory.mktemp("faults") / "data")
            started[kind] = loop_runner.run(stack.enter_async_context(kit))
        return started[kind]

    yield kit_of
    loop_runner.run(stack.aclose())


@pytest.fixture
def kind() -> type[Any]:
    return AsyncClient


@pytest.fixture
def kit(kind: type[Any], kits: Callable[[type[Any]], ClientKit]) -> ClientKit:
    kit = kits(kind)
    kit.proxy.heal()
    return kit


@both
@pytest.mark.parametrize(
    ("up", "after_bytes"),
    [(True, 0), (True, 20), (False, 0), (False, 30), (False, 150)],
    ids=["before", "in the request", "before the answer", "in its head", "in its body"],
)
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
async def test_a_send_whose_connection_breaks_anywhere_is_stored_once(
    up: bool, after_bytes: int, reset: bool, kit: ClientKit
) -> None:
    topic = f"cut-{up}-{after_bytes}-{reset}"
    client = kit.client()
    cut = kit.proxy.arm(Cut(b'"id":"one"', after_bytes, up=up, reset=reset))
    sent = await kit.ask(client, "send", topic, {"n": 1}, id="one", delay="1h")
    assert cut.fired.is_set()
    assert (sent.id, sent.result) == ("one", "created" if up else "kept")
    assert await kit.stored(topic) == ["one"]


@both
async def test_many_jobs_without_ids_whose_answer_is_lost_are_stored_once(kit: ClientKit) -> None:
    jobs = [
        NewJob(body=json_body("first of many"), delay="1h"),
        NewJob(body=json_body(2), delay="1h"),
        NewJob(body=json_body(3), merge=Merge("k", quiet_ms=3_600_000)),
    ]
    cut = kit.proxy.arm(Cut(b"first of many", 0))
    sent = await kit.ask(kit.client(), "send_many", "many", jobs)
    assert cut.fired.is_set()
    assert [(item.result, item.items_count) for item in sent] == [("kept", None), ("kept", None), ("kept", 1)]
    assert sorted(await kit.stored("many")) == sorted(item.id for item in sent)


@both
async def test_an_ack_whose_answer_is_lost_is_done_and_known_to_be(kit: ClientKit) -> None:
    client = kit.client()
    await kit.ask(client, "send", "ack", 1, id="a")
    [leased] = await kit.ask(client, "pull", "ack")
    kit.proxy.arm(Cut(leased.lease.encode(), 0))
    assert (await kit.ask(client, "ack", leased)).result == "acked"
    assert (kit.proxy.cuts > 0, await kit.stored("ack")) == (True, [])


@both
async def test_a_release_whose_answer_is_lost_is_done_and_said_to_be_unknown(kit: ClientKit) -> None:
    client = kit.client()
    await kit.ask(client, "send", "release", 1, id="a")
    [leased] = await kit.ask(client, "pull", "release")
    kit.proxy.arm(Cut(leased.lease.encode(), 0))
    with pytest.raises(errors.UnknownOutcome, match="may have succeeded"):
        await kit.ask(client, "release", leased, delay="1h")
    assert (await kit.direct.get("release", "a")).state == "scheduled"


@both
async def test_while_nobody_lets_connections_in_a_call_is_tried_again(kit: ClientKit) -> None:
    client = kit.client()
    kit.proxy.refusing = True
    sending = asyncio.create_task(kit.ask(client, "send", "refused", 1, id="a"))
    assert not (await asyncio.wait({sending}, timeout=0.1))[0]
    kit.proxy.heal()
    assert (await sending).result == "created"


@both
@pytest.mark.parametrize("way", ["up", "down"])
async def test_a_call_that_is_swallowed_ends_in_time_and_the_next_one_has_a_new_connection(
    way: str, kit: ClientKit
) -> None:
    client = kit.client(timeout_s=0.3, patience=Patience(deadline_s=0))
    topic = f"swallowed-{way}"
    await kit.ask(client, "send", topic, 1, id="a", delay="1h")
    getattr(kit.proxy, way).black_hole = True
    with pytest.raises(errors.UnknownOutcome):
        await kit.ask(client, "send", topic, 2, id="b", delay="1h")
    kit.proxy.heal()
    sent = await kit.ask(client, "send", topic, 2, id="b", delay="1h")
    assert sent.result == ("created" if way == "up" else "kept")
    assert sorted(await kit.stored(topic)) == ["a", "b"]


@both
async def test_an_answer_that_only_trickles_ends_in_time(kit: ClientKit) -> None:
    client = kit.client(timeout_s=0.5, patience=Patience(deadline_s=0))
    kit.proxy.down.slice_bytes, kit.proxy.down.latency_ms = 1, 50
    with pytest.raises(errors.UnknownOutcome, match=r"within 0\.5 s"):
        await kit.ask(client, "send", "trickle", 1, id="a")


@both
async def test_a_server_that_is_killed_between_request_and_answer_has_stored_the_job_once(kit: ClientKit) -> None:
    client = kit.client(timeout_s=30)
    kit.proxy.down.black_hole = True
    sending = asyncio.create_task(kit.ask(client, "send", "killed", {"n": 1}, id="one", delay="1h"))
    await until(lambda: kit.stored("killed"), lambda stored: stored == ["one"])
    assert not sending.done()
    await kit.server.kill()
    kit.proxy.heal()
    await kit.server.start()
    assert ((await sending).result, await kit.stored("killed")) == ("kept", ["one"])


async def test_cancelled_calls_leave_no_connection_behind_that_answers_another_call(kit: ClientKit) -> None:
    client = kit.client(max_connections=4)
    kit.proxy.down.latency_ms = 2
    kit.proxy.down.jitter_ms = 4
    for turn in range(10):
        tasks = [asyncio.create_task(client.get("none", f"{turn}-{n}")) for n in range(4)]
        await asyncio.wait(tasks, timeout=0.004)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sent = await client.send("cancelled", turn, id=f"s{turn}", delay="1h")
        assert (sent.id, sent.result) == (f"s{turn}", "created")
    assert len(client._pool.idle) <= 4
    await client.close()
