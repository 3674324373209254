"""The fault tests can see: each promise broken on purpose is noticed by load and checker, and nothing else is.

A blind test is worse than none. The same load and the same checker judge the crash tests.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from dueline.engine.guards import RULES, Guard
from dueline.testing.checker import Kind, Report, check
from dueline.testing.history import Recorder
from tools.faults.load import Load, Plan

from ..kit.valkey import PrivateValkey
from . import broken_server
from .broken_server import served
from .kit import serving
from .under_load import clock_steps


async def judged(store: broken_server.Sound, jobs: int = 400) -> Report:
    recorder = Recorder()
    async with served(store) as address:
        plan = Plan(
            topics=(f"a-{uuid.uuid4().hex}", f"b-{uuid.uuid4().hex}"),
            max_delay_ms=120,
            lease_ms=(80, 150),
            wait_ms=60,
            pause_ms=8.0,
            max_jobs=jobs,
            plain_share=0.5,
            stale_share=1.0,
            conflict_share=0.1,
            few_attempts_share=0.5,
        )
        load = Load(plan, [address], recorder, seed=3)
        await load.start()
        await load.acknowledged_reaches(jobs - 20, 10)
        await load.stop_sending()
        await load.drained(3.0)
        await load.stop()
        final = await load.dump()
        assert load.bugs == []
    return check(recorder.events, final)


async def test_a_sound_server_is_found_sound(private_valkey: PrivateValkey) -> None:
    report = await judged(broken_server.Sound(private_valkey.url), jobs=800)
    assert report.violations == ()
    assert (report.left, report.unknown) == (0, 0)
    assert report.deliveries > report.sends_ok > 700
    assert report.redeliveries > 0, "nothing was released, forgotten or held too long: the load is too tame"


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        (broken_server.LosesSends, Kind.LOST),
        (broken_server.IsEarly, Kind.EARLY),
        (broken_server.AltersBodies, Kind.ALTERED),
        (broken_server.ForgetsAcks, Kind.AFTER_DONE),
        (broken_server.ForgetsCancels, Kind.AFTER_DONE),
        (broken_server.LeasesTwice, Kind.TWO_LEASES),
        (broken_server.RefusesHolders, Kind.HOLDER_REFUSED),
        (broken_server.IgnoresTokens, Kind.STALE_TOKEN_OK),
        (broken_server.RepeatsNumbers, Kind.NUMBER_REPEATED),
        (broken_server.TriesTooOften, Kind.ATTEMPTS_OVER),
        (broken_server.TakesAnyBody, Kind.CONFLICT_ACCEPTED),
    ],
)
async def test_a_server_that_breaks_a_promise_is_found_out(
    store: type[broken_server.Sound], kind: Kind, private_valkey: PrivateValkey
) -> None:
    assert (await judged(store(private_valkey.url))).count(kind) > 0


async def test_a_clock_step_is_seen_though_the_server_that_counted_it_is_gone(
    private_valkey: PrivateValkey, folder: Path
) -> None:
    async with serving(folder, store_url=private_valkey.url, env={"DUELINE_LOG__FORMAT": "json"}) as server:
        assert await clock_steps([server]) == []
        server.output.append(json.dumps({"event": RULES[Guard.CLOCK_STEP].entered}))  # before it was killed
        assert len(await clock_steps([server])) == 1
