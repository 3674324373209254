"""The crash test as a command: kill -9 at random moments under load, then count what was lost.

    python -m tools.faults.crash --rounds 20 --seed 1 --what both

It starts a private `dueline serve` in a temporary folder and puts it under load (`load`). Each round kills the server,
its store, both, or the whole process group, restarts what does not restart by itself, and waits until a send succeeds
again. At the end it stops the producers, drains, dumps every job, stops, runs fsck, and checks the history (`checker`).

Exit status 0 means that there was no violation, no finding and no orphan, that everything drained, AND that the run was
meaningful: jobs were delivered, every round's fault happened, and the faults interrupted operations (in progress,
refused or of unknown outcome). A run that shows nothing fails.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec

from dueline.testing.checker import Kind, Report, check
from dueline.testing.history import Final, Outcome, Recorder, explain, write
from tools.faults.load import Load, Plan
from tools.faults.recording_client import Job, RecordingClient
from tools.faults.server_process import ServerProcess, ended, kill_store
from tools.faults.store_check import findings_of

WHAT = ("server", "store", "both", "group", "all")


class Result(msgspec.Struct, frozen=True):
    """The result of a run. `restart_ms`: the time from each kill to the next successful send."""

    seed: int
    what: str
    rounds: int
    struck: int
    report: Report
    restart_ms: tuple[float, ...]
    orphans: tuple[int, ...]
    drained: bool
    findings: tuple[str, ...]
    bugs: tuple[str, ...]
    history: Path | None

    def failures(self) -> list[str]:
        """Why this run failed; empty if it passed."""
        report = self.report
        reasons = [str(violation) for violation in report.violations]
        reasons += [f"fsck: {finding}" for finding in self.findings]
        reasons += [f"status 500: {bug}" for bug in self.bugs]
        reasons += [f"store process {pid} outlived its server" for pid in self.orphans]
        if not self.drained or report.left:
            reasons.append(f"not drained: {report.left} live jobs are left")
        if self.struck < self.rounds:
            reasons.append(f"only {self.struck} of {self.rounds} faults happened: this run shows nothing")
        if report.deliveries == 0:
            reasons.append("nothing was delivered: this run shows nothing")
        if self.rounds and report.under_way + report.unavailable + report.unknown == 0:
            reasons.append("no operation was in progress, refused or unknown at a fault: the faults hit nothing")
        return reasons

    def table(self) -> str:
        """The results, one per line."""
        report, restarts = self.report, self.restart_ms
        back = f"{median(restarts):.0f} ms median, {max(restarts):.0f} ms longest" if restarts else "none"
        rows: list[tuple[str, object]] = [
            ("seed", self.seed),
            ("killed", self.what),
            ("rounds (faults that happened)", f"{self.rounds} ({self.struck})"),
            ("sends acknowledged", report.sends_ok),
            ("deliveries (of them again)", f"{report.deliveries} ({report.redeliveries})"),
            ("jobs acked or cancelled", report.ends_ok),
            ("operations in progress at a kill", report.under_way),
            ("operations refused as unavailable", report.unavailable),
            ("operations of unknown outcome", report.unknown),
            ("unknown sends that had been done", report.recovered),
            ("lost", report.count(Kind.LOST)),
            ("early", report.count(Kind.EARLY)),
            ("delivered after ack or cancel", report.count(Kind.AFTER_DONE, Kind.ALIVE_AFTER_DONE, Kind.ENDED_TWICE)),
            ("two leases at once", report.count(Kind.TWO_LEASES, Kind.HOLDER_REFUSED)),
            ("stale token accepted", report.count(Kind.STALE_TOKEN_OK)),
            ("other violations", self._others()),
            ("live jobs left after the drain", report.left),
            ("fsck findings", len(self.findings)),
            ("orphaned stores", len(self.orphans)),
            ("back in service after", back),
        ]
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)

    def _others(self) -> int:
        shown = {Kind.LOST, Kind.EARLY, Kind.AFTER_DONE, Kind.ALIVE_AFTER_DONE, Kind.ENDED_TWICE}
        shown |= {Kind.TWO_LEASES, Kind.HOLDER_REFUSED, Kind.STALE_TOKEN_OK}
        return sum(1 for violation in self.report.violations if violation.kind not in shown)


class CrashRun:
    """One run in one folder. `run` does everything and always stops what it started."""

    def __init__(
        self, folder: Path, *, rounds: int, seed: int, what: str, workers: int = 1, plan: Plan | None = None
    ) -> None:
        self.rounds, self.seed, self.what = rounds, seed, what
        self.folder = folder
        self.plan = plan or Plan()
        self.recorder = Recorder()
        args = ("--workers", str(workers)) if workers > 1 else ()
        self.server = ServerProcess(folder / "data", args=args)
        self.load = Load(self.plan, [self.server.address], self.recorder, seed)
        self.restart_ms: list[float] = []
        self.orphans: list[int] = []
        self._dice = random.Random(f"{seed}/nemesis")
        self._schedule: list[str] = []
        self._struck = 0

    async def run(self) -> Result:
        try:
            await self.server.start()
            await self.load.start()
            await self.load.acknowledged_reaches(20)
            for number in range(self.rounds):
                await asyncio.sleep(self._dice.uniform(0.02, 0.8))
                await self._round(number)
            await self.load.stop_sending()
            drained = await self.load.drained()
            await self.load.stop()
            final = await self.load.dump()
            await self.server.stop()
        finally:
            await self.load.stop()
            await self.server.kill()
        return await self._judge(final, drained)

    async def _round(self, number: int) -> None:
        what = self._next()
        began_ns = self.recorder.now_ns()
        store = self.server.store_pid()
        if what in ("store", "both"):
            self._struck += kill_store(self.server) is not None
        if what in ("server", "both"):
            await self.server.kill()
        if what == "group":
            await self.server.kill_group()
        if what in ("server", "group"):
            self._struck += 1
        self.recorder.fault(f"round {number}: kill -9 {what}", began_ns)
        if what != "store":
            await self.server.start()
            if store is not None and not await ended(store, 5.0):
                self.orphans.append(store)
        await self._back_in_service(number)
        self.restart_ms.append((self.recorder.now_ns() - began_ns) / 1e6)

    def _next(self) -> str:
        """What to kill now. With `all`, each kind once in every four rounds, in random order."""
        if self.what != "all":
            return self.what
        if not self._schedule:
            self._schedule = self._dice.sample(WHAT[:-1], len(WHAT) - 1)
        return self._schedule.pop()

    async def _back_in_service(self, number: int, timeout_s: float = 30.0) -> None:
        """Retry a send until it succeeds; it is part of the history like any other."""
        probe = RecordingClient(f"probe{number}", *self.server.address, self.recorder, timeout_s=2.0)
        job = Job(f"probe-{number}", b'"probe"')
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    [verdict] = await probe.send(self.plan.topics[0], [job])
                    if verdict.outcome is Outcome.OK:
                        return
                    await asyncio.sleep(0.01)
        finally:
            await probe.close()

    async def _judge(self, final: Final, drained: bool) -> Result:
        report = check(self.recorder.events, final)
        findings = await findings_of(self.server.data)
        result = Result(
            seed=self.seed,
            what=self.what,
            rounds=self.rounds,
            struck=self._struck,
            report=report,
            restart_ms=tuple(self.restart_ms),
            orphans=tuple(self.orphans),
            drained=drained,
            findings=tuple(findings),
            bugs=tuple(self.load.bugs),
            history=None,
        )
        if not result.failures():
            return result
        path = self.folder / "history.jsonl"
        write(path, self.recorder.events, final)
        (self.folder / "server.log").write_text("\n".join(self.server.output))
        return msgspec.structs.replace(result, history=path)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults.crash", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="how many kills (default 20)")
    parser.add_argument("--seed", type=int, default=None, help="same seed, same schedule (default: random)")
    parser.add_argument("--what", choices=WHAT, default="all", help="what is killed (default all: in turn, at random)")
    parser.add_argument("--workers", type=int, default=1, help="server processes (default 1)")
    options = parser.parse_args(argv)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    folder = Path(tempfile.mkdtemp(prefix="dueline-crash-"))
    print(f"crash test: {options.rounds} x kill -9 ({options.what}) under load, seed {seed}", flush=True)
    began = time.monotonic()
    run = CrashRun(folder, rounds=options.rounds, seed=seed, what=options.what, workers=options.workers)
    result = asyncio.run(run.run())
    print(result.table())
    failures = result.failures()
    if not failures:
        shutil.rmtree(folder)
        print(f"green, in {time.monotonic() - began:.0f} s")
        return 0
    for violation in result.report.violations[:5]:
        print(explain(run.recorder.events, violation.topic, violation.id, {}))
    print(f"RED: {len(failures)} failures; history and server log are in {folder}")
    for failure in failures[:20]:
        print(f"  {failure}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
