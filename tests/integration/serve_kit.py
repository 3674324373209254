"""A real `dueline serve` for tests of what people type: its own folder, its own port."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner, Result

from dueline.cli.main import build
from dueline.testing.process import DUELINE, READY
from tests.kit.log_lines import logging_restored


@contextmanager
def served(data: Path, *arguments: str, **variables: str) -> Iterator[str]:
    """The address of a server that runs until the end of the block. `arguments` are added to its command, `variables`
    to its environment."""
    log = data.with_suffix(".log")
    with log.open("w") as stderr:
        server = subprocess.Popen(
            [*DUELINE, "serve", "--listen", "127.0.0.1:0", "--data", str(data), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, **variables},
        )
    with server:
        try:
            assert server.stdout is not None
            ready = READY.search(server.stdout.readline())
            assert ready is not None, log.read_text()
            yield ready[1]
        finally:
            server.terminate()


def typed(*arguments: str, **variables: str) -> Result:
    """What a command line does, in this process: most of a short process is imports. `variables` are added to its
    environment."""
    with logging_restored():  # `work` and `serve` log to the stderr of the command, which is closed afterwards
        return CliRunner().invoke(build(arguments), arguments, env=variables)


def refused_settings(*arguments: str, **variables: str) -> tuple[int, str]:
    """Exit code and stderr of a `serve` that refuses its settings before it opens anything, in this process."""
    said = typed("serve", *arguments, **variables)
    assert said.stdout == ""
    return said.exit_code, said.stderr


def environment(url: str, **more: str) -> dict[str, str]:
    """The environment of a user whose server is at `url`."""
    foreign = ("PYTHONDONTWRITEBYTECODE",)  # a reader's Python keeps its bytecode, which is most of a quick start
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DUELINE_", *foreign))}
    return {**kept, "DUELINE_URL": url, "NO_COLOR": "1", **more}
