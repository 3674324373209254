"""Dueline beside beanstalkd and BullMQ: single sends and whole lives per second, an fsync for every write.

    dueline      `dueline serve` with its embedded store; HTTP from 64 connections
    beanstalkd   `beanstalkd -b DIR -f 0`; its protocol from 64 connections, by the same load generator
    bullmq       one Node process with 64 adds at once and a worker with concurrency 64, on a Redis of its own with
                 `appendfsync always` (the system's, otherwise the embedded store's binary)
    library      the same with Dueline's Python library and worker: no server, one Python process on such a Redis

A send has a delay of an hour. A life is a send without a delay, a pull and an ack, one job each. BullMQ adds and works
at the same time, so up to 128 of its calls are under way, and its worker asks for the next job in each ack. So
Dueline's server is also measured with 128 connections that ack in the next pull. beanstalkd writes no record of a pull
to its disk, and has neither ids of the sender nor leases that survive a restart. BullMQ's library runs inside the
program that uses it, so two processes do what takes three with a server. The CPU time of each process is counted. All
take turns in every round, in a new order. A program that is not there is left out, and the reason is printed.
"""

from __future__ import annotations

import contextlib
import math
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dueline.parent_death import ends_with_parent
from dueline.testing.process import free_port
from tests.kit.valkey import SYSTEM_REDIS, PrivateValkey

from ..broken import Broken
from ..loading import Orders, run
from ..report import Line, at_least, middle
from ..servers import folder, server
from ..usage import Meter, cpu_s
from . import environments
from .contestants import PROGRAMS

AT_ONCE = 64
BODY_BYTES = 100
START_S = 20.0
RUN_S = 120.0
FSYNC = ("--appendonly", "yes", "--appendfsync", "always")
BULLMQ = ("bullmq@6.7.0", "ioredis@6.0.0")
WORKS = {
    "send": "single sends",
    "life": "whole lives",
    "chained": f"whole lives, ack in the next pull, {2 * AT_ONCE} at once",
}
OURS, LIBRARY = "dueline", "library"
COMPARED = (
    (OURS, "beanstalkd", "send", "send", 4.0),
    (OURS, "beanstalkd", "life", "life", 1.3),
    (OURS, "bullmq", "send", "send", None),
    (OURS, "bullmq", "life", "life", 1.2),
    (OURS, "bullmq", "chained", "life", 1.2),
    (LIBRARY, "bullmq", "send", "send", None),
    (LIBRARY, "bullmq", "life", "life", 1.2),
)
"""Who of us, beside whom, our work, theirs, and how many times their rate is wanted."""


class Round(msgspec.Struct, frozen=True):
    """A rate, and the CPU us that a job cost each process. "load" is the client, which is nobody's product."""

    per_s: float
    cpu_us: Mapping[str, float]


Measure = Callable[[str, int], Round]
"""A work, over this many jobs."""


class Found(msgspec.Struct, frozen=True):
    """The rounds by contestant and work, the version of each contestant, and why others were left out."""

    rounds: Mapping[str, Mapping[str, Sequence[Round]]]
    versions: Mapping[str, str]
    missing: Mapping[str, str]


def measure(rounds: int, jobs: int) -> Found:
    missing: dict[str, str] = {}
    versions: dict[str, str] = {}
    starts = {OURS: _dueline, LIBRARY: _library, "beanstalkd": _beanstalkd, "bullmq": _bullmq}
    with contextlib.ExitStack() as stack:
        measures: dict[str, Measure] = {}
        for name, start in starts.items():
            try:
                versions[name], measures[name] = start(stack)
            except Missing as reason:
                missing[name] = str(reason)
        works = {name: [work for work in WORKS if name == OURS or work != "chained"] for name in measures}
        found: dict[str, dict[str, list[Round]]] = {name: {work: [] for work in works[name]} for name in measures}
        order = random.Random(3)
        for number in range(rounds + 1):  # the first one warms up
            turns = [(name, work) for name in measures for work in works[name]]
            order.shuffle(turns)
            for name, work in turns:
                one = measures[name](work, jobs if number else jobs // 5)
                if number:
                    found[name][work].append(one)
    return Found(found, versions, missing)


def lines(found: Found) -> list[Line]:
    """Our rates, each beside that of a contestant."""
    return [_line(found, *pair) for pair in COMPARED if pair[1] in found.rounds]


def _line(found: Found, who: str, beside: str, work: str, their_work: str, wanted: float | None) -> Line:
    ours, theirs = found.rounds[who][work], found.rounds[beside][their_work]
    own_us, base_us = _cpu_us(ours), _cpu_us(theirs)
    note = f"{found.versions[who]}: {_spent(own_us)}; base: {found.versions[beside]}: {_spent(base_us)} us of CPU"
    details = {
        "rounds": [one.per_s for one in ours],
        "base_rounds": [one.per_s for one in theirs],
        "cpu_us": own_us,
        "base_cpu_us": base_us,
    }
    target = None if wanted is None else at_least(wanted)
    what = WORKS[work] if who == OURS else f"{WORKS[work]} by the Python library"
    rate, base = (middle([one.per_s for one in rounds]) for rounds in (ours, theirs))
    return Line(f"{what}, beside {beside}", rate, "/s", base, target, note, details)


def _cpu_us(rounds: Sequence[Round]) -> dict[str, float]:
    return {part: middle([one.cpu_us[part] for one in rounds]) for part in rounds[0].cpu_us}


def _spent(cpu_us: Mapping[str, float]) -> str:
    return " + ".join(f"{part} {us:.0f}" for part, us in cpu_us.items())


class Missing(Exception):
    """A contestant is not on this machine."""


def _dueline(stack: contextlib.ExitStack) -> tuple[str, Measure]:
    one = stack.enter_context(server())
    meter, topics = Meter(one), iter(range(1_000_000))

    def measured(work: str, jobs: int) -> Round:
        at_once = 2 * AT_ONCE if work == "chained" else AT_ONCE
        orders = Orders(work, port=one.port, topic=f"{work}-{next(topics)}", connections=at_once, count=jobs)
        used = meter.run(orders)
        return Round(used.per_s, used.cpu_us)

    return f"dueline with Valkey {one.store().info('server')['valkey_version']}", measured


def _library(stack: contextlib.ExitStack) -> tuple[str, Measure]:
    store = _store(stack)
    program = (sys.executable, str(PROGRAMS / "with_dueline_life.py"))

    def measured(work: str, jobs: int) -> Round:
        return _run_program(program, {"work": work, "url": store.url, "count": jobs}, store, "python", None)

    return f"dueline's Python library, {_store_version()}", measured


def _beanstalkd(stack: contextlib.ExitStack) -> tuple[str, Measure]:
    program = shutil.which("beanstalkd")
    if program is None:
        raise Missing("beanstalkd is not on the PATH (Debian: apt-get install beanstalkd)")
    version = subprocess.run([program, "-v"], capture_output=True, text=True, check=True).stdout.strip()
    place, port = stack.enter_context(folder()), free_port()
    words = [program, "-l", "127.0.0.1", "-p", str(port), "-b", str(place), "-f", "0"]
    process = subprocess.Popen(words, preexec_fn=ends_with_parent(signal.SIGKILL))
    stack.callback(_end, process)
    _wait_for(port)

    def measured(work: str, jobs: int) -> Round:
        orders = Orders(work, protocol="beanstalkd", port=port, connections=AT_ONCE, count=jobs)
        before_s = cpu_s(process.pid)
        done = run(msgspec.structs.replace(orders, delay_ms=(0, 0)) if work == "life" else orders)
        cpu_us = {"server": 1e6 * (cpu_s(process.pid) - before_s) / jobs, "load": 1e6 * done.cpu_s / jobs}
        return Round(done.per_s, cpu_us)

    return f"{version}, -f 0", measured


def _bullmq(stack: contextlib.ExitStack) -> tuple[str, Measure]:
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        raise Missing("node and npm are not on the PATH")
    place = environments.node_modules("bullmq", BULLMQ)
    store = _store(stack)
    program = (node, str(PROGRAMS / "with_bullmq.mjs"))
    node_version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()

    def measured(work: str, jobs: int) -> Round:
        return _run_program(program, {"work": work, "port": store.port, "count": jobs}, store, "node", place)

    return f"{' '.join(BULLMQ)}, Node {node_version}, {_store_version()}", measured


def _store(stack: contextlib.ExitStack) -> PrivateValkey:
    return stack.enter_context(PrivateValkey(port=free_port(), options=FSYNC, binary=SYSTEM_REDIS))


def _store_version() -> str:
    if SYSTEM_REDIS is None:
        return "embedded Valkey"
    words = ["redis-server", "--version"]
    done = subprocess.run(words, executable=SYSTEM_REDIS, capture_output=True, text=True, check=True)
    return done.stdout.split(" sha=")[0]


def _run_program(
    program: Sequence[str], orders: Mapping[str, Any], store: PrivateValkey, part: str, place: Path | None
) -> Round:
    """A program that makes and works the jobs itself. It begins with a tenth of them, which its store did, too."""
    assert store.pid is not None
    given = msgspec.json.encode({**orders, "at_once": AT_ONCE, "body_bytes": BODY_BYTES}).decode()
    before_s, count = cpu_s(store.pid), orders["count"]
    done = subprocess.run([*program, given], cwd=place, capture_output=True, text=True, timeout=RUN_S, check=False)
    if done.returncode:
        raise Broken(f"{Path(program[1]).name} said: {(done.stdout + done.stderr)[-1500:]}")
    answer: dict[str, Any] = msgspec.json.decode(done.stdout)
    store_us = 1e6 * (cpu_s(store.pid) - before_s) / (count + math.ceil(count / 10))
    return Round(answer["done"] / answer["seconds"], {part: 1e6 * answer["cpu_s"] / count, "store": store_us})


def _wait_for(port: int) -> None:
    until_s = time.monotonic() + START_S
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise Broken(f"nothing listens on port {port}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()
