"""The queue of the testing kit, through the fixtures of its own plugin."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dueline import IdExists, InvalidRequest, LeaseLost, NotFound
from dueline.testing.local_client import LocalClient
from dueline.testing.queue import QueueClock, VirtualQueue
from dueline.testing.recorder import Recorder
from dueline.worker import Context, Discard, Retry, Snooze, TaskWorker, Worker

NOBODY = "http://127.0.0.1:1"


def runs(recorder: Recorder, topic: str | None = None) -> list[tuple[str, Any, str]]:
    return [(run.topic, run.body, run.outcome) for run in recorder.handled(topic)]


def test_a_reminder_comes_after_fifteen_days_and_not_a_millisecond_before(
    dueline_client: LocalClient, dueline_clock: QueueClock
) -> None:
    dueline_client.send("reminders", {"user": 7}, delay="15d")
    dueline_clock.advance("14d")
    dueline_clock.advance(86_399.999)
    assert dueline_client.pull("reminders") == ()
    dueline_clock.advance(0.001)
    [job] = dueline_client.pull("reminders")
    assert (job.json(), job.due_at) == ({"user": 7}, dueline_clock.now)


def test_it_begins_at_the_real_time_or_where_the_test_says(
    dueline_clock: QueueClock, dueline_make_queue: Callable[..., VirtualQueue]
) -> None:
    assert abs(dueline_clock.now_ms / 1000 - time.time()) < 60
    clock = dueline_make_queue(start=datetime(2030, 1, 1, tzinfo=UTC)).clock
    clock.advance(timedelta(days=1))
    assert clock.now == datetime(2030, 1, 2, tzinfo=UTC)
    clock.advance_to("2030-06-01T00:00:00Z")
    clock.advance_to("2030-01-01T00:00:00Z")
    assert clock.now == datetime(2030, 6, 1, tzinfo=UTC)


def test_the_client_is_answered_by_the_real_api(dueline_client: LocalClient, dueline_clock: QueueClock) -> None:
    with pytest.raises(NotFound):
        dueline_client.get("t", "nobody")
    dueline_client.send("t", 1, id="a")
    with pytest.raises(IdExists):
        dueline_client.send("t", 2, id="a")
    with pytest.raises(InvalidRequest) as refused:
        dueline_client.send("t", 1, lease="1000d")
    assert refused.value.field == "lease_ms"
    [job] = dueline_client.pull("t", lease="10s")
    dueline_clock.advance("10s")
    assert [again.attempt for again in dueline_client.pull("t")] == [2]
    with pytest.raises(LeaseLost):
        dueline_client.ack(job)
    assert [topic.counts.leased for topic in dueline_client.topics()] == [1]


def test_a_pull_that_waits_lets_time_pass_until_something_comes(
    dueline_client: LocalClient, dueline_clock: QueueClock
) -> None:
    begin = dueline_clock.now
    assert dueline_client.pull("t", wait="20s") == ()
    assert dueline_clock.now - begin == timedelta(seconds=20)
    dueline_client.send("t", 1, delay="5s")
    assert len(dueline_client.pull("t", wait="20s")) == 1
    assert dueline_clock.now - begin == timedelta(seconds=25)


def test_namespaces_are_apart(dueline_queue: VirtualQueue) -> None:
    other = dueline_queue.clients("other")[0]
    dueline_queue.client.send("t", 1)
    assert other.pull("t") == ()
    other.send("t", 2)
    assert [job.json() for job in other.pull("t")] == [2]


def test_handlers_run_at_their_moments_in_order(dueline_queue: VirtualQueue) -> None:
    worker, start_ms = Worker(NOBODY), dueline_queue.clock.now_ms

    @worker.handles("later")
    async def later(body: int) -> None:
        await sooner.asend(body + 1, delay="1h")

    @worker.handles("sooner")
    def sooner(body: int) -> None:
        if body < 3:
            later.send(body + 1, delay="10d")

    dueline_queue.work(worker)
    later.send(0, delay="1d")
    dueline_queue.clock.advance("60d")
    assert [(run.topic, run.body, run.at_ms - start_ms) for run in dueline_queue.recorder.handled()] == [
        ("later", 0, 86_400_000),
        ("sooner", 1, 86_400_000 + 3_600_000),
        ("later", 2, 11 * 86_400_000 + 3_600_000),
        ("sooner", 3, 11 * 86_400_000 + 7_200_000),
    ]


def test_what_is_due_now_is_handled_when_the_send_returns(dueline_queue: VirtualQueue) -> None:
    worker = Worker(NOBODY)

    @worker.handles("coroutines")
    async def coroutine(body: int) -> None: ...

    @worker.handles("functions")
    def function(body: int) -> None: ...

    dueline_queue.work(worker)
    for number, (send, topic) in enumerate(
        (
            (lambda body: dueline_queue.client.send("functions", body), "functions"),
            (coroutine.send, "coroutines"),
            (function.send, "functions"),
            (lambda body: dueline_queue.client.send("coroutines", body), "coroutines"),
        )
    ):
        send(number)
        assert runs(dueline_queue.recorder)[number:] == [(topic, number, "done")]


def test_plain_handlers_of_every_mode_run_in_the_thread_of_the_test(dueline_queue: VirtualQueue) -> None:
    worker, threads = Worker(NOBODY), list[threading.Thread]()

    def note(body: Any) -> None:
        threads.append(threading.current_thread())

    class Task(TaskWorker):
        type = "tasks"

        def invoke(self, params: Any) -> None:
            note(params)

    worker.handles("threads")(note)
    worker.bind(Task)
    dueline_queue.work(worker)
    for topic in ("threads", "tasks"):
        dueline_queue.client.send(topic, 1, delay="1d")
    dueline_queue.clock.advance("1d")
    assert threads == [threading.current_thread()] * 2


def test_every_outcome_is_recorded_and_retries_come_by_the_ladder(dueline_queue: VirtualQueue) -> None:
    worker, start_ms = Worker(NOBODY), dueline_queue.clock.now_ms

    @worker.handles("t", retry=["1m", "1h"])
    def handle(body: str, context: Context) -> None:
        if body == "snoozes" and context.delivery == 1:
            raise Snooze("5m")
        if body == "asks" and context.attempt == 1:
            raise Retry(delay="7m")
        if body == "gives up":
            raise Discard("no use")
        if body == "breaks":
            raise ZeroDivisionError

    dueline_queue.work(worker)
    for body in ("works", "snoozes", "asks", "gives up", "breaks"):
        handle.send(body, id=body.replace(" ", "-"))
    dueline_queue.clock.advance("2h")
    seen = dueline_queue.recorder.handled()
    assert [(run.id, run.attempt, run.outcome, (run.at_ms - start_ms) // 60_000) for run in seen] == [
        ("works", 1, "done", 0),
        ("snoozes", 1, "snooze", 0),
        ("asks", 1, "retry", 0),
        ("gives-up", 1, "discard", 0),
        ("breaks", 1, "failed", 0),
        ("breaks", 2, "failed", 1),
        ("snoozes", 1, "done", 5),
        ("asks", 2, "done", 7),
        ("breaks", 3, "failed", 61),
    ]
    assert [type(run.error) for run in dueline_queue.recorder.failed("t")] == [ZeroDivisionError] * 3
    assert dueline_queue.recorder.bodies("t") == ["works", "snoozes", "asks"]
    assert {job.id: job.reason for job in dueline_queue.client.dead("t")} == {
        "gives-up": "rejected",
        "breaks": "exhausted",
    }


def test_what_was_sent_is_recorded_as_it_was_said(dueline_queue: VirtualQueue) -> None:
    client, recorder = dueline_queue.client, dueline_queue.recorder
    client.send("t", {"n": 1}, id="a", delay="1h", tags=["x"], headers={"k": "v"})
    client.send("t", {"n": 1}, id="a", delay="1h", tags=["x"], headers={"k": "v"})
    client.send("t", b"\xff", id="b")
    client.send("g", "item", merge={"key": "k", "quiet": "5m"})
    with pytest.raises(IdExists):
        client.send("t", 2, id="a")
    sends = [(job.topic, job.body, job.result, job.delay_ms, job.merge_key) for job in recorder.sent()]
    assert sends == [
        ("t", {"n": 1}, "created", 3_600_000, None),
        ("t", {"n": 1}, "kept", 3_600_000, None),
        ("t", b"\xff", "created", 0, None),
        ("g", "item", "created", 300_000, "k"),
    ]
    assert next((job.id, job.tags, job.headers) for job in recorder.sent("t")) == ("a", ("x",), {"k": "v"})
    recorder.clear()
    assert recorder.sent() == []


def test_a_worker_that_was_stopped_finds_what_became_due_meanwhile(dueline_queue: VirtualQueue) -> None:
    worker = Worker(NOBODY)

    @worker.handles("t")
    def handle(body: int) -> None: ...

    dueline_queue.work(worker)
    handle.send(1, delay="1h")
    dueline_queue.stop(worker)
    dueline_queue.clock.advance("2h")
    assert runs(dueline_queue.recorder) == []
    dueline_queue.work(worker)
    assert runs(dueline_queue.recorder) == [("t", 1, "done")]


def test_a_handler_under_way_is_given_back_at_the_end_and_the_worker_is_its_own_again() -> None:
    worker = Worker(NOBODY)

    @worker.handles("t")
    async def handle(body: int) -> None:
        await asyncio.sleep(3600)

    with VirtualQueue() as queue:
        queue.work(worker)
        handle.send(1)
        queue.clock.advance("10m")
        [job] = queue.client.list_jobs("t")
        assert (job.state, job.attempts) == ("leased", 1)
    assert runs(queue.recorder) == [("t", 1, "cancelled")]
    with VirtualQueue() as again:
        again.work(worker)
        handle.send(2, delay="1d")
        again.clock.advance("1d")
        again.clock.advance("1h")
        assert runs(again.recorder) == [("t", 2, "done")]


def test_leases_are_kept_while_a_coroutine_sleeps_for_hours(dueline_queue: VirtualQueue) -> None:
    worker = Worker(NOBODY)

    @worker.handles("t")
    async def handle(body: int) -> None:
        await asyncio.sleep(6 * 3600)  # 360 leases

    dueline_queue.work(worker)
    handle.send(1)
    dueline_queue.clock.advance("1d")
    assert [(run.attempt, run.outcome) for run in dueline_queue.recorder.handled()] == [(1, "done")]


async def test_a_test_that_is_a_coroutine_uses_the_async_forms(dueline_queue: VirtualQueue) -> None:
    worker = Worker(NOBODY)

    @worker.handles("functions")
    def function(body: int) -> None:
        coroutine.send(body + 1, delay="1d")

    @worker.handles("coroutines")
    async def coroutine(body: int) -> None:
        assert [job.id async for job in dueline_queue.async_client.list_jobs("coroutines", state="leased")]

    dueline_queue.work(worker)

    client = dueline_queue.async_client
    await client.send("functions", 1, delay="1d")
    await function.asend(5, delay="1d")
    assert await client.pull("empty", wait="20s") == ()
    await dueline_queue.clock.async_advance("2d")
    assert sorted(runs(dueline_queue.recorder)) == [
        ("coroutines", 2, "done"),
        ("coroutines", 6, "done"),
        ("functions", 1, "done"),
        ("functions", 5, "done"),
    ]


def test_a_coroutine_of_the_queue_is_pointed_to_the_async_client(dueline_queue: VirtualQueue) -> None:
    worker = Worker(NOBODY)

    @worker.handles("t")
    async def handle(body: int) -> None:
        dueline_queue.client.send("other", 1)

    dueline_queue.work(worker)
    handle.send(1, max_attempts=1)
    [failed] = dueline_queue.recorder.failed()
    assert "async client" in str(failed.error)


def test_a_coroutine_can_be_run_in_the_time_of_the_queue(dueline_queue: VirtualQueue) -> None:
    async def service() -> list[Any]:
        client = dueline_queue.async_client
        await client.send("t", "job", delay="30d")
        await asyncio.sleep(29 * 86_400)
        jobs = await client.pull("t", wait="5m")
        await asyncio.sleep(86_400)
        return [jobs, [job.json() for job in await client.pull("t")]]

    assert dueline_queue.run(service()) == [(), ["job"]]


def test_pytest_outcomes_inside_a_plain_handler_end_the_test(dueline_queue: VirtualQueue) -> None:
    worker = Worker(NOBODY)

    @worker.handles("t")
    def handle(body: int) -> None:
        pytest.fail("seen in the handler")

    dueline_queue.work(worker)
    with pytest.raises(pytest.fail.Exception, match="seen in the handler"):
        handle.send(1)


def test_dead_jobs_go_where_the_topic_says(dueline_queue: VirtualQueue) -> None:
    worker = Worker(NOBODY)

    @worker.handles("t", retry=["1m"])
    def handle(body: int) -> None:
        raise ZeroDivisionError

    dueline_queue.client.set_topic("t", on_dead="graveyard")
    dueline_queue.work(worker)
    handle.send(7)
    dueline_queue.clock.advance("1m")
    assert [job.json() for job in dueline_queue.client.pull("graveyard")] == [7]


def test_ten_years_of_nothing_cost_nothing(dueline_queue: VirtualQueue) -> None:
    """Nothing ticks in a store of one's own: what happens costs, not how long it takes."""
    worker = Worker(NOBODY)

    @worker.handles("t")
    def handle(body: int) -> None: ...

    dueline_queue.work(worker)
    turns = 0
    attentive = dueline_queue.loop.attentive

    def counted() -> bool:
        nonlocal turns
        turns += 1
        return attentive()

    dueline_queue.loop.attentive = counted  # asked whenever nothing is left to do but to let time pass
    dueline_queue.clock.advance("3650d")
    assert 0 < turns < 5_000  # a day is the longest sleep of asyncio
