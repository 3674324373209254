"""Workers with real child processes on a real store and a real server."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dueline import Client
from dueline.api.answers import Job
from dueline.testing.process import DUELINE
from dueline.worker import Queue, Retry, Worker, connect
from tests.kit.waiting import until

from ..kit.valkey import PrivateValkey
from . import worker_app as app
from .serve_kit import environment, served

ROOT = Path(__file__).parents[2]
WITHIN_S = 60.0
BIG_BYTES = 250_000  # a third more as base64: more than a pair of sockets holds


@pytest.fixture(scope="module")
def valkey() -> Iterator[PrivateValkey]:
    with PrivateValkey() as store:
        yield store


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("server") / "data") as url:
        yield url


class Watch:
    """A second consumer: it receives what handlers report, and reads jobs."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    async def report(self) -> dict[str, Any]:
        """The next report of a handler."""
        [job] = await self.queue.pull(["reports"], 1, 60_000, int(WITHIN_S * 1000))
        await self.queue.ack([job])
        return job.json()

    async def until(self, topic: str, id: str, *states: str) -> Job:
        return await until(lambda: self.queue.get(topic, id), lambda job: job.state in states, within_s=WITHIN_S)


@asynccontextmanager
async def working(url: str) -> AsyncIterator[Watch]:
    """The app's worker, and a consumer of what its handlers report."""
    app.worker.join_queue(url, None, None)
    queue = connect(url, "app")
    try:
        await app.worker.start()
        yield Watch(queue)
    finally:
        await app.worker.stop(0)
        await queue.close()


def ended(pid: int) -> bool:
    """Wait for the end of a process that need not be our child."""
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], WITHIN_S)[0])
    finally:
        os.close(watched)


async def test_a_handler_in_a_child_process_may_extend_and_send_and_the_child_is_used_again(
    valkey: PrivateValkey,
) -> None:
    async with working(valkey.url) as watch:
        for n in (1, 2):
            await app.say.asend(n, id=f"say{n}")
        first, second = await watch.report(), await watch.report()
        assert first == {"n": first["n"], "pid": first["pid"], "parent": os.getpid(), "extended": True}
        assert {first["n"], second["n"]} == {1, 2}
        assert first["pid"] == second["pid"] != os.getpid()
        await app.say_async.asend(3, id="say3")
        assert await watch.report() == {"n": 3, "pid": first["pid"]}
        for topic in ("say.here", "say.there"):
            await watch.queue.send(topic, 4)
            assert await watch.report() == {"n": 4, "topic": topic}
        await watch.queue.send("task", [1, 2, 3], id="t")
        assert await watch.report() == {"sum": 6, "pid": first["pid"]}
        assert (await watch.until("task", "t", "done")).attempts == 1
    assert ended(first["pid"])


async def test_what_goes_wrong_in_a_child_process_is_stored_with_the_job(valkey: PrivateValkey) -> None:
    async with working(valkey.url) as watch:
        for word in ("exit", "die", "discard", "retry", "raise"):
            await app.fails.asend(word, id=word, max_attempts=2 if word == "retry" else 1)
        found = {id: await watch.until("fails", id, "dead", "scheduled") for id in ("exit", "die", "discard", "retry")}
        assert {id: (job.state, job.reason) for id, job in found.items()} == {
            "exit": ("dead", "exhausted"),
            "die": ("dead", "exhausted"),
            "discard": ("dead", "rejected"),
            "retry": ("scheduled", None),
        }
        assert (found["exit"].last_error or "").endswith("SystemExit: 7")
        assert found["die"].last_error == "the process that ran the handler ended with exit code 7"
        assert (found["discard"].last_error, found["retry"].last_error) == ("no such order", "later")
        await app.sleeps.asend("no number", id="unfit", max_attempts=10)
        unfit = await watch.until("sleeps", "unfit", "dead")
        assert (unfit.reason, unfit.attempts) == ("rejected", 1)
        assert (unfit.last_error or "").endswith(".sleeps asks for: Expected `int`, got `str`")
        raised = await watch.until("fails", "raise", "dead")
        assert "worker_app.py" in (raised.last_error or "")
        assert (raised.last_error or "").endswith("LookupError: no such order")


async def test_a_child_process_is_killed_at_its_timeout_when_its_lease_is_lost_and_at_the_end_of_a_stop(
    valkey: PrivateValkey,
) -> None:
    async with working(valkey.url) as watch:
        await app.say.asend(1, id="first")
        pid = (await watch.report())["pid"]
        await app.hangs.asend(1, id="a")  # in the same child: there is only one
        assert await asyncio.to_thread(ended, pid)
        job = await watch.until("hangs", "a", "dead")
        assert (job.last_error or "").endswith("hangs did not end within 1 s")
        await app.waits.asend(1, id="b")
        pid = (await watch.report())["pid"]
        await app.waits.acancel("b")
        assert await asyncio.to_thread(ended, pid)
        await app.sleeps.asend(1, id="c")
        pid = (await watch.report())["pid"]
        await app.worker.stop(0)
        assert ended(pid)
        job = await watch.queue.get("sleeps", "c")
        assert (job.state, job.attempts) == ("ready", 0)
        await watch.queue.cancel("sleeps", "c")


async def test_a_child_process_that_dies_while_it_is_idle_costs_no_job_an_attempt(valkey: PrivateValkey) -> None:
    async with working(valkey.url) as watch:
        for n in range(5):
            await app.say.asend(n, id=f"idle{n}", max_attempts=1)
            pid = (await watch.report())["pid"]
            await watch.until("say", f"idle{n}", "done")
            os.kill(pid, signal.SIGKILL)


async def test_a_handler_in_a_child_process_hears_that_the_worker_stops(valkey: PrivateValkey) -> None:
    async with working(valkey.url) as watch:
        await app.waits.asend(1, id="d")
        await watch.report()
        await app.worker.stop("1m")
        assert (await watch.queue.get("waits", "d")).state == "done"


async def test_a_child_process_ends_with_its_worker_whatever_ends_that(valkey: PrivateValkey) -> None:
    command = [*DUELINE, "work", "tests.integration.worker_app:worker"]
    worker = subprocess.Popen(
        command, cwd=ROOT, env={**environment(valkey.url), "APP_URL": valkey.url}, stderr=subprocess.DEVNULL
    )

    try:
        queue = connect(valkey.url, "app")
        await queue.send("waits", 1, id="e", max_attempts=2)
        pid = (await Watch(queue).report())["pid"]
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        assert ended(pid)
        await queue.cancel("waits", "e")  # or another test's worker gets it when its lease is over
        await queue.close()
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_the_whole_group_of_processes_is_the_workers_to_obey(
    valkey: PrivateValkey, signum: signal.Signals
) -> None:
    """Ctrl-C in a terminal, or an init system that stops a service: children get it too, and end in their turn."""
    worker = subprocess.Popen(
        [*DUELINE, "work", "tests.integration.worker_app:worker"],
        cwd=ROOT,
        env={**environment(valkey.url), "APP_URL": valkey.url},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    try:
        queue = connect(valkey.url, "app")
        watch = Watch(queue)
        await queue.send("waits", 1, id=signum.name, max_attempts=1)
        pid = (await watch.report())["pid"]
        os.killpg(worker.pid, signum)
        assert await asyncio.to_thread(worker.wait, WITHIN_S) == 0
        assert ended(pid)
        job = await queue.get("waits", signum.name)
        assert (job.state, job.attempts, job.last_error) == ("done", 1, None)
        await queue.close()
    finally:
        if worker.poll() is None:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


@pytest.mark.parametrize("delay", ["4000d", "99999999999999999999999d"])
async def test_a_delay_that_a_server_refuses_is_a_failure_that_says_so(server: str, delay: str) -> None:
    async def same(queue: Queue) -> Queue:
        return queue

    worker = Worker(server)

    @worker.handles(delay, retry=["1h"])
    async def handle(n: int) -> None:
        raise Retry("the bank is closed", delay=delay)

    async with worker:
        await handle.asend(1, id="a")
        job = await Watch(await worker.ado(same)).until(delay, "a", "scheduled", "dead")
    assert (job.state, job.attempts) == ("scheduled", 1)
    assert (job.last_error or "").startswith("the bank is closed\nthe handler's retry was refused: delay")


@contextmanager
def starting(url: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker whose children take their time to start; at the end it is killed with them."""
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.integration.starting_app"],
        cwd=ROOT,
        env={**environment(url), "APP_URL": url, **variables},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield program
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


async def test_a_child_process_that_is_slow_to_start_holds_up_nothing_else(
    valkey: PrivateValkey, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    with starting(valkey.url, GATE=str(gate)):
        queue = connect(valkey.url, "app")
        watch = Watch(queue)
        await queue.send("big", b"x" * BIG_BYTES, id="slow", max_attempts=1)
        await watch.until("big", "slow", "leased")
        await queue.send("small", 7)
        assert await watch.report() == {"n": 7}
        (await asyncio.to_thread(gate.open, "w")).close()  # waits for the child to come that far
        assert await watch.report() == {"bytes": BIG_BYTES}
        assert (await watch.until("big", "slow", "done", "dead")).state == "done"
        await queue.close()


async def test_a_child_process_that_never_starts_is_given_up_whatever_waits_for_it(
    valkey: PrivateValkey, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    with starting(valkey.url, GATE=str(gate), CHILD_START_S="0.5"):
        queue = connect(valkey.url, "app")
        await queue.send("big", b"x" * BIG_BYTES, id="never", max_attempts=1)
        job = await Watch(queue).until("big", "never", "done", "dead")
        assert (job.state, job.reason) == ("dead", "exhausted")
        assert job.last_error == "the process for __main__.big did not begin within 0.5 s"
        await queue.close()


async def test_the_time_that_a_child_process_takes_to_start_is_not_its_handlers(valkey: PrivateValkey) -> None:
    with starting(valkey.url, START_S="2.3"):  # longer than the handler's timeout
        queue = connect(valkey.url, "app")
        watch = Watch(queue)
        await queue.send("big", b"x", id="late", max_attempts=1)
        job = await watch.until("big", "late", "done", "dead")
        assert (job.state, job.last_error) == ("done", None)
        assert await watch.report() == {"bytes": 1}
        await queue.close()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_a_child_process_that_still_starts_costs_no_attempt(
    valkey: PrivateValkey, tmp_path: Path, signum: signal.Signals
) -> None:
    """It is not deaf yet, and dies of it."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    with starting(valkey.url, GATE=str(gate), GRACE="1s") as program:
        queue = connect(valkey.url, "app")
        await queue.send("big", b"x", id=signum.name, max_attempts=1)
        with await asyncio.to_thread(gate.open, "w"):
            os.killpg(program.pid, signum)
            assert await asyncio.to_thread(program.wait, WITHIN_S) == 0
        job = await queue.get("big", signum.name)
        assert (job.state, job.attempts, job.last_error) == ("ready", 0, None)
        await queue.cancel("big", signum.name)
        await queue.close()


def test_a_plain_program_sends_without_a_worker_and_a_worker_over_http_gets_it(tmp_path: Path, server: str) -> None:
    program = tmp_path / "shop.py"
    program.write_text(
        "import sys\n"
        "from dueline.worker import Worker\n"
        "worker = Worker()\n"
        "@worker.handles('close')\n"
        "def close(n: int):\n"
        "    print('closed', n, flush=True)\n"
        "@worker.handles('never')\n"
        "async def never(n: int): ...\n"
        "if __name__ == '__main__':\n"
        "    print(close.send(7, id='a').result, close.send(7, id='a').result, close.cancel('a').result)\n"
        "    print(close.send(8, delay='1h', id='b').state, close.reschedule('b', delay=0).state)\n"
    )
    with Client(server) as client:
        env = environment(server)
        shown = subprocess.run([sys.executable, str(program)], env=env, capture_output=True, text=True, check=True)
        assert shown.stdout == "created kept cancelled\nscheduled ready\n"
        with subprocess.Popen(
            [*DUELINE, "work", "shop:worker"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"closed 8\n"
            worker.terminate()
            assert worker.wait(WITHIN_S) == 0
        assert client.get("close", "b").state == "done"
