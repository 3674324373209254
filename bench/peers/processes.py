"""The processes of a run: the store, and each contestant's producer and worker. All of them end with this process."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dueline.parent_death import ends_with_parent
from dueline.store.valkey.embedded_files import default_binary
from dueline.testing.process import free_port

from ..broken import Broken
from . import environments
from .contestants import PROGRAMS, Contestant

START_S = 60.0
ANSWER_S = 60.0
STOP_S = 15.0


class Store:
    """The embedded store's binary on a loopback port, shared by all."""

    def __init__(self, place: Path, appendfsync: str) -> None:
        self.port = free_port()
        self._place = place
        self._appendfsync = appendfsync
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database: int) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        self._place.mkdir()
        settings = ("--appendonly", "yes", "--appendfsync", self._appendfsync, "--auto-aof-rewrite-percentage", "0")
        words = [str(default_binary()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *settings]
        with (self._place / "log").open("wb") as log:
            self._process = subprocess.Popen(
                words, cwd=self._place, stdout=log, stderr=log, preexec_fn=ends_with_parent(signal.SIGKILL)
            )
        until_s = time.monotonic() + START_S
        while True:
            try:
                return self._check()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until_s:
                    raise Broken(f"the store did not start: {(self._place / 'log').read_text()[-1000:]}") from None
                time.sleep(0.05)

    def count(self, database: int, *words: str) -> int:
        """The number that a command returns."""
        asked = "".join(f"*{len(line)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in line)
                        for line in (("SELECT", str(database)), words))  # fmt: skip
        with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
            connection.sendall(asked.encode())
            answers = connection.makefile("rb")
            answers.readline()
            number = answers.readline()
        if not number.startswith(b":"):
            raise Broken(f"{' '.join(words)} answered {number!r}")
        return int(number[1:])

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def _check(self) -> None:
        if self.count(0, "DBSIZE"):
            raise Broken("the store is not empty: another program uses this port")


class Producer:
    """A contestant's program. It gets one order at a time and answers when it is done."""

    def __init__(self, contestant: Contestant, variables: Mapping[str, str], log: Path) -> None:
        self.contestant = contestant
        self.ways: list[str] = []
        self._variables = variables
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        python = environments.commands(self.contestant) / "python"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(python), str(PROGRAMS / "contest.py"), self.contestant.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment(self._variables),
                preexec_fn=ends_with_parent(signal.SIGKILL),
            )
        self.ways = self._answer(START_S)["ways"]

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._process.stdin.flush()
        return self._answer(ANSWER_S)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _answer(self, within_s: float) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], within_s)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise Broken(f"{self.contestant.name} did not answer: {self._log.read_text(errors='replace')[-1500:]}")
        answer: dict[str, Any] = msgspec.json.decode(line)
        if "failed" in answer:
            raise Broken(f"{self.contestant.name}: {answer['failed']}")
        return answer


@contextlib.contextmanager
def worker(contestant: Contestant, store_url: str, variables: Mapping[str, str], log: Path) -> Generator[None]:
    """A contestant's worker with its defaults, started as its documentation says, in its own process group."""
    command, *words = (word.format(store=store_url) for word in contestant.worker)
    program = environments.commands(contestant) / command
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(program), *words],
            cwd=PROGRAMS,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment(variables),
            start_new_session=True,
            preexec_fn=ends_with_parent(signal.SIGTERM),
        )
    try:
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Our environment variables, without those of our own virtual environment and settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DUELINE_", "PYTHON"))}
    kept.pop("VIRTUAL_ENV", None)
    return {**kept, **variables, "PYTHONPATH": str(PROGRAMS), "PYTHONDONTWRITEBYTECODE": "1"}
