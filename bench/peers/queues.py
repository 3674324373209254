"""Dueline's server beside beanstalkd and BullMQ: single sends and whole lives per second, an fsync for every write.

    dueline      `dueline serve` with its embedded store; HTTP from 64 connections
    beanstalkd   `beanstalkd -b DIR -f 0`; its protocol from 64 connections, by the same load generator
    bullmq       one Node process with 64 adds at once and a worker with concurrency 64, on a Redis of its own with
                 `appendfsync always` (the system's, otherwise the embedded store's binary)

A send has a delay of an hour. A life is a send without a delay, a pull and an ack, one job each. beanstalkd writes no
record of a pull to its disk, and has neither ids of the sender nor leases that survive a restart. BullMQ's library runs
inside the program that uses it, so it has no server to call. All take turns in every round, in a new order. A program
that is not there is left out, and the reason is printed.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from dueline.parent_death import ends_with_parent
from dueline.testing.process import free_port
from tests.kit.valkey import SYSTEM_REDIS, PrivateValkey

from ..broken import Broken
from ..loading import Orders, run
from ..report import Line, at_least, middle
from ..servers import folder, server
from . import environments
from .contestants import PROGRAMS

AT_ONCE = 64
BODY_BYTES = 100
START_S = 20.0
RUN_S = 120.0
FSYNC = ("--appendonly", "yes", "--appendfsync", "always")
BULLMQ = ("bullmq@6.7.0", "ioredis@6.0.0")
WORKS = {"send": "single sends", "life": "whole lives"}
WANTED = {("beanstalkd", "send"): 4.0, ("beanstalkd", "life"): 1.3, ("bullmq", "life"): 1.2}

Measure = Callable[[str, int], float]
"""The rate of a work, over so many jobs."""


class Found(msgspec.Struct, frozen=True):
    """Rates by contestant and work, the version of each contestant, and why others were left out."""

    per_s: Mapping[str, Mapping[str, Sequence[float]]]
    versions: Mapping[str, str]
    missing: Mapping[str, str]


def measure(rounds: int, jobs: int) -> Found:
    missing: dict[str, str] = {}
    versions: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        measures: dict[str, Measure] = {}
        for name, start in {"dueline": _dueline, "beanstalkd": _beanstalkd, "bullmq": _bullmq}.items():
            try:
                versions[name], measures[name] = start(stack)
            except Missing as reason:
                missing[name] = str(reason)
        per_s: dict[str, dict[str, list[float]]] = {name: {work: [] for work in WORKS} for name in measures}
        order = random.Random(3)
        for number in range(rounds + 1):  # the first one warms up
            turns = [(name, work) for name in measures for work in WORKS]
            order.shuffle(turns)
            for name, work in turns:
                rate = measures[name](work, jobs if number else jobs // 5)
                if number:
                    per_s[name][work].append(rate)
    return Found(per_s, versions, missing)


def lines(found: Found) -> list[Line]:
    """Dueline's rates, each beside that of a contestant."""
    ours = found.per_s["dueline"]
    return [
        _line(name, work, ours[work], rates[work], f"{found.versions['dueline']}; base: {found.versions[name]}")
        for name, rates in found.per_s.items()
        if name != "dueline"
        for work in WORKS
    ]


def _line(name: str, work: str, ours: Sequence[float], theirs: Sequence[float], note: str) -> Line:
    wanted = WANTED.get((name, work))
    target = None if wanted is None else at_least(wanted)
    details = {"rounds": ours, "base_rounds": theirs}
    return Line(f"{WORKS[work]}, beside {name}", middle(ours), "/s", middle(theirs), target, note, details)


class Missing(Exception):
    """A contestant is not on this machine."""


def _dueline(stack: contextlib.ExitStack) -> tuple[str, Measure]:
    one = stack.enter_context(server())
    topics = iter(range(1_000_000))

    def measured(work: str, jobs: int) -> float:
        orders = Orders(work, port=one.port, topic=f"{work}-{next(topics)}", connections=AT_ONCE, count=jobs)
        return run(orders).per_s

    return f"dueline with Valkey {one.store().info('server')['valkey_version']}", measured


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

    def measured(work: str, jobs: int) -> float:
        orders = Orders(work, protocol="beanstalkd", port=port, connections=AT_ONCE, count=jobs)
        return run(msgspec.structs.replace(orders, delay_ms=(0, 0)) if work == "life" else orders).per_s

    return f"{version}, -f 0", measured


def _bullmq(stack: contextlib.ExitStack) -> tuple[str, Measure]:
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        raise Missing("node and npm are not on the PATH")
    place = environments.node_modules("bullmq", BULLMQ)
    store = PrivateValkey(port=free_port(), options=FSYNC, binary=SYSTEM_REDIS)
    stack.enter_context(store)
    program = (
        SYSTEM_REDIS
        and subprocess.run(
            ["redis-server", "--version"], executable=SYSTEM_REDIS, capture_output=True, text=True, check=True
        ).stdout.split(" sha=")[0]
    )
    node_version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout.strip()

    def measured(work: str, jobs: int) -> float:
        orders = {"work": work, "port": store.port, "at_once": AT_ONCE, "count": jobs, "body_bytes": BODY_BYTES}
        words = [node, str(PROGRAMS / "with_bullmq.mjs"), msgspec.json.encode(orders).decode()]
        done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=RUN_S, check=False)
        if done.returncode:
            raise Broken(f"BullMQ said: {(done.stdout + done.stderr)[-1500:]}")
        answer: dict[str, Any] = msgspec.json.decode(done.stdout)
        return answer["done"] / answer["seconds"]

    return f"{' '.join(BULLMQ)}, Node {node_version}, {program or 'embedded Valkey'}", measured


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
