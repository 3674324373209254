"""The benchmark beside other libraries: what it counts, what it compares, that it runs. No figure is judged here."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.broken import Broken
from bench.peers import lateness, processes, queues, sending, tables
from bench.peers.contestants import CONTESTANTS, Contestant
from bench.peers.lateness import Lateness
from bench.peers.programs import contest
from bench.peers.sending import Rates

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def rates(**per_s: float) -> Rates:
    return Rates({way: [figure] for way, figure in per_s.items()}, {}, 0)


def test_we_are_compared_with_the_best_of_the_others_and_in_bulk_with_the_fastest_of_all_their_ways() -> None:
    measured = {
        "rq": rates(one=1000, fifty=900, bulk=3000),
        "huey": rates(one=4000, fifty=2000),
        tables.DIRECT: rates(one=5000, fifty=9000, bulk=20000),
        tables.HTTP: rates(one=2000, fifty=4000, bulk=16000),
    }
    assert [(line.what, line.ratio, line.met) for line in tables.targets("fsync", measured)] == [
        ("dueline direct, one at a time, fsync", 1.25, True),
        ("dueline direct, 50 at once, fsync", 4.5, True),
        ("dueline http, in bulk (1000), fsync", 4.0, False),
    ]


def test_jobs_of_all_contestants_come_due_one_by_one() -> None:
    moments = lateness._moments(["a", "b", "c"], 10)
    assert {name: len(own) for name, own in moments.items()} == {"a": 10, "b": 10, "c": 10}
    ordered = sorted(moment for own in moments.values() for moment in own)
    assert min(later - sooner for sooner, later in itertools.pairwise(ordered)) >= 149


def test_the_first_start_of_a_job_counts_and_one_that_never_started_is_missing(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_text("1000 1004.5\n2000 1998.0\n1000 9999.0\n555 600.0\n")
    found = lateness._read(record, [1000, 2000, 3000], last_s=0)
    assert (found, found.early) == (Lateness([4.5, -2.0], 1), 1)


class StubProducer(processes.Producer):
    """A producer that says how many jobs its topic holds."""

    def __init__(self, contestant: Contestant, stored: int) -> None:
        super().__init__(contestant, {}, Path("no-log"))
        self._stored = stored

    def ask(self, **request: object) -> dict[str, object]:
        assert request == {"do": "stored"}
        return {"stored": self._stored}


def test_a_job_that_was_counted_and_is_not_in_the_store_breaks_the_run(tmp_path: Path) -> None:
    ours = next(one for one in CONTESTANTS if one.ours)
    store = processes.Store(tmp_path, "no")
    sending.check_stored(StubProducer(ours, 7), store, 7)
    with pytest.raises(Broken, match="8 jobs were counted as sent, 7 are in the store"):
        sending.check_stored(StubProducer(ours, 7), store, 8)


async def test_every_way_counts_what_it_sent() -> None:
    sent: list[int] = []

    async def send() -> None:
        sent.append(1)
        await asyncio.sleep(0)

    ways = {
        "one": contest.one(lambda: sent.append(1)),
        "one awaited": contest.one_awaited(send),
        "threads": contest.threads(lambda: sent.append(1)),
        "tasks": contest.tasks(send),
        "bulk": contest.bulk(lambda jobs: sent.extend([1] * jobs)),
    }

    for name, way in ways.items():
        sent.clear()
        done = way(0.2)  # starting 50 threads may take 10 ms on a busy machine
        counted, seconds = await done if inspect.isawaitable(done) else done
        assert (name, counted) == (name, len(sent))
        assert counted > 0
        assert seconds > 0


def test_a_send_that_fails_in_a_thread_fails_the_way() -> None:
    def send() -> None:
        raise OSError("refused")

    with pytest.raises(OSError, match="refused"):
        contest.threads(send)(0.01)


def test_the_whole_of_it_runs_with_our_own_contestants(tmp_path: Path) -> None:
    """Without the five libraries, which a test does not install."""
    words = ["--only", "dueline direct,dueline http", "--rounds", "1", "--seconds", "0.05", "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "bench.peers", *words, "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [path] = tmp_path.iterdir()
    found = msgspec.json.decode(path.read_bytes())
    ways = {"one", "fifty", "bulk"}
    assert {store: {name: set(own) for name, own in by.items()} for store, by in found["sends_per_s"].items()} == {
        store: {"dueline direct": ways, "dueline http": ways} for store in ("no fsync", "fsync")
    }
    assert {name: (own["early"], own["missing"]) for name, own in found["lateness"].items()} == {
        "dueline direct": (0, 0),
        "dueline http": (0, 0),
    }


@pytest.mark.parametrize("start", [queues._dueline, queues._library], ids=["server", "library"])
def test_a_queue_of_ours_does_every_work_and_its_processes_are_counted(start: Any) -> None:
    is_server = start is queues._dueline
    with contextlib.ExitStack() as stack:
        _, measured = start(stack)
        for work in ("send", "life", "chained") if is_server else ("send", "life"):
            found = measured(work, 500)
            assert found.per_s > 0
            assert set(found.cpu_us) == ({"server", "store", "load"} if is_server else {"python", "store"})
            assert min(found.cpu_us.values()) > 0
