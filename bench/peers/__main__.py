"""Run the comparison, print the tables, save all results. Exit 0 whatever they are, 1 if something did not work."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from .. import committed, machine
from ..broken import Broken
from ..report import RESULTS, RowResult, print_table, write
from ..servers import Server, folder
from . import environments, lateness, queues, sending, tables
from .contestants import CONTESTANTS, Contestant
from .processes import Producer, Store

STORES = {"no fsync": "everysec", "fsync": "always"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="See docs/comparison.md.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of sends on each store")
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of one way of one contestant in one round")
    parser.add_argument("--jobs", type=int, default=30, help="jobs per worker in the lateness row; 0 skips the row")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where to write the results")
    names = [one.name for one in CONTESTANTS]
    parser.add_argument("--only", default="", metavar="NAME,...", help=f"some of: {', '.join(names)}")
    parser.add_argument("--part", choices=("libraries", "queues"), help="one part of the comparison instead of both")
    parser.add_argument("--queue-jobs", type=int, default=20_000, help="jobs of one work of one queue in one round")
    parser.add_argument("--keep", action="store_true", help="keep the results of the queues as the committed ones")
    asked = parser.parse_args()
    chosen: list[str] = [name for name in str(asked.only).split(",") if name] or names
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"no such contestant: {', '.join(unknown)}; there are {', '.join(names)}")
    contestants = [one for one in CONTESTANTS if one.name in chosen]
    try:
        if asked.part != "libraries" and not asked.only:
            _compare_queues(asked.rounds, asked.queue_jobs, asked.results, asked.keep)
        if asked.part == "queues":
            return 0
        return _run(contestants, asked.rounds, asked.seconds, asked.jobs, asked.results)
    except Broken as broken:
        print(broken, file=sys.stderr)
        return 1


def _compare_queues(rounds: int, jobs: int, results: Path, keep: bool) -> None:
    """Dueline's server beside other queues that write each job to disk."""
    facts = machine.facts(machine.share_two_cores())
    stolen = machine.Stolen()
    print("sends and lives of Dueline, beanstalkd and BullMQ ...", flush=True)
    found = queues.measure(rounds, jobs)
    facts["stolen_share"] = stolen.share()
    for name, reason in found.missing.items():
        print(f"{name} was left out: {reason}")
    row = RowResult("queues", queues.lines(found))
    print_table([row])
    path = write([row], facts, "peers", results)
    for warning in committed.warnings([row], "peers"):
        print(f"warning: {warning}")
    print(f"load {facts['load_before']:.1f} at the start; written to {path}")
    if keep:
        print(f"kept in {committed.keep([row], facts, 'peers')}")


def _run(contestants: Sequence[Contestant], rounds: int, seconds: float, jobs: int, results: Path) -> int:
    for one in contestants:
        environments.commands(one)
    facts = machine.facts(machine.share_two_cores())
    began_s = time.monotonic()
    stolen = machine.Stolen()
    rates: dict[str, Mapping[str, sending.Rates]] = {}
    late: Mapping[str, lateness.Lateness] = {}
    versions: dict[str, dict[str, str]] = {}
    with folder() as place:
        facts["fsync_ms"] = machine.fsync_ms(place)
        print(
            f"{facts['cpu']}, cores {facts['cores_used']} of {facts['cores_of_machine']}, "
            f"load {facts['load_before']:.1f}, fsync {facts['fsync_ms']:.2f} ms, Python {facts['python']}, "
            f"commit {facts['commit'][:10]}"
        )
        for name, appendfsync in STORES.items():
            with _arena(contestants, place / appendfsync, appendfsync) as arena:
                for producer in arena.producers:
                    one = producer.contestant
                    versions[one.name] = producer.ask(do="versions", of=one.shown)
                print(f"sending on a store with appendfsync {appendfsync} ...", flush=True)
                rates[name] = sending.measure(arena.producers, rounds, seconds)
                for producer in arena.producers:
                    sending.check_stored(producer, arena.store, rates[name][producer.contestant.name].sent)
        if jobs:
            with _arena(contestants, place / "lateness", "everysec") as arena:
                print(f"lateness of {jobs} jobs each ...", flush=True)
                late = lateness.measure(arena.producers, arena.urls, arena.variables, jobs, arena.place)
    facts["stolen_share"] = stolen.share()
    tables.show(contestants, versions, rates, late)
    path = tables.write(results, facts, versions, rates, late)
    print(f"{time.monotonic() - began_s:.0f} s; the host of this machine kept {facts['stolen_share']:.1%} for others")
    print(f"written to {path}")
    return 0


class _Arena:
    """A store, our server on it, and all producers."""

    def __init__(self, place: Path, store: Store, server: Server, contestants: Sequence[Contestant]) -> None:
        self.place = place
        self.store = store
        self.urls = {one.name: store.url(one.database) for one in contestants}
        self.variables = {
            one.name: {
                "CONTEST_STORE": self.urls[one.name],
                "CONTEST_SERVER": f"http://127.0.0.1:{server.port}",
                "CONTEST_RECORD": str(lateness.record_of(place, one)),
            }
            for one in contestants
        }
        self.producers = [Producer(one, self.variables[one.name], place / f"{one.module}.log") for one in contestants]


@contextlib.contextmanager
def _arena(contestants: Sequence[Contestant], place: Path, appendfsync: str) -> Generator[_Arena]:
    place.mkdir()
    with contextlib.ExitStack() as stack:
        store = Store(place / "store", appendfsync)
        stack.callback(store.stop)
        store.start()
        server = Server(place / "server", store=store.url(0))
        stack.callback(server.stop)
        server.start()
        arena = _Arena(place, store, server, contestants)
        for producer in arena.producers:
            stack.callback(producer.stop)
            producer.start()
        yield arena


if __name__ == "__main__":
    sys.exit(main())
