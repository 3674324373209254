"""The flaky store, the watched clients and the private server of the testing kit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dueline import Client, DuelineApiError, Patience, Unavailable, UnknownOutcome
from dueline.engine.job import Partition
from dueline.engine.store import Code, Outcome, Ref
from dueline.testing.client_history import Broken, History
from dueline.testing.flaky import Trouble
from dueline.testing.local_client import LocalClient
from dueline.testing.process import NotStarted
from dueline.testing.queue import VirtualQueue
from dueline.testing.server import PrivateServer
from dueline.worker import Worker

Make = Callable[..., VirtualQueue]


def impatient(queue: VirtualQueue) -> LocalClient:
    return LocalClient(queue.loop, queue.api(), patience=Patience(deadline_s=0))


@pytest.mark.parametrize("seed", range(5))
def test_a_program_that_repeats_what_is_unknown_loses_nothing_on_a_bad_day(dueline_make_queue: Make, seed: int) -> None:
    queue = dueline_make_queue(trouble=Trouble(seed=seed, refused=0.2, lost=0.2, late=0.3))
    worker, handled = Worker("http://127.0.0.1:1"), Counter[int]()

    @worker.handles("t", max_attempts=100, lease="10s")
    def handle(body: int) -> None:
        handled[body] += 1

    queue.work(worker)
    for number in range(40):
        while True:
            try:
                handle.send(number, id=f"job-{number}", delay="1h")
                break
            except UnknownOutcome:
                pass
    queue.clock.advance("1d")
    assert set(handled) == set(range(40))
    assert all(count > 0 for count in queue.store.counts.values()), queue.store.counts
    queue.store.calm()
    assert [job.state for job in queue.client.list_jobs("t") if job.state not in ("done",)] == []


def test_a_refused_call_was_not_done_and_a_lost_one_was(dueline_make_queue: Make) -> None:
    refusing = dueline_make_queue(trouble=Trouble(refused=1.0))
    with pytest.raises(Unavailable) as refused:
        impatient(refusing).send("t", 1, id="a")
    assert refused.value.code == "store_down"
    refusing.store.calm()
    assert list(refusing.client.list_jobs("t")) == []

    losing = dueline_make_queue(trouble=Trouble(lost=1.0))
    with pytest.raises(UnknownOutcome):
        impatient(losing).send("t", 1, id="a")
    losing.store.calm()
    assert [job.id for job in losing.client.list_jobs("t")] == ["a"]
    assert losing.client.send("t", 1, id="a").result == "kept"
    losing.store.stir()
    with pytest.raises(UnknownOutcome):
        impatient(losing).pull("t")
    losing.store.calm()
    assert losing.client.pull("t") == ()
    losing.clock.advance("30s")
    assert [job.attempt for job in losing.client.pull("t")] == [2]


def test_a_late_answer_takes_virtual_time_and_a_client_is_patient_in_virtual_time(dueline_make_queue: Make) -> None:
    late = dueline_make_queue(trouble=Trouble(late=1.0, late_ms=5_000))
    begin_ms = late.clock.now_ms
    late.client.send("t", 1)
    assert 0 < late.clock.now_ms - begin_ms <= 5_000

    down = dueline_make_queue(trouble=Trouble(refused=1.0))
    begin_ms = down.clock.now_ms
    with pytest.raises(Unavailable):
        down.client.send("t", 1)
    assert 20_000 < down.clock.now_ms - begin_ms <= 30_000


def test_the_same_seed_gives_the_same_trouble(dueline_make_queue: Make) -> None:
    def outcomes(seed: int) -> list[str]:
        queue = dueline_make_queue(trouble=Trouble(seed=seed, refused=0.3, lost=0.3))
        client, seen = impatient(queue), list[str]()
        for number in range(30):
            try:
                seen.append(client.send("t", number, id=f"job-{number}").result)
            except DuelineApiError as error:
                seen.append(error.code)
        return seen

    assert outcomes(7) == outcomes(7)
    assert outcomes(7) != outcomes(8)


def test_a_share_of_the_calls_is_between_0_and_1() -> None:
    with pytest.raises(ValueError, match="lost"):
        Trouble(lost=1.5)


def whole_life(queue: VirtualQueue, history: History) -> None:
    client = history.watch(queue.client)
    client.send("t", {"n": 1}, id="a", delay="1h")
    client.send("t", {"n": 2}, id="b", delay="1h")
    client.send("t", {"n": 3}, id="c")
    client.reschedule("t", "c", "2h")
    assert client.pull("t") == ()
    queue.clock.advance("1h")
    a, b = client.pull("t", max=10)
    client.extend(a, "5m")
    client.ack(a)
    client.release(b, "10m", "no luck")
    client.cancel("t", "c")
    queue.clock.advance("10m")
    [b] = client.pull("t", max=10)
    client.ack(b)
    assert client.pull("t", wait="5m") == ()


def test_a_sound_queue_is_found_sound(dueline_queue: VirtualQueue, dueline_history: History) -> None:
    whole_life(dueline_queue, dueline_history)
    report = dueline_history.check()
    assert (report.ok, report.sends_ok, report.deliveries, report.ends_ok) == (True, 3, 3, 3)


def test_a_queue_that_forgets_what_was_acked_is_found_out(dueline_queue: VirtualQueue) -> None:
    history = History()
    client = history.watch(dueline_queue.client, "consumer")

    async def forgetful(partition: Partition, items: Sequence[Ref]) -> list[Outcome]:
        return [Outcome(Code.OK) for _ in items]

    dueline_queue.store.ack = forgetful
    client.send("t", 1, id="a")
    [job] = client.pull("t", lease="10s")
    client.ack(job)
    history.fault("nothing, it forgets by itself")
    dueline_queue.clock.advance("10s")
    client.pull("t")
    with pytest.raises(Broken, match=r"after_done: t/a") as broken:
        history.check()
    assert "deliver" in str(broken.value)


def test_a_queue_that_is_early_or_loses_jobs_is_found_out(dueline_queue: VirtualQueue) -> None:
    history = History()
    client = history.watch(dueline_queue.client)
    client.send("t", 1, id="early", delay="1h")
    client.send("t", 2, id="lost", delay="1h")
    dueline_queue.client.fire("t", "early")
    dueline_queue.client.cancel("t", "lost")
    dueline_queue.clock.advance("59m")
    client.ack(*client.pull("t"))
    with pytest.raises(Broken) as broken:
        history.check()
    assert "early: t/early" in str(broken.value)
    assert "lost: t/lost" in str(broken.value)


def test_refusals_and_unknown_outcomes_are_distinguished(dueline_make_queue: Make) -> None:
    queue = dueline_make_queue(trouble=Trouble(lost=1.0))
    history = History()
    client = history.watch(impatient(queue))
    with pytest.raises(UnknownOutcome):
        client.send("t", 1, id="a")
    queue.store.calm()
    with pytest.raises(DuelineApiError):
        client.send("t", 2, id="a")
    with pytest.raises(ValueError, match="not JSON"):
        client.send("t", b"2", merge="k")
    report = history.check()
    assert (report.sends_unknown, report.sends_failed) == (1, 1)


def test_replaced_revived_and_merged_jobs_are_checked(dueline_queue: VirtualQueue) -> None:
    history = History()
    client = history.watch(dueline_queue.client)
    client.send("t", 1, id="a", max_attempts=1)
    client.send("t", 2, id="a", max_attempts=1, on_conflict="replace")
    [job] = client.pull("t")
    assert (job.json(), client.release(job).result) == (2, "dead")
    client.revive("t", "a", delay="1m")
    dueline_queue.clock.advance("1m")
    client.ack(*client.pull("t"))
    for number in (3, 4):
        client.send("g", number, merge={"key": "k", "quiet": "1m", "max_wait": "5m", "max_items": 9})
    dueline_queue.clock.advance("1m")
    client.ack(*client.pull("g"))
    report = history.check()
    assert (report.sends_ok, report.deliveries, report.ends_ok) == (3, 3, 2)


def test_a_group_that_comes_early_or_loses_an_item_is_found_out(dueline_queue: VirtualQueue) -> None:
    history = History()
    client = history.watch(dueline_queue.client)
    merge: Any = {"quiet": "1h", "max_wait": "5h", "max_items": 9}
    early = client.send("g", 1, merge={"key": "early", **merge})
    client.send("g", 2, merge={"key": "lost", "item_id": "gone", **merge})
    dueline_queue.client.fire("g", early.id)
    dueline_queue.client.cancel_groups("g", "lost")
    dueline_queue.clock.advance("1m")
    client.ack(*client.pull("g"))
    dueline_queue.clock.advance("1d")
    with pytest.raises(Broken) as broken:
        history.check()
    assert f"early: g/{early.id}" in str(broken.value)
    assert "lost: g/gone" in str(broken.value)


def test_one_history_is_of_one_clock(dueline_queue: VirtualQueue) -> None:
    history = History()
    history.watch(dueline_queue.client)
    with pytest.raises(ValueError, match="one clock"):
        history.watch(Client("http://127.0.0.1:1"))


def test_a_private_server_keeps_what_it_said_through_a_kill(
    dueline_server: PrivateServer, dueline_history: History
) -> None:
    with dueline_server.client() as plain:
        client: Any = dueline_history.watch(plain)
        for number in range(20):
            client.send("t", number, id=f"job-{number}")
        dueline_history.fault("kill -9")
        dueline_server.kill()
        assert not dueline_server.running
        dueline_server.start()
        jobs = client.pull("t", max=100)
        assert sorted(job.json() for job in jobs) == list(range(20))
        for job in jobs:
            client.ack(job)
        assert dueline_history.check().faults == 1
    assert dueline_server.stop() == 0
    assert dueline_server.stop() == 0


def test_a_server_that_does_not_start_says_why(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUELINE_NOBODY__KNOWS", "1")  # the test's own variables do not reach it
    with pytest.raises(NotStarted, match="NO_SUCH_KEY"):
        PrivateServer(tmp_path / "data", env={"DUELINE_SERVER__NO_SUCH_KEY": "1"}).start()
    server = PrivateServer(tmp_path / "data")
    assert (server.stop(), server.running) == (0, False)
    with pytest.raises(RuntimeError, match="not started"):
        _ = server.pid
