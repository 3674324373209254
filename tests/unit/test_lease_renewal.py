"""Lease renewal and the reports that are repeated, on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from dueline.lease_renewal import BATCH, LeaseRenewal, LeaseRenewals, until_accepted
from dueline.testing.clock import VirtualClock
from dueline.testing.timer import VirtualTimer, settled


class Job(NamedTuple):
    lease: str


class Away(Exception):
    """The store is unavailable."""


class Kit:
    """A store that notes at which ms which leases were renewed; `says` is raised, once each."""

    def __init__(self) -> None:
        self.timer = VirtualTimer(VirtualClock())
        self.calls: list[tuple[int, list[str]]] = []
        self.says: list[Exception] = []
        self.lost: set[str] = set()
        self.gate: asyncio.Event | None = None
        self.renewals = LeaseRenewals[LeaseRenewal[Job]](self.extend, Away, self.timer)

    def add(self, name: str, lease_ms: int = 3000) -> LeaseRenewal[Job]:
        return self.renewals.add(LeaseRenewal(Job(name), lease_ms))

    async def extend(self, renewals: Sequence[LeaseRenewal[Job]]) -> None:
        self.calls.append((round(self.timer.time() * 1000), [renewal.job.lease for renewal in renewals]))
        if self.gate is not None:
            await self.gate.wait()
        if self.says:
            raise self.says.pop(0)
        for renewal in renewals:
            if renewal.job.lease in self.lost:
                renewal.lose()


@pytest.fixture
def kit() -> Kit:
    return Kit()


async def test_a_lease_is_renewed_after_every_third_and_nearby_ones_share_a_call(kit: Kit) -> None:
    kit.add("a")
    await kit.timer.advance(200)
    kit.add("b")
    await kit.timer.advance(200)
    kit.add("c")
    await kit.timer.advance(1700)
    assert kit.calls == [(1000, ["a", "b"]), (1400, ["c"]), (2000, ["a", "b"])]


async def test_a_removed_lease_is_not_renewed(kit: Kit) -> None:
    a, _ = kit.add("a"), kit.add("b")
    kit.renewals.remove(a)
    kit.renewals.remove(a)
    await kit.timer.advance(1000)
    assert kit.calls == [(1000, ["b"])]


async def test_nothing_is_asked_and_no_timer_is_left_once_no_lease_is(kit: Kit) -> None:
    kit.renewals.remove(kit.add("a"))
    await kit.timer.advance(60_000)
    assert (kit.calls, kit.timer.sleeping) == ([], [])


async def test_a_short_lease_is_renewed_in_time_beside_a_long_one(kit: Kit) -> None:
    kit.add("long", 3_600_000)
    kit.add("short")
    await kit.timer.advance(2000)
    assert kit.calls == [(1000, ["short"]), (2000, ["short"])]


async def test_a_lease_taken_during_a_renewal_is_renewed_in_time(kit: Kit) -> None:
    kit.gate = asyncio.Event()
    kit.add("a", 30_000)
    await kit.timer.advance(10_000)
    kit.add("b")
    kit.gate.set()
    await kit.timer.advance(1000)
    assert kit.calls == [(10_000, ["a"]), (11_000, ["b"])]


async def test_while_the_store_is_away_a_lease_is_tried_again_after_another_third(kit: Kit) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    renewal = kit.add("a")
    kit.says = [Away(), Away()]
    await kit.timer.advance(3000)
    assert [at for at, _ in kit.calls] == [1000, 2000, 3000]
    assert (renewal.is_lost, reported) == (False, [])


async def test_a_bug_is_reported_and_the_lease_is_renewed_all_the_same(kit: Kit) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    kit.add("a")
    kit.says = [KeyError("bug")]
    await kit.timer.advance(2000)
    assert [at for at, _ in kit.calls] == [1000, 2000]
    assert [context["message"] for context in reported] == ["leases could not be renewed"]


async def test_a_lost_lease_is_announced_and_no_longer_renewed(kit: Kit) -> None:
    a, b, _ = kit.add("a"), kit.add("b"), kit.add("kept")
    lost = a.lost
    kit.lost = {"a", "b"}
    assert not lost.done()
    await kit.timer.advance(2000)
    assert kit.calls == [(1000, ["a", "b", "kept"]), (2000, ["kept"])]
    assert lost.done()
    assert b.lost.done(), "also for those who ask late"


async def test_many_leases_are_renewed_in_bounded_calls(kit: Kit) -> None:
    for number in range(BATCH + 1):
        kit.add(str(number))
    await kit.timer.advance(1000)
    assert [len(leases) for _, leases in kit.calls] == [BATCH, 1]


async def test_a_stop_leaves_no_timer_and_no_renewal_that_hangs(kit: Kit) -> None:
    await kit.renewals.stop()
    kit.add("a")
    await kit.renewals.stop()
    assert kit.timer.sleeping == []
    kit.gate = asyncio.Event()
    kit.add("b")
    await kit.timer.advance(1000)
    assert kit.calls == [(1000, ["b"])]
    others = asyncio.all_tasks() - {asyncio.current_task()}
    kit.add("c")
    await kit.renewals.stop()
    await kit.renewals.stop()
    assert all(task.done() for task in others)
    assert kit.timer.sleeping == []


class Report:
    """Fails so many times, then says "ok"."""

    def __init__(self, kit: Kit, failures: int) -> None:
        self.kit = kit
        self.failures = failures
        self.at_ms: list[int] = []
        self.seen: list[Exception] = []
        self.hurried = asyncio.Event()
        self.renewal = LeaseRenewal(Job("a"), 3000)

    async def tell(self) -> str:
        self.at_ms.append(round(self.kit.timer.time() * 1000))
        if len(self.at_ms) <= self.failures:
            raise Away
        return "ok"

    async def run(self) -> str | None:
        return await until_accepted(
            self.renewal, self.tell, (Away,), self.hurried, self.kit.timer, failed=self.seen.append
        )


async def test_a_report_is_repeated_ever_less_often_until_the_store_accepts_it(kit: Kit) -> None:
    report = Report(kit, 8)
    running = asyncio.ensure_future(report.run())
    await kit.timer.advance(60_000)
    assert (running.done() and running.result(), len(report.seen)) == ("ok", 8)
    assert report.at_ms == [0, 100, 300, 700, 1500, 3100, 6300, 11_300, 16_300]
    assert kit.timer.sleeping == []


async def test_an_error_that_is_not_an_absence_is_the_caller_s(kit: Kit) -> None:
    async def refused() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        await until_accepted(LeaseRenewal(Job("a"), 1), refused, (Away,), asyncio.Event(), kit.timer)


@pytest.mark.parametrize("end", ["lost", "hurried"])
async def test_a_report_is_given_up_at_once_when_its_lease_is_lost_or_the_stop_hurries(end: str, kit: Kit) -> None:
    report = Report(kit, 100)
    running = asyncio.ensure_future(report.run())
    await kit.timer.advance(150)
    if end == "lost":
        report.renewal.lose()
    else:
        report.hurried.set()
    await settled()
    assert running.done()
    assert running.result() is None
    assert report.at_ms == [0, 100, *([150] if end == "hurried" else [])], "a hurried stop makes one last try"
    assert kit.timer.sleeping == []


async def test_nothing_is_reported_about_a_lost_lease(kit: Kit) -> None:
    report = Report(kit, 0)
    report.renewal.lose()
    assert await report.run() is None
    assert report.at_ms == []
