"""Servers of one store are restarted one after the other, under load from clients that know all of them."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from dueline import Client, Patience
from dueline.client.errors import DuelineApiError, LeaseLost
from dueline.testing.checker import Kind, Report
from dueline.testing.client_history import History, WatchedClient
from tests.kit.fault_suite import FaultSuite
from tests.kit.valkey import PrivateValkey
from tests.kit.waiting import until
from tools.faults.scenario import DOUBLED, Scenario
from tools.faults.server_process import ServerProcess
from tools.faults.store_check import findings_at

from .under_load import clock_steps

SENDERS, CONSUMERS = 3, 3
PROGRESS = 5  # calls that every client makes between two events
TIMES = {"DUELINE_SERVER__LAME_DUCK_MS": "300", "DUELINE_SERVER__DRAIN_MS": "30000"}


class Traffic:
    """Threads that send, pull and ack through clients of their own, each of which knows all servers."""

    def __init__(self, url: str, topic: str, seed: int, lease: str) -> None:
        self.history = History()
        self.failed: list[DuelineApiError] = []
        self.others: list[str] = []  # what is wrong with servers and store
        self.sent: set[str] = set()
        self.acked: set[str] = set()
        self._calls = [0] * (SENDERS + CONSUMERS)
        self._topic = topic
        self._lease = lease
        self._sending = True
        self._clients = [Client(url, timeout_s=20) for _ in range(SENDERS + CONSUMERS)]
        watched = [self.history.watch(client) for client in self._clients]
        dice = random.Random(seed)
        seeds = [dice.random() for _ in range(SENDERS)]
        senders = [threading.Thread(target=self._send, args=(n, watched[n], seeds[n])) for n in range(SENDERS)]
        consumers = [threading.Thread(target=self._consume, args=(n, watched[n])) for n in range(SENDERS, len(watched))]
        self._threads = [*senders, *consumers]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    async def goes_on(self) -> None:
        """Wait until every client has made some calls since now."""
        enough = [calls + PROGRESS for calls in self._calls]
        await until(lambda: all(now >= then for now, then in zip(self._calls, enough, strict=True)), within_s=60)

    async def stop(self) -> None:
        """Send no more, consume what is left, end."""
        self._sending = False
        for thread in self._threads:
            await asyncio.to_thread(thread.join, 60)
            assert not thread.is_alive(), "jobs are left that nobody gets"

    def report(self) -> Report:
        report = self.history.report()
        for client in self._clients:
            client.close()
        return report

    def _send(self, number: int, client: WatchedClient, seed: float) -> None:
        dice = random.Random(seed)
        count = 0
        while self._sending:
            count += 1
            id = f"{number}-{count}"
            try:
                client.send(self._topic, {"n": count}, id=id, delay=dice.randrange(60) / 1000)
            except DuelineApiError as error:
                self.failed.append(error)
            else:
                self.sent.add(id)
                self._calls[number] += 1

    def _consume(self, number: int, client: WatchedClient) -> None:
        while self._sending or len(self.acked) < len(self.sent):
            try:
                self._calls[number] += 1
                for job in client.pull(self._topic, max=10, lease=self._lease, wait="1s"):
                    client.ack(job)
                    self.acked.add(job.id)
            except LeaseLost:  # an answer: its job is delivered again
                pass
            except DuelineApiError as error:
                self.failed.append(error)


@contextmanager
def counted_retries() -> Iterator[list[str]]:
    """The log line of every try that was repeated."""
    lines: list[str] = []

    class Counter(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno == logging.DEBUG and "is repeated" in record.getMessage():
                lines.append(record.getMessage())

    log, counter = logging.getLogger("dueline.client"), Counter()
    before = log.level
    log.addHandler(counter)
    log.setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        log.setLevel(before)
        log.removeHandler(counter)


@asynccontextmanager
async def running(store_url: str, folder: Path, count: int = 3) -> AsyncIterator[list[ServerProcess]]:
    servers = [ServerProcess(folder / str(n), store_url=store_url, env=TIMES) for n in range(count)]
    try:
        await asyncio.gather(*(server.start() for server in servers))
        yield servers
    finally:
        await asyncio.gather(*(server.kill() for server in servers))


def url_of(*servers: ServerProcess) -> str:
    return ",".join(f"http://127.0.0.1:{server.port}" for server in servers)


async def restarted(
    store_url: str, folder: Path, topic: str, rounds: int, seed: int, kills: bool = False, servers: int = 3
) -> tuple[Traffic, Report, list[str]]:
    """Restart each server so many times under load: with SIGTERM, or with SIGKILL. While it is away and after it is
    back, every client goes on."""
    with counted_retries() as retries:
        async with running(store_url, folder, servers) as processes:
            traffic = Traffic(url_of(*processes), topic, seed, lease="3s" if kills else "60s")
            traffic.start()
            try:
                await traffic.goes_on()
                for server in processes * rounds:
                    code = await (server.kill() if kills else server.stop(60))
                    assert kills or code == 0
                    await traffic.goes_on()
                    await server.start()
                    await traffic.goes_on()
            finally:
                await traffic.stop()
            report = await asyncio.to_thread(traffic.report)
            traffic.others += await clock_steps(processes)
        traffic.others += [f"fsck: {finding}" for finding in await findings_at(store_url)]
    return traffic, report, retries


def scenario(name: str, seed: int, faults: int, traffic: Traffic, report: Report, retries: Sequence[str]) -> Scenario:
    """A repeated try is a refusal; the caller did not notice it."""
    return Scenario(
        name=name,
        seed=seed,
        operations=len(traffic.history.events),
        faults=faults,
        refused=len(retries),
        lost=report.count(Kind.LOST),
        early=report.count(Kind.EARLY),
        doubled=report.count(*DOUBLED),
        others=(*traffic.others, *(f"a call failed: {error}" for error in traffic.failed[:5])),
    )


async def test_a_client_with_all_addresses_notices_no_restart(private_valkey: PrivateValkey, folder: Path) -> None:
    traffic, report, _ = await restarted(private_valkey.url, folder, "rolling-short", rounds=1, seed=13, servers=2)
    assert (traffic.failed, traffic.others, report.violations, report.redeliveries) == ([], [], (), 0)
    assert traffic.acked == traffic.sent


@pytest.mark.faults
@pytest.mark.timeout(900)
async def test_a_client_with_all_addresses_notices_no_restart_of_twelve(
    suite: FaultSuite, private_valkey: PrivateValkey, folder: Path
) -> None:
    rounds = suite.rounds(1, 4)
    traffic, report, retries = await restarted(private_valkey.url, folder, "rolling", rounds, suite.seed)
    suite.report(scenario("servers restarted one by one", suite.seed, 3 * rounds, traffic, report, retries))
    assert (traffic.failed, report.violations, report.redeliveries) == ([], (), 0)
    assert traffic.acked == traffic.sent


@pytest.mark.faults
@pytest.mark.timeout(900)
async def test_control_without_the_drain_calls_break_and_are_repeated_and_nothing_is_lost(
    suite: FaultSuite, private_valkey: PrivateValkey, folder: Path
) -> None:
    rounds = suite.rounds(1, 2)
    traffic, report, retries = await restarted(
        private_valkey.url, folder, "rolling-killed", rounds, suite.seed, kills=True
    )
    suite.report(scenario("servers killed one by one", suite.seed, 3 * rounds, traffic, report, retries))
    assert (traffic.failed, report.violations) == ([], ())
    assert traffic.acked == traffic.sent
    assert any("broke before the answer came" in line for line in retries), "the kills interrupted nothing"


@pytest.mark.slow
async def test_control_a_client_with_one_address_fails_while_its_server_is_away(
    private_valkey: PrivateValkey, folder: Path
) -> None:
    async with running(private_valkey.url, folder) as servers:
        with (
            Client(url_of(*servers), patience=Patience(deadline_s=20)) as of_all,
            Client(url_of(servers[0]), patience=Patience(deadline_s=0.5)) as of_one,
        ):
            for client in (of_all, of_one):
                await asyncio.to_thread(client.send, "rolling-control", 1)
            await servers[0].stop(30)
            with pytest.raises(DuelineApiError):
                await asyncio.to_thread(of_one.send, "rolling-control", 2)
            await asyncio.to_thread(of_all.send, "rolling-control", 2)
