"""Which store's binary: the embedded Valkey, and Debian's Redis if it is there, with the same settings, in turns.

The server uses both as external stores on a unix socket with `appendfsync always`. The embedded binary also runs with
jemalloc, if the system has that library, because it was built with the allocator of the C library.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from dueline.store.valkey.embedded_files import SETTINGS, default_binary
from tests.kit.valkey import SYSTEM_REDIS, PrivateValkey

from ..calls import CallRounds
from ..report import Line
from ..servers import StoreConnection, folder, server
from ..sizes import Sizes
from ..usage import Usage, median

JEMALLOC = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
NOT_HERE = {"port", "unixsocketperm", "daemonize", "databases", "save", "enable-debug-command"}
OPTIONS = tuple(word for key, value in SETTINGS.items() if key not in NOT_HERE for word in (f"--{key}", value))
WORKS = {"send": "a send", "life": "a whole life"}


def stores(sizes: Sizes) -> list[Line]:
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(folder())
        rounds: dict[str, CallRounds] = {}
        for name, binary in _binaries(place).items():
            node = PrivateValkey(options=OPTIONS, binary=binary)
            stack.enter_context(node)
            one = stack.enter_context(server(place / f"server-{len(rounds)}", store=node.url))
            connection = StoreConnection(Path(node.url.removeprefix("unix://")))
            stack.callback(connection.close)
            rounds[f"{name}: {_version(connection)}"] = CallRounds(one, place, list(WORKS), store=connection)
        for number in range(sizes.cpu_rounds + 1):
            for side in rounds.values() if number % 2 else reversed(rounds.values()):
                side.round(number, sizes.cpu_calls)
    first, *_ = rounds.values()
    return [
        line
        for work in WORKS
        for name, side in rounds.items()
        for line in _lines(work, name, side.used[work], None if side is first else first.used[work])
    ]


def _binaries(place: Path) -> dict[str, str]:
    """Programs by name. The allocator is preloaded by a small script, because only the store shall have it."""
    found = {"embedded": str(default_binary())}
    if Path(JEMALLOC).exists():
        script = place / "with-jemalloc"
        script.write_text(f'#!/bin/sh\nLD_PRELOAD={JEMALLOC} exec {default_binary()} "$@"\n')
        script.chmod(0o700)
        found["embedded with jemalloc"] = str(script)
    if SYSTEM_REDIS is not None and shutil.which(SYSTEM_REDIS):
        found["system"] = SYSTEM_REDIS
    return found


def _version(store: StoreConnection) -> str:
    info = store.info()
    name = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
    return f"{name}, {info['mem_allocator']}"


def _lines(work: str, name: str, rounds: Sequence[Usage], first: Sequence[Usage] | None) -> list[Line]:
    used, base = median(rounds), None if first is None else median(first)
    details = {"rounds_us": [one.cpu_us["store"] for one in rounds], "rounds_per_s": [one.per_s for one in rounds]}
    base_us, base_per_s = (None, None) if base is None else (base.cpu_us["store"], base.per_s)
    note = f"server {used.cpu_us['server']:.1f} us"
    return [
        Line(f"CPU of {WORKS[work]}, store {name}", used.cpu_us["store"], "us", base_us, None, note, details),
        Line(f"rate of {WORKS[work]}, store {name}", used.per_s, "/s", base_per_s, details=details),
    ]
