"""Workers that are killed in the middle of their work, on the real embedded store.

kill -9 of children and of whole workers under load: every job is done at least once, none is lost, no job has more
attempts than it may have. SIGTERM: no attempt is wasted, not one. A worker that acks before it works is found out.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dueline import new_job
from dueline.worker import SyncQueue

from .kit import short_folder

ROOT = Path(__file__).parents[2]
WITHIN_S = 60.0


class WorkersKit:
    """The store, the workers on it, and what their handlers report."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.url = f"embedded:{folder}/data"
        self.queue = SyncQueue(self.url)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.events: list[dict[str, Any]] = []
        self._ears = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ears.bind(str(folder / "events"))
        self._ears.settimeout(WITHIN_S)
        self._variables = {"EVENTS": str(folder / "events"), "DUELINE_URL": self.url, **variables}
        self._log = (folder / "log").open("wb")

    def send(self, topic: str, number: int, **options: Any) -> list[str]:
        jobs = [new_job(n, id=f"{topic}-{n}", **options) for n in range(number)]
        assert all(one.ok for one in self.queue.send_many(topic, jobs))
        return [job.id or "" for job in jobs]

    def start_worker(self) -> subprocess.Popen[bytes]:
        worker = subprocess.Popen(
            [sys.executable, "-m", "dueline.cli.main", "work", "tests.faults.worker_app:worker"],
            cwd=ROOT,
            env={**os.environ, **self._variables},
            stderr=self._log,
        )
        self.workers.append(worker)
        return worker

    def hear(self) -> dict[str, Any]:
        """The next event of any handler."""
        event = msgspec.json.decode(self._ears.recv(4096))
        self.events.append(event)
        return event

    def hear_until_done(self, ids: list[str]) -> None:
        """Listen until every job has ended once."""
        missing = set(ids) - self.ended
        while missing:
            event = self.hear()
            if event["what"] == "end":
                missing.discard(event["id"])

    @property
    def ended(self) -> set[str]:
        return {event["id"] for event in self.events if event["what"] == "end"}

    def kill(self, worker: subprocess.Popen[bytes]) -> None:
        worker.kill()
        worker.wait()
        self.workers.remove(worker)

    def close(self) -> None:
        for worker in list(self.workers):
            self.kill(worker)
        self.queue.close()
        self._ears.close()
        self._log.close()


@contextmanager
def field(**variables: str) -> Iterator[WorkersKit]:
    with short_folder() as folder:
        made = WorkersKit(folder, **variables)
        try:
            yield made
        finally:
            made.close()


def kill_a_child(pid: int) -> None:
    """kill -9 of the process that a handler runs in."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def stop_all(here: WorkersKit) -> None:
    for worker in list(here.workers):
        worker.terminate()
        assert worker.wait(WITHIN_S) == 0
        here.workers.remove(worker)


@pytest.mark.slow
def test_kill_9_of_a_pool_under_load_loses_nothing_and_uses_no_attempt_too_many() -> None:
    with field() as here:
        ids = here.send("processes", 100, max_attempts=6)
        first, second = here.start_worker(), here.start_worker()
        for n in range(1, 80):
            event = here.hear()
            if n % 20 == 0 and event["what"] == "begin":
                kill_a_child(event["pid"])
            if n == 45:
                here.kill(first)
                first = here.start_worker()
            if n == 75:
                here.kill(second)
                second = here.start_worker()
        here.hear_until_done(ids)
        # A worker that was killed between the end of a handler and its ack left a job that comes once more.
        until_s = time.monotonic() + WITHIN_S
        while {here.queue.get("processes", id).state for id in ids} != {"done"} and time.monotonic() < until_s:
            pass
        stop_all(here)
        states = {id: here.queue.get("processes", id) for id in ids}
    assert Counter(job.state for job in states.values()) == {"done": 100}
    assert max(event["attempt"] for event in here.events) <= 6
    assert max(Counter((event["id"], event["delivery"], event["what"]) for event in here.events).values()) == 1
    assert any(event["attempt"] > 1 for event in here.events), "something was killed"


@pytest.mark.slow
def test_a_job_whose_process_always_dies_ends_dead_after_its_attempts() -> None:
    with field(WORK_S="60") as here:
        [id] = here.send("processes", 1, max_attempts=2)
        here.start_worker()
        for attempt in (1, 2):
            event = here.hear()
            assert (event["what"], event["attempt"]) == ("begin", attempt)
            kill_a_child(event["pid"])
        stop_all(here)
        job = here.queue.get("processes", id)
    assert (job.state, job.reason, job.attempts) == ("dead", "exhausted", 2)
    assert job.last_error == "the process that ran the handler was killed by SIGKILL"


@pytest.mark.slow
def test_sigterm_wastes_no_attempt() -> None:
    """Each job has one attempt. Workers are stopped again and again, with no grace, while they hold jobs."""
    with field(GRACE="0s", WORK_S="0.3") as here:
        ids = [id for topic in ("processes", "threads", "coroutines") for id in here.send(topic, 12, max_attempts=1)]
        stops = 0
        while not here.ended >= set(ids):
            here.start_worker()
            for _ in range(18):
                if here.ended >= set(ids):
                    break
                here.hear()
            stop_all(here)
            stops += 1
        found = {id: here.queue.get(id.partition("-")[0], id) for id in ids}
    assert stops >= 2
    # One that had ended when it was given back, before its ack was said, is ready again. None is dead.
    assert {(job.state, job.reason) for job in found.values()} <= {("done", None), ("ready", None)}
    assert {job.attempts for job in found.values()} <= {0, 1}
    assert {event["attempt"] for event in here.events} == {1}


@pytest.mark.slow
def test_a_worker_that_acks_before_it_works_is_found_out() -> None:
    """The positive control: the same kill, and a job that nobody does any more."""
    with field(BROKEN="ack_first", WORK_S="60") as here:
        [id] = here.send("threads", 1)
        worker = here.start_worker()
        assert here.hear()["what"] == "begin"
        here.kill(worker)
        assert here.queue.get("threads", id).state == "done"
        assert here.ended == set(), "lost: done, and never done"
