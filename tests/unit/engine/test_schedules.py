"""Schedules on the reference store, in virtual time: what callers do with them, and what becomes of occurrences."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from schedule_kit import NS, START_MS, ScheduleKit, every, schedules, seconds_of, template

from dueline.engine.commands import Send
from dueline.engine.errors import DuelineError, InvalidField, NotFound, QuotaExceeded, TopicNotEmpty, VersionMismatch
from dueline.engine.fence import Fence
from dueline.engine.job import BodyKind, Partition
from dueline.engine.limits import INTERNAL_NAMESPACE
from dueline.engine.policy import AT_ONCE, Backoff, Ladder
from dueline.engine.schedule import Misfire, Overlap, Schedule
from dueline.engine.store import Query
from dueline.engine.stored_schedule import StoredSchedule, home_topic, item_of
from dueline.rights import Grant
from dueline.testing.timer import settled
from tests.kit.async_tests import async_fixture

HOUR = 3600


@async_fixture
async def kit() -> AsyncIterator[ScheduleKit]:
    async with schedules() as kit:
        yield kit


async def test_every_occurrence_becomes_one_job_at_its_time(kit: ScheduleKit) -> None:
    view = await kit.put("a", every(10))
    assert (view.next_at_ms, view.last_at_ms, view.missed_count) == (START_MS + 10_000, None, 0)
    await kit.advance(9.999)
    assert await kit.times() == []
    await kit.advance(0.001)
    [job] = await kit.pulled()
    assert (job.id, job.due_at_ms, job.late_ms, job.body) == (f"a@{START_MS + 10_000}", START_MS + 10_000, 0, b'"x"')
    await kit.advance(30)
    assert await kit.times() == [20, 30, 40]
    view = await kit.get("a")
    assert (view.next_at_ms, view.last_at_ms) == (START_MS + 50_000, START_MS + 40_000)
    assert (view.last_job, view.last_error, view.missed_count) == (f"a@{START_MS + 40_000}", None, 0)
    metrics = kit.engine.metrics.schedules
    assert (metrics.fired, metrics.missed, metrics.skipped, metrics.failed) == (4, 0, 0, 0)
    assert sum(metrics.late.counts) == 4


async def test_occurrences_at_one_moment_cost_one_pull_one_send_and_one_release(kit: ScheduleKit) -> None:
    for name in "abc":
        await kit.put(name, every(10))
    await kit.advance(10)
    before = len(kit.store.calls)
    await kit.advance(10)
    assert kit.store.calls[before:] == ["pull", "send", "release", "pull"]  # the last one waits


async def test_a_resting_schedule_makes_no_calls(kit: ScheduleKit) -> None:
    await kit.put("a", Schedule("t", template(), cron="0 0 1 1 *"))
    await settled()
    before = list(kit.store.calls)
    await kit.advance(3000)
    assert kit.store.calls == before


async def test_a_job_has_what_the_template_says(kit: ScheduleKit) -> None:
    job = template(
        b"\xff", lease_ms=5000, ttl_ms=None, max_attempts=3, retry=Ladder((1, 2)), tags=("t",), headers=(("H", "v"),)
    )
    job = replace(job, kind=BodyKind.BYTES)
    await kit.put("a", every(10, job=job))
    assert (await kit.get("a")).schedule.job == job
    await kit.advance(10)
    sent = await kit.engine.get(NS, "t", f"a@{START_MS + 10_000}")
    assert (sent.body, sent.kind, sent.tags, sent.policy.lease_ms) == (b"\xff", BodyKind.BYTES, ("t",), 5000)
    assert (sent.policy.max_attempts, sent.policy.retry) == (3, Ladder((1, 2)))


@pytest.mark.parametrize("retry", [AT_ONCE, Backoff(5, 3.0, 100, 0.5)])
async def test_a_schedule_comes_back_as_it_was_written(kit: ScheduleKit, retry: Any) -> None:
    schedule = Schedule(
        "t", template(retry=retry, lease_ms=None), cron="0 9 * * *", tz="Europe/Madrid", starts_at_ms=5,
        ends_at_ms=START_MS * 2, jitter_ms=7, misfire=Misfire.ALL, overlap=Overlap.SKIP, paused=True,
    )  # fmt: skip
    view, new = await kit.engine.schedules.put(NS, "a", schedule, None)
    assert (view.schedule, view.next_at_ms, new) == (schedule, None, True)
    assert await kit.get("a") == view


async def test_jitter_moves_the_job_and_is_the_same_on_every_server(kit: ScheduleKit) -> None:
    await kit.put("a", every(60, jitter_ms=30_000))
    due: list[int] = []
    for _ in range(5):
        await kit.advance(60)
        at_ms = kit.clock.now_ms
        job = await kit.engine.get(NS, "t", f"a@{at_ms}")
        due.append(job.due_at_ms - at_ms)
    assert all(0 <= one <= 30_000 for one in due)
    assert len(set(due)) == 5
    other = ScheduleKit()
    await other.serve()
    await other.put("a", every(60, jitter_ms=30_000))
    await other.advance(60)
    [job] = (await other.engine.list(NS, "t", Query())).jobs
    assert job.due_at_ms - START_MS - 60_000 == due[0]
    await other.stop()


async def test_a_put_is_a_replace_that_starts_after_its_own_time(kit: ScheduleKit) -> None:
    first = await kit.put("a", every(10))
    await kit.advance(15)
    second, new = await kit.engine.schedules.put(NS, "a", every(4, topic="u"), first.version)
    assert (second.version > first.version, new, second.next_at_ms) == (True, False, START_MS + 16_000)
    assert second.last_at_ms == START_MS + 10_000
    await kit.advance(10)
    assert await kit.times() == [10]
    assert await kit.times("u") == [16, 20, 24]
    with pytest.raises(VersionMismatch) as caught:
        await kit.put("a", every(1), first.version)
    assert caught.value.version == second.version
    with pytest.raises(VersionMismatch) as caught:
        await kit.put("other", every(1), 3)
    assert caught.value.version == 0
    with pytest.raises(NotFound):
        await kit.get("other")
    assert (await kit.put("other", every(100), 0)).version > second.version


async def test_a_deleted_schedule_sends_nothing_and_its_name_is_free(kit: ScheduleKit) -> None:
    schedules = kit.engine.schedules
    await kit.put("a", every(10))
    await kit.advance(10)
    await schedules.delete(NS, "a")
    with pytest.raises(NotFound):
        await kit.get("a")
    for call in (schedules.delete, schedules.pause, schedules.resume, schedules.run):
        with pytest.raises(NotFound):
            await call(NS, "a")
    assert (await schedules.list(NS, "", 10))[0] == []
    await kit.advance(100)
    assert await kit.times() == [10]
    assert (await kit.engine.store.stats(Partition(INTERNAL_NAMESPACE, f"schedules:{NS}"))).scheduled == 0
    view, new = await schedules.put(NS, "a", every(50), None)
    assert (new, view.last_at_ms, view.missed_count) == (True, None, 0)
    await kit.advance(50)
    assert await kit.times() == [150]


async def test_a_schedule_deleted_and_made_again_at_once_begins_anew(kit: ScheduleKit) -> None:
    """The loop has not removed the old one yet."""
    await kit.put("a", every(10))
    await kit.advance(10)
    await kit.stop()
    await kit.engine.schedules.delete(NS, "a")
    with pytest.raises(NotFound):
        await kit.get("a")
    view, new = await kit.engine.schedules.put(NS, "a", every(20), None)
    assert (new, view.last_at_ms, view.last_job) == (True, None, None)
    assert await kit.get("a") == view
    await kit.serve()
    await kit.advance(10)
    assert await kit.times() == [10, 20]
    assert (await kit.get("a")).last_at_ms == START_MS + 20_000


async def test_pause_and_resume(kit: ScheduleKit) -> None:
    schedules = kit.engine.schedules
    await kit.put("a", every(10, misfire=Misfire.SKIP))
    await kit.advance(10)
    paused = await schedules.pause(NS, "a")
    assert (paused.schedule.paused, paused.next_at_ms) == (True, None)
    assert (await schedules.pause(NS, "a")).schedule.paused
    await kit.advance(25)
    assert await kit.times() == [10]
    resumed = await schedules.resume(NS, "a")
    assert not resumed.schedule.paused
    await kit.advance(10)
    assert await kit.times() == [40]
    assert (await kit.get("a")).missed_count == 2
    assert (await schedules.resume(NS, "a")).next_at_ms == START_MS + 50_000


async def test_run_sends_one_job_now_and_leaves_the_rest_alone(kit: ScheduleKit) -> None:
    await kit.put("a", every(10, paused=True))
    before = await kit.get("a")
    sent = [await kit.engine.schedules.run(NS, "a") for _ in range(2)]
    assert [one.id for one in sent] == [f"a@run-{START_MS}", f"a@run-{START_MS + 1}"]
    assert await kit.get("a") == before
    assert len(await kit.pulled()) == 2


async def test_next_lists_the_occurrences_to_come(kit: ScheduleKit) -> None:
    await kit.put("a", every(10, ends_at_ms=START_MS + 35_000))
    assert await kit.engine.schedules.next(NS, "a", 10) == [START_MS + n * 10_000 for n in (1, 2, 3)]
    assert await kit.engine.schedules.next(NS, "a", 2) == [START_MS + n * 10_000 for n in (1, 2)]
    for count in (0, 101):
        with pytest.raises(InvalidField):
            await kit.engine.schedules.next(NS, "a", count)
    await kit.advance(100)
    assert await kit.times() == [10, 20, 30]
    assert (await kit.get("a")).next_at_ms is None
    assert await kit.engine.schedules.next(NS, "a", 10) == []


async def test_schedules_are_listed_by_pages_and_namespaces_do_not_see_each_other(kit: ScheduleKit) -> None:
    names = {f"s{n}" for n in range(7)}
    for name in names:
        await kit.put(name, every(10))
    await kit.engine.schedules.put("other", "x", every(10), None)
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        views, cursor = await kit.engine.schedules.list(NS, cursor, 3)
        found += [view.name for view in views]
    assert (len(found), set(found)) == (7, names)
    assert [view.name for view in (await kit.engine.schedules.list("other", "", 10))[0]] == ["x"]
    assert (await kit.engine.schedules.list("nobody", "", 10))[0] == []
    for wrong in ("!", "AAAA", "é"):
        with pytest.raises(InvalidField):
            await kit.engine.schedules.list(NS, wrong, 3)
    await kit.advance(10)
    assert len(await kit.pulled()) == 7
    assert INTERNAL_NAMESPACE not in (await kit.engine.namespaces("", 10))[0]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"topic": ""}, "topic"),
        ({"every_ms": 5}, "every"),
        ({"every_ms": None}, "cron"),
        ({"every_ms": None, "cron": "61 * * * *"}, "cron"),
        ({"job": Send("id", b"", BodyKind.JSON)}, "job.id"),
        ({"job": Send(None, b"", BodyKind.JSON, at_ms=5)}, "job.at_ms"),
        ({"job": template(b"x" * 300_000)}, "job.body"),
        ({"job": template(tags=("",))}, "job.tags"),
        ({"jitter_ms": -1}, "jitter_ms"),
    ],
)
async def test_what_cannot_work_is_refused_and_stores_nothing(
    kit: ScheduleKit, change: dict[str, Any], field: str
) -> None:
    with pytest.raises(DuelineError) as caught:
        await kit.put("a", replace(every(10), **change))
    assert (caught.value.field or "").startswith(field)
    with pytest.raises(NotFound):
        await kit.get("a")


@pytest.mark.parametrize("name", ["", "a\n", "x" * 493])
async def test_a_name_must_leave_room_for_its_occurrences(kit: ScheduleKit, name: str) -> None:
    with pytest.raises(InvalidField) as caught:
        await kit.put(name, every(10))
    assert caught.value.field == "name"


async def test_an_id_that_somebody_else_took_is_an_error_until_it_is_free(kit: ScheduleKit) -> None:
    id = f"a@{START_MS + 10_000}"
    await kit.put("a", every(10))
    await kit.engine.send(NS, "t", Send(id, b'"x"', BodyKind.JSON, at_ms=START_MS + 10_000))
    await kit.advance(12)
    view = await kit.get("a")
    assert view.last_error is not None
    assert view.last_error.startswith("id_exists")
    assert (view.last_job, view.next_at_ms) == (None, START_MS + 10_000)
    assert kit.engine.metrics.schedules.failed >= 2
    await kit.engine.cancel(NS, "t", [id], forget=True)
    await kit.advance(8)
    assert await kit.times() == [10, 20]
    view = await kit.get("a")
    assert (view.last_error, view.missed_count) == (None, 0)


class _Quota:
    is_reached = True

    def admit(self, namespace: str, jobs: int, grant: Grant) -> None:
        if self.is_reached:
            raise QuotaExceeded("too many pending jobs")


async def test_a_refused_send_is_shown_and_tried_again(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    quota = _Quota()
    kit.engine.limit_sends(quota)
    await kit.advance(15)
    assert (await kit.get("a")).last_error == "rate_limited: too many pending jobs"
    quota.is_reached = False
    await kit.advance(8)
    assert await kit.times() == [10, 20]
    assert (await kit.get("a")).last_error is None


async def test_an_error_is_shown_until_the_schedule_is_written_again(kit: ScheduleKit) -> None:
    """The occurrence that failed belongs to the old one, and the next one may come in a month."""
    quota = _Quota()
    kit.engine.limit_sends(quota)
    await kit.put("a", every(10))
    await kit.advance(40)
    error = "rate_limited: too many pending jobs"
    assert (await kit.engine.schedules.pause(NS, "a")).last_error == error
    assert (await kit.engine.schedules.resume(NS, "a")).last_error == error
    assert (await kit.put("a", every(100))).last_error is None
    await kit.advance(30)
    assert (await kit.get("a")).last_error is None
    await kit.advance(29.9)
    assert (await kit.get("a")).last_error == error
    quota.is_reached = False
    await kit.advance(0.1)  # the first try was 500 ms before the occurrence, so the next one is at it
    assert await kit.times() == [100]


async def test_schedules_that_are_due_at_once_share_their_calls(kit: ScheduleKit) -> None:
    for name in ("a", "b", "c"):
        await kit.put(name, every(10))
    await kit.advance(10)
    before = len(kit.store.calls)
    await kit.advance(10)
    calls = kit.store.calls[before:]
    assert (calls.count("send"), calls.count("release")) == (1, 1)
    assert sorted(await kit.times()) == [10] * 3 + [20] * 3


class _Room:
    """Takes so many jobs more."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def admit(self, namespace: str, jobs: int, grant: Grant) -> None:
        if jobs > self._jobs:
            raise QuotaExceeded("too many pending jobs")
        self._jobs -= jobs


async def test_one_that_is_refused_does_not_hold_up_those_that_are_due_with_it(kit: ScheduleKit) -> None:
    for name in ("a", "b", "c"):
        await kit.put(name, every(10))
    await kit.advance(10)
    assert await kit.times() == [10] * 3
    await kit.engine.send(NS, "t", Send(f"a@{START_MS + 20_000}", b"1", BodyKind.JSON, delay_ms=86_400_000))
    await kit.advance(10)
    assert sorted(job.id[0] for job in await kit.pulled()) == ["b", "c"]
    assert ((await kit.get("a")).last_error or "").startswith("id_exists")
    await kit.engine.schedules.delete(NS, "a")
    kit.engine.limit_sends(_Room(1))
    await kit.advance(10)
    assert [seconds_of(job.id) for job in await kit.pulled()] == [30]
    errors = [(await kit.get(name)).last_error for name in ("b", "c")]
    assert sorted(error or "" for error in errors) == ["", "rate_limited: too many pending jobs"]


async def test_a_zone_that_a_server_does_not_know_stops_no_other_schedule(kit: ScheduleKit) -> None:
    """The names of zones are those of a package, which may be older on one server."""
    await kit.put("b", every(300))
    home = await kit.memory.directory.topic(INTERNAL_NAMESPACE, home_topic(NS))
    assert home is not None
    strange = StoredSchedule(Schedule("t", template(), cron="*/5 * * * *", tz="Moon/Tranquility"), START_MS)
    item = item_of("a", strange, START_MS + 300_000, 0)
    await kit.memory.send(Partition(INTERNAL_NAMESPACE, home_topic(NS)), [item], home.version)
    await kit.advance(900)
    assert await kit.times() == [300, 600, 900]
    views = {view.name: view for view in (await kit.engine.schedules.list(NS, "", 10))[0]}
    assert (views["a"].next_at_ms, views["b"].next_at_ms) == (None, START_MS + 1_200_000)
    assert views["a"].last_error == (
        'invalid_field: tz "Moon/Tranquility" is not an IANA time zone, such as Europe/Madrid or UTC'
    )
    await kit.engine.schedules.delete(NS, "a")
    with pytest.raises(NotFound):
        await kit.get("a")


# How to read it: the schedule comes every 10 minutes; nothing runs from 0:05 to 1:05.
OUTAGES = [
    (Misfire.LATEST, [60, 70], 5),
    (Misfire.SKIP, [70], 6),
    (Misfire.ALL, [10, 20, 30, 40, 50, 60, 70], 0),
]


@pytest.mark.parametrize(("misfire", "came", "missed"), OUTAGES)
async def test_the_policy_says_what_becomes_of_an_hour_without_servers(
    kit: ScheduleKit, misfire: Misfire, came: list[int], missed: int
) -> None:
    await kit.put("a", every(600, misfire=misfire))
    await kit.advance(300)
    await kit.engine.stop()
    await kit.advance(HOUR)
    await kit.serve()
    await settled()
    await kit.advance(300)
    assert [at / 60 for at in await kit.times()] == came
    assert (await kit.get("a")).missed_count == missed
    assert kit.engine.metrics.schedules.missed == missed


@pytest.mark.parametrize(("misfire", "came", "missed"), OUTAGES)
async def test_the_policy_says_what_becomes_of_an_hour_of_pause(
    kit: ScheduleKit, misfire: Misfire, came: list[int], missed: int
) -> None:
    await kit.put("a", every(600, misfire=misfire))
    await kit.advance(300)
    await kit.engine.schedules.pause(NS, "a")
    await kit.advance(HOUR)
    await kit.engine.schedules.resume(NS, "a")
    await kit.advance(300)
    assert [at / 60 for at in await kit.times()] == came
    assert (await kit.get("a")).missed_count == missed


async def test_all_sends_the_last_hundred_of_many(kit: ScheduleKit) -> None:
    await kit.put("a", every(1, misfire=Misfire.ALL))
    await settled()
    await kit.engine.stop()
    await kit.advance(HOUR)
    await kit.serve()
    await kit.advance(0)
    assert await kit.times() == list(range(HOUR - 99, HOUR + 1))
    assert (await kit.get("a")).missed_count == HOUR - 100


async def test_a_minute_without_servers_is_no_outage(kit: ScheduleKit) -> None:
    await kit.put("a", every(10, misfire=Misfire.SKIP))
    await settled()
    await kit.engine.stop()
    await kit.advance(69)
    await kit.serve()
    await kit.advance(0)
    assert await kit.times() == [10, 20, 30, 40, 50, 60]


async def test_a_paused_topic_takes_the_jobs_of_its_schedules(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    await kit.engine.pause(NS, "t", None)
    await kit.advance(35)
    assert await kit.times() == []
    await kit.engine.resume(NS, "t")
    assert await kit.times() == [10, 20, 30]


async def test_a_topic_that_a_schedule_sends_to_cannot_be_deleted(kit: ScheduleKit) -> None:
    await kit.put("a", every(10))
    await kit.advance(10)
    assert await kit.times() == [10]
    await kit.advance(5)
    with pytest.raises(TopicNotEmpty, match="schedule"):
        await kit.engine.delete_topic(NS, "t")


async def test_a_change_fences_every_partition_of_both_topics(kit: ScheduleKit) -> None:
    await kit.partitions("t", 3)
    await kit.partitions("u", 2)
    await kit.put("a", every(10))
    assert await _fences(kit, "t") == []
    second = await kit.put("a", every(10))
    assert set(found := await _fences(kit, "t")) == {Fence(f"{NS}\0a", second.version)}
    assert len(found) >= 3
    third = await kit.put("a", every(10, topic="u"))
    assert set(await _fences(kit, "t")) == {Fence(f"{NS}\0a", third.version, gone=True)}
    assert set(found := await _fences(kit, "u")) == {Fence(f"{NS}\0a", third.version)}
    assert len(found) >= 2
    await kit.engine.schedules.delete(NS, "a")
    [gone] = set(await _fences(kit, "u"))
    assert gone.gone
    assert gone.version > third.version


@pytest.mark.parametrize("lost", [5, 500])
async def test_a_version_that_the_store_has_lost_is_passed(kit: ScheduleKit, lost: int) -> None:
    """A partition may know a newer version than the schedule's own shard: a little newer after a failover, and much
    newer if the shard has lost all data."""
    first = await kit.put("a", every(10))
    await kit.memory.fence(Partition(NS, "t"), [Fence(f"{NS}\0a", first.version + lost)])
    await kit.advance(12)
    assert await kit.times() == []
    assert "write the schedule again" in ((await kit.get("a")).last_error or "")
    assert (await kit.put("a", every(10))).version == first.version + lost + 1
    await kit.advance(8)
    assert await kit.times() == [20]


async def _fences(kit: ScheduleKit, topic: str) -> list[Fence]:
    """Of all partitions that the topic may have."""
    found: list[Fence] = []
    for number in range(8):
        found += (await kit.memory.fences(Partition(NS, topic, number)))[0]
    return found
