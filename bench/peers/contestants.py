"""The contestants: the packages of each, the program that sends for it, and how its worker starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

PROGRAMS = Path(__file__).with_name("programs")
PARSER = "hiredis==3.5.0"  # the fast reply parser for everyone; Dueline's server installs it too


class Contestant(msgspec.Struct, frozen=True):
    """`packages`: what its environment contains; empty for our own environment. `worker`: its command, relative to the
    environment's command folder. `stored`: the store command that counts its waiting jobs. `at_once`: how it sends 50
    at once."""

    name: str
    module: str
    packages: Sequence[str]
    shown: Sequence[str]
    worker: Sequence[str]
    database: int
    stored: Sequence[str] = ()
    at_once: str = "threads"

    @property
    def ours(self) -> bool:
        return not self.packages


def _run(module: str) -> tuple[str, ...]:
    return ("python", "-c", f"import {module}; {module}.worker.run()")


CONTESTANTS = (
    Contestant(
        "celery",
        "with_celery",
        ("celery[redis]==5.7.0", "redis==8.1.0", PARSER),
        ("celery", "kombu", "redis"),
        ("celery", "-A", "with_celery", "worker", "--loglevel", "WARNING"),
        1,
        ("LLEN", "celery"),
    ),
    Contestant(
        "rq",
        "with_rq",
        ("rq==2.12.0", "redis==8.1.0", PARSER),
        ("rq", "redis"),
        ("rq", "worker", "--with-scheduler", "--url", "{store}"),
        2,
        ("ZCARD", "rq:scheduled:default"),
    ),
    Contestant(
        "arq",
        "with_arq",
        ("arq==0.28.0", "redis==5.3.1", PARSER),
        ("arq", "redis"),
        ("arq", "with_arq.WorkerSettings"),
        3,
        ("ZCARD", "arq:queue"),
        "tasks",
    ),
    Contestant(
        "dramatiq",
        "with_dramatiq",
        ("dramatiq[redis]==2.2.1", "redis==8.1.0", PARSER),
        ("dramatiq", "redis"),
        ("dramatiq", "with_dramatiq"),
        4,
        ("HLEN", "dramatiq:default.DQ.msgs"),
    ),
    Contestant(
        "huey",
        "with_huey",
        ("huey==3.5.4", "redis==8.1.0", PARSER),
        ("huey", "redis"),
        ("huey_consumer", "with_huey.huey"),
        5,
        ("LLEN", "huey.redis.contest"),  # a worker moves the tasks to the schedule
    ),
    Contestant(
        "dueline direct",
        "with_dueline_direct",
        (),
        ("dueline", "redis"),
        _run("with_dueline_direct"),
        0,
        at_once="tasks",
    ),
    Contestant("dueline http", "with_dueline_http", (), ("dueline",), _run("with_dueline_http"), 0, at_once="tasks"),
)
HERE = Path(sys.executable).parent  # the commands of our own environment
