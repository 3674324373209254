"""Which store's binary and settings: the embedded Valkey's, and those of the system's Redis if it is there, in turns.

The server uses all of them as external stores on a unix socket with `appendfsync always`. Each binary runs with the
settings of the embedded store and with its own. They differ most in when the append-only file is rewritten: at 40 % of
growth from 32 MB, so that a restart reads little, or at 100 % from 64 MB. A rewrite is another process, whose work the
rate of a longer run shows. The embedded binary also runs with one of its settings as Redis has it, so that the one that
makes a difference shows, and with jemalloc, if the system has that library, because it was built with the allocator of
the C library.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from dueline.store.valkey.embedded_files import SETTINGS, default_binary
from tests.kit.valkey import SYSTEM_REDIS, PrivateValkey

from ..calls import CallRounds
from ..report import Line
from ..servers import StoreConnection, folder, server
from ..sizes import Sizes
from ..usage import Meter, Usage, median

JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
NOT_HERE = {"port", "unixsocketperm", "daemonize", "databases", "save", "enable-debug-command"}
OURS = tuple(word for key, value in SETTINGS.items() if key not in NOT_HERE for word in (f"--{key}", value))
THEIRS = ("--appendonly", "yes", "--appendfsync", "always")
REWRITES = ("--auto-aof-rewrite-percentage", "100", "--auto-aof-rewrite-min-size", "64mb")
COMPACT = ("--hash-max-listpack-entries", "512", "--zset-max-listpack-entries", "128")
CALLS = 5  # times those of the cpu row, so that files are rewritten
MOST_CALLS, MOST_ROUNDS = 100_000, 3  # because there are up to seven kinds
WORKS = {"send": "a send", "life": "a whole life"}


def stores(sizes: Sizes) -> list[Line]:
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder())
        rounds: dict[str, CallRounds[Usage]] = {}
        for name, (binary, options) in _kinds(place).items():
            node = PrivateValkey(options=options, binary=binary)
            stack.enter_context(node)
            one = stack.enter_context(server(place / f"server-{len(rounds)}", store=node.url))
            connection = StoreConnection(Path(node.url.removeprefix("unix://")))
            stack.callback(connection.close)
            rounds[f"{_version(connection)}, {name}"] = CallRounds(
                Meter(one, connection).run, one.port, place, list(WORKS)
            )
        for number in range(min(sizes.rounds, MOST_ROUNDS) + 1):
            for side in rounds.values() if number % 2 else reversed(rounds.values()):
                side.round(number, min(MOST_CALLS, sizes.cpu_calls * CALLS))
    first, *_ = rounds.values()
    return [
        line
        for work in WORKS
        for name, side in rounds.items()
        for line in _lines(work, name, side.used[work], None if side is first else first.used[work])
    ]


def _kinds(place: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Binary and options by name. A small script preloads the allocator, because only the store shall have it."""
    embedded = str(default_binary())
    found = {
        "our settings": (embedded, OURS),
        "our settings, but Redis's rewrites": (embedded, (*OURS, *REWRITES)),
        "our settings, but Redis's compact forms": (embedded, (*OURS, *COMPACT)),
        "its own settings": (embedded, THEIRS),
    }
    if Path(JEMALLOC).exists():
        script = place / "with-jemalloc"
        script.write_text(f'#!/bin/sh\nLD_PRELOAD={JEMALLOC} exec {embedded} "$@"\n')
        script.chmod(0o700)
        found["our settings, jemalloc"] = (str(script), OURS)
    if SYSTEM_REDIS is not None:
        found["our settings, the system's"] = (SYSTEM_REDIS, OURS)
        found["its own settings, the system's"] = (SYSTEM_REDIS, THEIRS)
    return found


def _version(store: StoreConnection) -> str:
    info = store.info()
    return f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"


def _lines(work: str, name: str, rounds: Sequence[Usage], first: Sequence[Usage] | None) -> list[Line]:
    used, base = median(rounds), None if first is None else median(first)
    details = {"rounds_us": [one.cpu_us["store"] for one in rounds], "rounds_per_s": [one.per_s for one in rounds]}
    base_us, base_per_s = (None, None) if base is None else (base.cpu_us["store"], base.per_s)
    note = f"server {used.cpu_us['server']:.1f} us"
    return [
        Line(f"CPU of {WORKS[work]}, store: {name}", used.cpu_us["store"], "us", base_us, None, note, details),
        Line(f"rate of {WORKS[work]}, store: {name}", used.per_s, "/s", base_per_s, details=details),
    ]
