"""Schedules in virtual time: a year of occurrences, an outage, and a job that takes longer than its interval. The table
of docs/schedules.md is made here."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dueline import Client
from dueline.engine.commands import Send
from dueline.engine.job import BodyKind
from dueline.testing.flaky import Trouble
from dueline.testing.queue import VirtualQueue

PAGE = Path(__file__).parents[3] / "docs" / "schedules.md"
MISFIRES = ("latest", "skip", "all")


def occurrences(client: Client, topic: str = "t") -> list[datetime]:
    """The occurrences that became jobs, from the ids of the jobs."""
    return sorted(datetime.fromtimestamp(int(job.id.partition("@")[2]) / 1000, UTC) for job in client.list_jobs(topic))


def clock_times(client: Client) -> str:
    return " ".join(f"{at:%H:%M}" for at in occurrences(client))


def test_a_year_passes_with_one_job_per_day_at_nine_on_the_wall() -> None:
    madrid = ZoneInfo("Europe/Madrid")
    with VirtualQueue(start="2026-01-01T00:00:00Z") as queue:
        queue.client.put_schedule("daily", "t", cron="0 9 * * *", tz="Europe/Madrid")
        queue.clock.advance("365d")
        found = [at.astimezone(madrid) for at in occurrences(queue.client)]
    assert [f"{at:%H:%M}" for at in found] == ["09:00"] * 365
    assert [at.date() for at in found] == [datetime(2026, 1, 1).date() + timedelta(days=n) for n in range(365)]


def test_a_job_is_due_at_its_occurrence_and_not_earlier() -> None:
    with VirtualQueue(start="2026-01-01T00:00:01Z") as queue:
        client = queue.client
        client.put_schedule("s", "t", {"n": 1}, every="1h", tags=["x"], headers={"X-From": "s"}, max_attempts=3)
        queue.clock.advance(3598.999)
        assert client.pull("t") == ()
        queue.clock.advance(0.001)
        [job] = client.pull("t")
        assert (job.id, job.json(), job.due_at_ms) == ("s@1767229200000", {"n": 1}, 1_767_229_200_000)
        assert (job.tags, job.headers, job.max_attempts) == (("x",), {"X-From": "s"}, 3)
        assert client.schedule("s").last_job == job.id


def test_jitter_moves_jobs_later_and_never_by_more_than_it_says() -> None:
    with VirtualQueue(start="2026-01-01T00:00:00Z") as queue:
        queue.client.put_schedule("s", "t", every="1h", jitter="10m")
        queue.clock.advance("30h")
        jobs = list(queue.client.list_jobs("t"))
    late_ms = [job.due_at_ms - int(job.id.partition("@")[2]) for job in jobs]
    assert len(late_ms) == 30
    assert 0 <= min(late_ms) < max(late_ms) <= 600_000


def test_a_schedule_ends_and_says_so() -> None:
    with VirtualQueue(start="2026-01-01T00:00:00Z") as queue:
        queue.client.put_schedule("s", "t", every="1h", ends_at="2026-01-01T03:00:00Z")
        queue.clock.advance("1d")
        assert clock_times(queue.client) == "01:00 02:00 03:00"
        assert queue.client.schedule("s").next_at_ms is None
        assert queue.client.next_occurrences("s") == []


def test_a_deleted_schedule_sends_nothing_more_and_its_jobs_stay() -> None:
    with VirtualQueue(start="2026-01-01T00:00:00Z") as queue:
        queue.client.put_schedule("s", "t", every="1h")
        queue.clock.advance("2h")
        queue.client.delete_schedule("s")
        queue.clock.advance("1d")
        assert clock_times(queue.client) == "01:00 02:00"


def outage(misfire: str, overlap: str) -> str:
    """A row of the table: every ten minutes from 12:00 on, the store is away from 12:05 to 13:05."""
    with VirtualQueue(start="2026-01-01T11:55:00Z", trouble=Trouble(refused=1.0)) as queue:
        queue.store.calm()
        return row(queue, misfire, overlap, queue.store.stir, queue.store.calm)


def pause(misfire: str, overlap: str) -> str:
    """The same, but the schedule is paused for that hour."""
    with VirtualQueue(start="2026-01-01T11:55:00Z") as queue:
        client = queue.client
        return row(queue, misfire, overlap, lambda: client.pause_schedule("s"), lambda: client.resume_schedule("s"))


def row(queue: VirtualQueue, misfire: str, overlap: str, begin: object, end: object) -> str:
    client, clock = queue.client, queue.clock
    client.put_schedule("s", "t", cron="*/10 * * * *", misfire=misfire, overlap=overlap)  # pyright: ignore[reportArgumentType]
    clock.advance_to("2026-01-01T12:01:00Z")
    [first] = client.pull("t", lease="3h")
    if overlap == "allow":
        client.ack(first)
    clock.advance_to("2026-01-01T12:05:00Z")
    begin()  # pyright: ignore[reportCallIssue]
    clock.advance_to("2026-01-01T13:05:00Z")
    end()  # pyright: ignore[reportCallIssue]
    clock.advance_to("2026-01-01T13:15:00Z")
    if overlap == "skip":
        client.ack(first)
    clock.advance_to("2026-01-01T13:25:00Z")
    jobs = ["12:00", *(at for at in clock_times(client).split() if at != "12:00")]
    return f"| `{misfire}` | `{overlap}` | {' '.join(jobs)} | {client.schedule('s').missed_count} |"


def table() -> list[str]:
    rows = ["| `misfire` | `overlap` | jobs of the occurrences at | `missed_count` |", "|---|---|---|---|"]
    return rows + [outage(misfire, overlap) for overlap in ("allow", "skip") for misfire in MISFIRES]


def test_the_table_of_the_page_is_what_happens() -> None:
    made = "\n".join(table())
    print(f"\n{made}")
    assert made in PAGE.read_text(), f"write this into docs/schedules.md:\n{made}"


@pytest.mark.parametrize("overlap", ["allow", "skip"])
@pytest.mark.parametrize("misfire", MISFIRES)
def test_a_pause_misses_the_same_occurrences_as_an_outage(misfire: str, overlap: str) -> None:
    assert pause(misfire, overlap) == outage(misfire, overlap)


def test_the_test_of_the_page_passes(dueline_queue: VirtualQueue) -> None:
    [block] = re.findall(r"^# test_reports\.py\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    names["test_a_year_of_reports"](dueline_queue)


def test_all_sends_at_most_the_last_hundred() -> None:
    with VirtualQueue(start="2026-01-01T00:00:00Z") as queue:
        queue.client.put_schedule("s", "t", cron="* * * * *", misfire="all", paused=True)
        queue.clock.advance("1d")
        queue.client.resume_schedule("s")
        queue.clock.advance("1s")
        found = occurrences(queue.client)
        assert (len(found), found[0], found[-1]) == (
            100,
            datetime(2026, 1, 1, 22, 21, tzinfo=UTC),
            datetime(2026, 1, 2, tzinfo=UTC),
        )
        assert queue.client.schedule("s").missed_count == 1340


def test_a_run_does_not_change_the_occurrences() -> None:
    with VirtualQueue(start="2026-01-01T00:30:00Z") as queue:
        queue.client.put_schedule("s", "t", every="1h")
        sent = queue.client.run_schedule("s")
        assert (sent.id, sent.state) == ("s@run-1767227400000", "ready")
        queue.client.cancel("t", sent.id)
        queue.clock.advance("2h")
        ids = {job.id for job in queue.client.list_jobs("t")} - {sent.id}
        assert ids == {"s@1767229200000", "s@1767232800000"}


def test_an_occurrence_whose_id_is_taken_is_shown_and_sent_when_the_id_is_free() -> None:
    with VirtualQueue(start="2026-01-01T00:00:01Z") as queue:
        client = queue.client
        taken = Send("s@1767229200000", b"1", BodyKind.JSON)  # by another protocol: native ids have no @
        queue.run(queue.engine.send("default", "t", taken))
        client.put_schedule("s", "t", "mine", every="1h")
        queue.clock.advance("1h")
        shown = client.schedule("s")
        assert "id_exists" in (shown.last_error or "")
        assert (shown.last_job, shown.missed_count) == (None, 0)
        client.cancel("t", "s@1767229200000")
        queue.clock.advance("5m")  # its record is readable for a minute
        [job] = client.pull("t")
        assert (job.id, job.json()) == ("s@1767229200000", "mine")
        assert client.schedule("s").last_error is None
