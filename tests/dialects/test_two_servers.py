"""A thousand jobs by each protocol through two server processes on one store, one of which is killed twice."""

from __future__ import annotations

import asyncio

import pytest

from .callers import (
    CamelliaWords,
    Consumption,
    OuqiangWords,
    Tally,
    Words,
    YouzanWords,
    came_late,
    consumed,
    live_jobs,
    sent,
    two_servers,
)
from .kit import Runner

pytestmark = pytest.mark.slow

JOBS = 1_000
PROTOCOLS: tuple[Words, ...] = (CamelliaWords(), OuqiangWords(), YouzanWords())
OPTIONS = {"DUELINE_DIALECTS__OUQIANG__HOLD_MS": "1000"}


def test_a_killed_server_loses_nothing_and_nothing_comes_after_its_finish(runner: Runner) -> None:
    runner.run(_life())


async def _life() -> None:
    ids = {words.name: [f"{words.name}-{number}" for number in range(JOBS)] for words in PROTOCOLS}
    seen = {words.name: Consumption() for words in PROTOCOLS}
    async with two_servers(OPTIONS) as servers:
        doomed = servers[1].server

        sends = {words.name: Tally() for words in PROTOCOLS}
        sending = asyncio.gather(
            *(sent(words, servers, words.name, ids[words.name], 4, sends[words.name]) for words in PROTOCOLS)
        )
        await asyncio.gather(*(tally.reaches(JOBS // 10) for tally in sends.values()))
        assert not sending.done()
        await doomed.kill()
        await sending
        await doomed.start()

        consuming = asyncio.gather(
            *(consumed(words, servers, words.name, JOBS, seen[words.name], 4) for words in PROTOCOLS)
        )
        await asyncio.gather(*(one.finishes.reaches(JOBS // 4) for one in seen.values()))
        assert not consuming.done()
        await doomed.kill()
        await consuming

        for words in PROTOCOLS:
            found = seen[words.name]
            assert (sorted(found.deliveries), found.after_finish) == (sorted(ids[words.name]), []), words.name
        late = await asyncio.gather(*(came_late(words, servers, words.name) for words in PROTOCOLS))
        live = await asyncio.gather(*(live_jobs(servers[0], words.name) for words in PROTOCOLS))
        assert (late, live) == ([[]] * 3, [{"scheduled": 0, "ready": 0, "leased": 0}] * 3)
