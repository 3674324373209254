"""A worker writes the schedules of its code when it starts, and removes what left the code if it is told to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest

from dueline import Worker
from dueline.api.answers import Schedule
from dueline.api.schedule_requests import PutSchedule
from dueline.client.schedule_calls import put_schedule
from dueline.testing.queue import VirtualQueue
from dueline.worker.schedules import WorkerSchedules


@pytest.fixture
def queue() -> Iterator[VirtualQueue]:
    with VirtualQueue(start="2026-01-01T00:00:00Z") as queue:
        yield queue


def worker_with(name: str | None = "shop", **schedules: dict[str, Any]) -> Worker:
    worker = Worker(name=name)

    async def report(body: Any) -> None: ...

    handle = worker.handles("reports")(report)
    for one, options in schedules.items():
        worker.schedule(one, **options)(handle)
    return worker


def run(queue: VirtualQueue, worker: Worker) -> dict[str, Schedule]:
    """Start a worker and stop it; the schedules afterwards."""
    queue.work(worker)
    queue.stop(worker)
    return {one.name: one for one in queue.client.schedules()}


def test_a_started_worker_gets_a_job_at_each_occurrence(queue: VirtualQueue) -> None:
    worker = Worker()

    @worker.schedule(cron="0 9 * * *", tz="Europe/Madrid", tags=["daily"])
    @worker.schedule("hourly", {"kind": "hour"}, every="1h")
    @worker.handles("reports")
    async def report(body: dict[str, str] | None) -> None: ...

    queue.work(worker)
    queue.clock.advance("1d")
    handled = queue.recorder.bodies("reports")
    assert (handled.count({"kind": "hour"}), handled.count(None)) == (24, 1)
    shown = {one.name: (one.topic, one.cron, one.tz, one.every, one.owner) for one in queue.client.schedules()}
    assert shown == {
        "reports": ("reports", "0 9 * * *", "Europe/Madrid", None, None),
        "hourly": ("reports", None, None, "1h", None),
    }


WRITTEN: dict[str, dict[str, Any]] = {
    "cron": {"cron": "@daily", "tz": "Asia/Tokyo", "misfire": "all", "overlap": "skip"},
    "interval": {"every": 90.5, "jitter": "5s", "starts_at": "2026-02-01T00:00:00Z", "body": {"a": [1, 2.0]}},
    "ladder": {"every": "1h", "retry": ["60s", 120], "headers": {"X": "y"}, "tags": ["a"]},
    "backoff": {"every": "1h", "retry": {"base_ms": 5}, "lease": "1m", "ttl": "1d"},
    "at once": {"every": "1h", "retry": "none", "max_attempts": 3},
    "bytes": {"every": "1h", "body": b"\x00\x01"},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_schedule_that_did_not_change_is_not_written_again(queue: VirtualQueue, name: str) -> None:
    first = run(queue, worker_with(s=WRITTEN[name]))
    assert run(queue, worker_with(s=WRITTEN[name])) == first


@pytest.mark.parametrize(
    "changed",
    [{"cron": "0 1 * * *"}, {"cron": "@daily", "body": 2}, {"cron": "@daily", "retry": ["1m"]}, {"every": "1d"}],
)
def test_a_schedule_that_changed_is_written(queue: VirtualQueue, changed: dict[str, Any]) -> None:
    first = run(queue, worker_with(s={"cron": "@daily"}))["s"]
    second = run(queue, worker_with(s=changed))["s"]
    assert second.version > first.version
    assert run(queue, worker_with(s=changed))["s"] == second


def test_a_restart_forgets_no_missed_occurrence(queue: VirtualQueue) -> None:
    run(queue, worker_with(s={"every": "1h", "misfire": "all"}))
    queue.client.pause_schedule("s")
    queue.clock.advance("150m")
    run(queue, worker_with(s={"every": "1h", "misfire": "all"}))
    queue.client.resume_schedule("s")
    queue.clock.advance("1s")
    assert len(list(queue.client.list_jobs("reports"))) == 2


def test_a_pause_of_an_operator_stays_when_the_code_changes(queue: VirtualQueue) -> None:
    run(queue, worker_with(s={"every": "1h"}))
    queue.client.pause_schedule("s")
    shown = run(queue, worker_with(s={"every": "2h"}))["s"]
    assert (shown.every, shown.paused) == ("2h", True)


def test_what_left_the_code_stays_unless_the_worker_prunes(queue: VirtualQueue) -> None:
    queue.client.put_schedule("by-hand", "reports", every="1h")
    run(queue, worker_with("other", theirs={"every": "1h"}))
    run(queue, worker_with(old={"every": "1h"}, kept={"every": "1h"}))
    newer = worker_with(kept={"every": "1h"})
    assert set(run(queue, newer)) == {"by-hand", "theirs", "old", "kept"}
    newer.prune_schedules()
    assert set(run(queue, newer)) == {"by-hand", "theirs", "kept"}


class _Contended:
    """A queue in which others do first what this worker is about to do."""

    def __init__(self, queue: VirtualQueue, first: list[str]) -> None:
        self._queue = queue
        self._first = first  # what another worker writes before the next write of this one
        self.calls: list[str] = []

    async def schedules(self) -> list[Schedule]:
        return list(self._queue.client.schedules())

    async def schedule(self, name: str) -> Schedule:
        self.calls.append("read")
        return self._queue.client.schedule(name)

    async def put_schedule(self, name: str, request: PutSchedule) -> Schedule:
        self.calls.append("write")
        if self._first:
            self._queue.client.put_schedule(name, "reports", every=self._first.pop(0))
        return self._queue.client.call(put_schedule(name, request)).value

    async def delete_schedule(self, name: str) -> None:
        self.calls.append("delete")
        self._queue.client.delete_schedule(name)
        self._queue.client.delete_schedule(name)


@pytest.mark.parametrize(
    ("first", "calls"),
    [
        (["1h"], ["read", "write", "read"]),  # as this worker would have written it
        (["2h"], ["read", "write", "read", "write"]),
        (["2h", "3h"], ["read", "write", "read", "write", "read", "write"]),
    ],
)
def test_workers_that_start_at_once_agree(queue: VirtualQueue, first: list[str], calls: list[str]) -> None:
    wanted = WorkerSchedules()
    wanted.add("s", "reports", None, {"every": "1h"})
    contended = _Contended(queue, first)
    asyncio.run(wanted.write_all(cast("Any", contended)))
    assert contended.calls == calls
    assert queue.client.schedule("s").every == "1h"


def test_of_two_workers_that_prune_at_once_one_deletes(queue: VirtualQueue) -> None:
    run(queue, worker_with(old={"every": "1h"}, older={"every": "1h"}))
    wanted = WorkerSchedules("shop")
    wanted.prune = True
    contended = _Contended(queue, [])
    asyncio.run(wanted.write_all(cast("Any", contended)))
    assert (contended.calls, list(queue.client.schedules())) == (["delete", "delete"], [])


def test_a_worker_without_a_name_cannot_prune() -> None:
    with pytest.raises(ValueError, match="give the worker a name"):
        worker_with(None).prune_schedules()


def test_two_schedules_of_one_name_are_refused() -> None:
    worker = worker_with(s={"every": "1h"})

    async def other() -> None: ...

    with pytest.raises(ValueError, match='two schedules with the name "s"'):
        worker.schedule("s", every="2h")(worker.handles("other")(other))


@pytest.mark.parametrize("options", [{}, {"cron": "@daily", "every": "1h"}])
def test_a_schedule_needs_one_kind_of_time(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="cron or every"):
        worker_with(s=options)


def test_the_order_of_the_decorators_is_checked() -> None:
    async def report() -> None: ...

    with pytest.raises(TypeError, match=r"above @worker\.handles"):
        Worker().schedule(every="1h")(report)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("option", [{"crontab": "x"}, {"paused": True}, {"owner": "x"}, {"version": 3}])
def test_an_unknown_option_is_refused(option: dict[str, Any]) -> None:
    """A worker itself says whether its schedules are paused, and which version it replaces."""
    with pytest.raises(TypeError, match=f"no option {next(iter(option))}"):
        worker_with(s={"every": "1h", **option})


def test_a_schedule_that_the_queue_refuses_is_logged_and_the_worker_runs(
    queue: VirtualQueue, caplog: pytest.LogCaptureFixture
) -> None:
    worker = worker_with(bad={"cron": "61 * * * *"}, good={"every": "1h"})
    queue.work(worker)
    assert [one.name for one in queue.client.schedules()] == ["good"]
    warned = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warned) == 1
    assert 'bad was refused by the queue: cron: "61 * * * *" has a wrong minute field' in warned[0]
