"""The job of an occurrence is sent half a second ahead and due at the occurrence: what is seen of that, and what a
change in this half second does. Jobs are acked and gone at once, so that ids protect nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from schedule_kit import NS, START_MS, ScheduleKit, every, schedules, seconds_of, template

from dueline.engine.commands import Pull
from dueline.engine.errors import InvalidField, QuotaExceeded
from dueline.engine.job import LeasedJob, Partition, State
from dueline.engine.limits import INTERNAL_NAMESPACE, Limits
from dueline.engine.misfire import Due, due
from dueline.engine.occurrences import MIN_EVERY_MS
from dueline.engine.schedule import Misfire, Overlap, ScheduleView
from dueline.engine.store import Query, Ref
from dueline.engine.stored_schedule import LEAD_MS, occurrences_of
from dueline.rights import Grant
from dueline.testing.timer import settled
from tests.kit.async_tests import async_fixture

LEAD = LEAD_MS / 1000


@async_fixture
async def kit() -> AsyncIterator[ScheduleKit]:
    async with schedules("t", "u") as kit:
        yield kit


async def _scheduled(kit: ScheduleKit, topic: str = "t") -> list[float]:
    """The due times of the jobs that are sent and not due, in seconds from the start."""
    found = (await kit.engine.list(NS, topic, Query(state=State.SCHEDULED))).jobs
    return sorted((job.due_at_ms - START_MS) / 1000 for job in found)


async def _to(kit: ScheduleKit, seconds: float) -> None:
    """Let time pass until this many seconds after the start."""
    await kit.advance(seconds - (kit.clock.now_ms - START_MS) / 1000)


def test_at_most_one_occurrence_is_ahead() -> None:
    assert LEAD_MS < MIN_EVERY_MS


async def test_a_job_is_sent_ahead_and_due_at_its_occurrence(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    await _to(kit, 10 - LEAD - 0.001)
    assert await _scheduled(kit) == []
    await _to(kit, 10 - LEAD)
    assert await _scheduled(kit) == [10]
    await _to(kit, 9.999)
    assert await kit.pulled() == []
    await _to(kit, 10)
    [job] = await kit.pulled()
    assert (job.id, job.due_at_ms, job.late_ms) == (f"a@{START_MS + 10_000}", START_MS + 10_000, 0)


async def test_a_schedule_shows_a_job_that_is_sent_ahead_as_its_last_one(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    await _to(kit, 9.4)
    view = await kit.get("a")
    assert (view.next_at_ms, view.last_job) == (START_MS + 10_000, None)
    await _to(kit, 9.6)
    view = await kit.get("a")
    assert (view.last_at_ms, view.last_job) == (START_MS + 10_000, f"a@{START_MS + 10_000}")
    assert view.next_at_ms == START_MS + 20_000
    assert await kit.engine.schedules.next(NS, "a", 1) == [START_MS + 20_000]
    put = await kit.put("a", every(10))
    assert (put.last_at_ms, put.next_at_ms) == (START_MS + 10_000, START_MS + 20_000)


async def test_every_second_is_sent_half_a_second_ahead(kit: ScheduleKit) -> None:
    await kit.put("a", every(1))
    for second in range(1, 8):
        await _to(kit, second - LEAD - 0.001)
        assert await _scheduled(kit) == []
        await _to(kit, second - LEAD)
        assert await _scheduled(kit) == [second]
        await _to(kit, second)
        assert await kit.times() == [second]
    assert (await kit.get("a")).missed_count == 0


async def test_a_schedule_that_is_made_right_before_its_occurrence_sends_it(kit: ScheduleKit) -> None:
    await _to(kit, 9.8)
    view = await kit.put("a", every(10))
    assert view.next_at_ms == START_MS + 10_000
    await settled()
    assert await _scheduled(kit) == [10]
    await _to(kit, 10)
    assert await kit.times() == [10]


async def test_the_first_and_the_last_occurrence_are_sent_ahead(kit: ScheduleKit) -> None:
    await kit.put("a", every(10, starts_at_ms=START_MS + 5_000, ends_at_ms=START_MS + 15_000))
    await _to(kit, 4.6)
    assert await _scheduled(kit) == [5]
    await _to(kit, 14.6)
    assert await kit.times() == [5]
    assert await _scheduled(kit) == [15]
    assert (await kit.get("a")).next_at_ms is None
    await _to(kit, 60)
    assert await kit.times() == [15]


async def test_overlap_skip_waits_for_the_occurrence(kit: ScheduleKit) -> None:
    """The last job ends within the last half second."""
    await kit.put("a", every(10, overlap=Overlap.SKIP))
    await _to(kit, 9.999)
    assert await _scheduled(kit) == []
    await _to(kit, 10)
    [job] = await kit.engine.pull(Pull(NS, ("t",)))
    await _to(kit, 19.999)
    await kit.engine.ack(NS, "t", [Ref(job.id, job.lease)])
    await _to(kit, 20)
    assert await kit.times() == [20]
    assert (await kit.get("a")).missed_count == 0


async def test_a_ttl_counts_from_the_occurrence(kit: ScheduleKit) -> None:
    await kit.put("a", every(10, job=template(ttl_ms=1000)))
    await _to(kit, 10.999)
    assert await kit.times() == [10]
    await _to(kit, 21.001)
    assert await kit.times() == []


async def test_the_largest_jitter_leaves_room_for_the_lead(kit: ScheduleKit) -> None:
    limits = Limits(max_delay_ms=1000)
    await kit.serve(limits=limits)
    with pytest.raises(InvalidField) as caught:
        await kit.put("a", every(1, jitter_ms=1001 - LEAD_MS))
    assert caught.value.field == "jitter_ms"
    await kit.servers[0][1].stop()  # only the server with these limits sends
    await kit.put("a", every(1, jitter_ms=1000 - LEAD_MS))
    for second in range(1, 40):
        await _to(kit, second)
        assert (await kit.get("a")).last_error is None
    await _to(kit, 41)
    assert kit.engine.metrics.schedules.failed == 0
    jobs = await kit.pulled()
    assert len(jobs) >= 39
    assert all(START_MS + 1000 * seconds_of(job.id) <= job.due_at_ms for job in jobs)


OUTAGES = [
    (Misfire.LATEST, [6, 7], 5),
    (Misfire.SKIP, [7], 6),
    (Misfire.ALL, [1, 2, 3, 4, 5, 6, 7], 0),
]


@pytest.mark.parametrize(("misfire", "came", "missed"), OUTAGES)
async def test_an_outage_that_ends_right_before_an_occurrence_does_not_miss_it(
    kit: ScheduleKit, misfire: Misfire, came: list[int], missed: int
) -> None:
    await kit.put("a", every(600, misfire=misfire))
    await settled()
    await kit.engine.stop()
    await _to(kit, 4199.7)
    await kit.serve()
    await kit.advance(0)
    assert await _scheduled(kit) == [4200]
    await _to(kit, 4200)
    assert sorted(at / 600 for at in await kit.times()) == came
    assert (await kit.get("a")).missed_count == missed
    assert kit.engine.metrics.schedules.missed == missed


@pytest.mark.parametrize("misfire", list(Misfire))
def test_a_pause_that_ended_on_a_faster_clock_misses_nothing_that_is_still_to_come(misfire: Misfire) -> None:
    """The server that resumed the schedule was a few milliseconds ahead of the one that leases it."""
    times = occurrences_of(every(10))
    now_ms = START_MS + 9_999
    for ahead_ms in (0, 1, 5):
        found = due(times, misfire, START_MS + 5, now_ms, now_ms + ahead_ms, LEAD_MS)
        assert found == Due(START_MS + 10_000)


@pytest.mark.parametrize("misfire", list(Misfire))
async def test_lateness_up_to_a_minute_counts_from_the_occurrence(kit: ScheduleKit, misfire: Misfire) -> None:
    await kit.put("a", every(600, misfire=misfire))
    await kit.put("b", every(600, misfire=misfire, starts_at_ms=START_MS + 599_999))
    await settled()
    await kit.engine.stop()
    await _to(kit, 660)
    await kit.serve()
    await kit.advance(0)
    missed = 1 if misfire is Misfire.SKIP else 0  # b is a minute and a millisecond late
    assert ((await kit.get("a")).missed_count, (await kit.get("b")).missed_count) == (0, missed)
    assert len(await kit.pulled()) == 2 - missed


async def test_lateness_is_measured_from_the_due_time(kit: ScheduleKit) -> None:
    late = kit.engine.metrics.schedules.late
    await kit.put("a", every(10))
    await _to(kit, 10)
    assert late.total == 0
    await kit.put("a", every(10, jitter_ms=5000))
    await kit.engine.stop()
    await _to(kit, 20.1)
    await kit.serve()
    await kit.advance(0)
    [due_s] = await _scheduled(kit)
    assert due_s > 20.1
    assert kit.engine.metrics.schedules.late.total == 0
    await kit.put("a", every(10))
    await kit.engine.stop()
    await _to(kit, 30.1)
    await kit.serve()
    await kit.advance(0)
    assert kit.engine.metrics.schedules.late.total == pytest.approx(0.1)


class _Quota:
    is_reached = True

    def admit(self, namespace: str, jobs: int, grant: Grant) -> None:
        if self.is_reached:
            raise QuotaExceeded("too many pending jobs")


async def test_a_send_that_is_refused_ahead_is_tried_again_at_the_occurrence(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    quota = _Quota()
    kit.engine.limit_sends(quota)
    await _to(kit, 9.7)
    view = await kit.get("a")
    assert (view.last_error, view.next_at_ms) == ("rate_limited: too many pending jobs", START_MS + 10_000)
    quota.is_reached = False
    await _to(kit, 10)
    [job] = await kit.pulled()
    assert (job.due_at_ms, job.late_ms) == (START_MS + 10_000, 0)
    assert (await kit.get("a")).last_error is None
    await _to(kit, 25)
    assert await kit.times() == [20]


async def test_an_answer_that_is_lost_ahead_is_found_out(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    kit.memory.lost = "t"
    await _to(kit, 9.6)
    assert await _scheduled(kit) == [10]
    await _to(kit, 25)
    assert sorted(await kit.times()) == [10, 20]
    view = await kit.get("a")
    assert (view.last_at_ms, view.missed_count, view.last_error) == (START_MS + 20_000, 0, None)


async def test_a_paused_topic_takes_jobs_ahead(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    await _to(kit, 9.6)
    await kit.engine.pause(NS, "t", None)
    await _to(kit, 25)
    assert await kit.times() == []
    await kit.engine.resume(NS, "t")
    assert sorted(await kit.times()) == [10, 20]


async def test_a_topic_gets_more_partitions_while_a_job_is_ahead(kit: ScheduleKit) -> None:
    """The server that sent it is gone, and the next one asks the new partitions."""
    for number in range(20):  # ids in many partitions
        await kit.put(f"s{number}", every(10))
    kit.store.stop_in("release", done=False)
    await _to(kit, 9.6)
    assert kit.store.gone.is_set()
    await kit.serve()
    await kit.partitions("t", 7)
    await _to(kit, 25)
    assert sorted(await kit.times()) == [10] * 20 + [20] * 20
    assert {(await kit.get(f"s{number}")).missed_count for number in range(20)} == {0}


# -- changes in the last half second

CUTS = {  # where the server is gone -> whether the job was sent
    "nowhere": True,
    "before the send": False,
    "after the send": True,
    "before the release": True,
    "after the release": True,
    "stands still before the send": False,
}
AT = START_MS + 9_900  # a time of other occurrences, between the change and the occurrence that was sent


async def _cut(kit: ScheduleKit, cut: str) -> None:
    """Half a second before the occurrence at 10 s, the server is gone at this point, and another one starts."""
    when, _, call = cut.rpartition(" ")
    if when.startswith("stands"):
        kit.memory.blocked_topic = "t"
    elif cut != "nowhere":
        kit.store.stop_in(call, done=when == "after the")
    await _to(kit, 9.6)
    assert kit.store.gone.is_set() == (cut != "nowhere" and not when.startswith("stands"))
    await kit.serve()
    await _to(kit, 9.7)
    assert await _scheduled(kit) == ([10] if CUTS[cut] else [])


async def _change(kit: ScheduleKit, change: str) -> ScheduleView | None:
    """Returns the answer, if it has one."""
    schedules = kit.engine.schedules
    if change == "put":
        return await kit.put("a", every(10, job=template(b"2")))
    if change == "move":
        return await kit.put("a", every(10, topic="u"))
    if change == "there and back":
        await kit.put("a", every(10, topic="u"))
        return await kit.put("a", every(10))
    if change == "overlap":
        return await kit.put("a", every(10, overlap=Overlap.SKIP))
    if change == "other times":
        return await kit.put("a", every(10, starts_at_ms=AT))
    if change == "other times elsewhere":
        return await kit.put("a", every(10, topic="u", starts_at_ms=AT))
    if change == "resume":
        await schedules.pause(NS, "a")
        await _to(kit, 9.8)
        view = await schedules.resume(NS, "a")
        assert view.missed_count == 0
        return view
    if change.startswith("make again"):
        await schedules.delete(NS, "a")
        if change != "make again at once":
            await _to(kit, 9.8)  # the loop has seen that it is deleted
        return await kit.put("a", every(10, topic="u" if change == "make again elsewhere" else "t"))
    await getattr(schedules, change)(NS, "a")
    return None


# What comes to t and to u if the job of 10 s was sent ahead, and if it was not.
CHANGES: dict[str, tuple[dict[str, list[float]], dict[str, list[float]]]] = {
    "put": ({"t": [10, 20]}, {"t": [10, 20]}),
    "move": ({"t": [10], "u": [20]}, {"u": [10, 20]}),
    "there and back": ({"t": [10, 20]}, {"u": [10], "t": [20]}),  # sent at once, while it went to u
    "overlap": ({"t": [10, 20]}, {"t": [10, 20]}),
    "other times": ({"t": [10, 19.9]}, {"t": [9.9, 19.9]}),
    "other times elsewhere": ({"t": [10], "u": [19.9]}, {"u": [9.9, 19.9]}),
    "resume": ({"t": [10, 20]}, {"t": [10, 20]}),
    "make again": ({"t": [10, 20]}, {"t": [10, 20]}),
    "make again at once": ({"t": [10, 20]}, {"t": [10, 20]}),
    "make again elsewhere": ({"t": [10], "u": [20]}, {"u": [10, 20]}),
    "pause": ({"t": [10]}, {}),
    "delete": ({"t": [10]}, {}),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("cut", CUTS)
async def test_a_change_right_before_an_occurrence_neither_doubles_nor_misses_it(
    kit: ScheduleKit, cut: str, change: str
) -> None:
    await kit.put("a", every(10))
    await _cut(kit, cut)
    answer = await _change(kit, change)
    await settled()
    kit.memory.go_on.set()
    came: dict[str, list[float]] = {}
    for second in (9.85, 9.95, 10, 15, 19.95, 25):
        await _to(kit, second)
        for topic in ("t", "u"):
            jobs = await kit.pulled(topic)
            assert [job for job in jobs if _is_early(job)] == []
            if jobs:
                came[topic] = came.get(topic, []) + [seconds_of(job.id) for job in jobs]
    sent, not_sent = CHANGES[change]
    assert came == (sent if CUTS[cut] else not_sent)
    if answer is None:  # nobody looks at it any more
        return
    next_s = min(at for topic in came for at in came[topic] if at > 10 or not (CUTS[cut] or change == "there and back"))
    assert answer.next_at_ms == START_MS + round(next_s * 1000)
    view = await kit.get("a")
    assert (view.missed_count, view.last_error) == (0, None)
    assert view.last_at_ms == START_MS + round(max(at for topic in came for at in came[topic]) * 1000)


def _is_early(job: LeasedJob) -> bool:
    return job.due_at_ms < START_MS + seconds_of(job.id) * 1000 or job.late_ms < 0


@pytest.mark.parametrize("change", ["overlap", "move"])
@pytest.mark.parametrize("cut", [cut for cut, is_sent in CUTS.items() if is_sent])
async def test_a_job_that_an_older_version_sent_ahead_is_the_last_job(kit: ScheduleKit, cut: str, change: str) -> None:
    """With overlap `skip`, the new version waits for it, also if it is in another topic."""
    await kit.put("a", every(10))
    await _cut(kit, cut)
    await kit.put("a", every(10, topic="u" if change == "move" else "t", overlap=Overlap.SKIP))
    await _to(kit, 21)
    view = await kit.get("a")
    assert (view.last_at_ms, view.missed_count) == (START_MS + 10_000, 1)
    assert await kit.times() == [10]
    await _to(kit, 31)
    assert (await kit.times("u" if change == "move" else "t")) == [30]


@pytest.mark.parametrize("cut", [cut for cut, is_sent in CUTS.items() if is_sent])
async def test_a_name_is_free_once_the_job_that_was_ahead_is_due(kit: ScheduleKit, cut: str) -> None:
    await kit.put("a", every(10))
    await _cut(kit, cut)
    await kit.engine.schedules.delete(NS, "a")
    await _to(kit, 10.1)
    assert await kit.times() == [10]
    assert (await kit.memory.stats(Partition(INTERNAL_NAMESPACE, f"schedules:{NS}"))).scheduled == 0
    assert (await kit.put("a", every(10, overlap=Overlap.SKIP), 0)).last_job is None
    await _to(kit, 20)
    assert await kit.times() == [20]
