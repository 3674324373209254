"""No setting made: a handler that is broken for a while loses nothing."""

from __future__ import annotations

from itertools import pairwise

from dueline import new_job
from dueline.testing.queue import VirtualQueue
from dueline.worker import Worker

NOBODY = "http://127.0.0.1:1"


def test_a_handler_that_fails_for_a_minute_and_recovers_does_every_job() -> None:
    with VirtualQueue() as queue:
        worker = Worker(NOBODY)
        broken_until_ms = queue.clock.now_ms + 60_000

        @worker.handles("t")
        async def handle(n: int) -> None:
            if queue.clock.now_ms < broken_until_ms:
                raise ConnectionError("the database is away")

        queue.work(worker)
        queue.client.send_many("t", [new_job(n) for n in range(20)])
        queue.clock.advance("59s")
        assert {run.outcome for run in queue.recorder.handled("t")} == {"failed"}
        queue.clock.advance("70s")
        runs = queue.recorder.handled("t")
        assert sorted(run.body for run in runs if run.outcome == "done") == list(range(20))
        assert {run.attempt for run in runs if run.outcome == "done"} <= {
            7,
            8,
        }  # 63 s of waits less their jitter, or 127 s
        assert queue.client.topic("t").counts.dead == 0


def test_a_consumer_that_fails_for_a_minute_and_recovers_does_all_of_1000_jobs() -> None:
    with VirtualQueue() as queue:
        client, done = queue.client, set[str]()
        client.send_many("t", [new_job(n) for n in range(1_000)])
        for second in range(130):  # it looks once a second: the reference store is slow where every job has its moment
            jobs = client.pull("t", max=1_000)
            if second < 60:
                client.release_many(jobs, error="the database is away")
            else:
                done.update(outcome.id for outcome in client.ack_many(jobs) if outcome.result == "acked")
            queue.clock.advance("1s")
        assert len(done) == 1_000
        assert client.topic("t").counts.dead == 0


def test_a_handler_that_never_recovers_has_twenty_attempts_over_eight_hours() -> None:
    with VirtualQueue() as queue:
        worker = Worker(NOBODY)
        seen_ms: list[int] = []

        @worker.handles("t")
        def handle() -> None:
            seen_ms.append(queue.clock.now_ms)
            raise LookupError

        queue.work(worker)
        queue.client.send("t", id="a")
        queue.clock.advance("9h")
        job = queue.client.get("t", "a")
        assert (job.state, job.reason, job.attempts) == ("dead", "exhausted", 20)
        waits_s = [(later - sooner) / 1000 for sooner, later in pairwise(seen_ms)]
        longest_s = [min(2**number, 3_600) for number in range(19)]
        assert all(0.9 * most <= wait <= most for wait, most in zip(waits_s, longest_s, strict=True))


def test_with_none_a_failing_job_is_tried_again_at_once() -> None:
    with VirtualQueue() as queue:
        worker = Worker(NOBODY)

        @worker.handles("t")
        def handle() -> None:
            raise LookupError

        queue.work(worker)
        began_ms = queue.clock.now_ms
        queue.client.send("t", id="a", retry="none", max_attempts=5)
        job = queue.client.get("t", "a")
        assert (job.state, job.attempts, job.retry, queue.clock.now_ms) == ("dead", 5, "none", began_ms)


def test_a_handlers_policy_holds_for_jobs_of_a_client_in_the_testing_kit() -> None:
    with VirtualQueue() as queue:
        worker = Worker(NOBODY)

        @worker.handles("t", retry=["10s"])
        def handle() -> None:
            raise LookupError

        queue.work(worker)
        queue.client.send("t", id="a")
        queue.clock.advance("10s")
        job = queue.client.get("t", "a")
        assert (job.state, job.attempts, job.retry) == ("dead", 2, {"ladder": ["10s"]})
        assert queue.client.topic("t").policy["by_worker"] == ["retry"]
