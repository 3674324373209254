"""A program of a test's own, watched by what it prints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class Program:
    """A running program. Its output is read line by line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def until(self, text: str) -> str:
        """Wait for a line that has this text in it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if text in line:
                return line
        raise AssertionError(f"it ended without {text!r}:\n" + "".join(self.lines))

    def end(self) -> int:
        """SIGTERM, and its exit code."""
        self.process.terminate()
        assert self.process.stdout is not None
        self.lines += self.process.stdout.readlines()
        return self.process.wait(30)


@contextmanager
def running(folder: Path, args: Sequence[str], **variables: str) -> Iterator[Program]:
    """python ARGS in `folder`, killed at the end if it still runs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DUELINE_", "DJANGO_", "FLASK_"))}
    process = subprocess.Popen(
        [sys.executable, "-u", *args],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**kept, **variables},
    )
    with process:
        try:
            yield Program(process)
        finally:
            if process.poll() is None:
                process.kill()
