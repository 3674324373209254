"""A token revoked under load on three servers, one of them stopped: after the answer nobody accepts it.

A fourth server is the control: it never drops a token, so it must accept the revoked one when it continues. Nothing
happens before every connection was accepted several times: a slow server may hear late of a new token.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dueline import AsyncClient
from dueline.engine.tokens import LEASE_S, MARGIN_S
from dueline.testing.process import DUELINE, READY

from ..kit.raw_http import RawClient, connect
from ..kit.valkey import PrivateValkey
from .serve_kit import typed

CONNECTIONS = 8  # connections per server that send all the time
WARM = 20  # requests that were accepted on each before anything happens
WAIT_S = 120.0  # for slow machines
LATE_CONNECTIONS = 4  # connections per server that are opened after the revocation
LATE = 5  # requests on each connection after the revocation
CONTROL = (sys.executable, "-m", "tests.integration.token_server")
NAMES = ("first", "second", "stopped", "control")


@dataclass
class TimedConnection:
    """One connection: when each request was sent, and the status of its answer."""

    client: RawClient
    request: bytes
    sent_s: list[float] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    accepted: int = 0
    warm: asyncio.Event = field(default_factory=asyncio.Event)

    async def send(self) -> None:
        self.sent_s.append(time.monotonic())
        await self.client.send(self.request)

    async def read(self) -> None:
        """Every answer that is still to come."""
        while len(self.statuses) < len(self.sent_s):
            status = (await self.client.answer()).status
            self.statuses.append(status)
            self.accepted += is_accepted(status)

    async def load(self, over: asyncio.Event) -> None:
        """Send, one after the other, until that is over. `warm` is set when some were accepted."""
        while not over.is_set():
            await self.send()
            await self.read()
            if self.accepted >= WARM:
                self.warm.set()

    def after(self, moment_s: float) -> Counter[int]:
        """The answers to what was sent after a moment."""
        return Counter(status for at_s, status in zip(self.sent_s, self.statuses, strict=True) if at_s > moment_s)


def is_accepted(status: int) -> bool:
    return status < 400


async def warmed(connections: dict[str, list[TimedConnection]]) -> None:
    """Until every connection was accepted. If that does not happen, says what they were answered."""
    warm = asyncio.gather(*(connection.warm.wait() for one in connections.values() for connection in one))
    try:
        await asyncio.wait_for(warm, WAIT_S)
    except TimeoutError:
        answers = {
            name: Counter(status for connection in one for status in connection.statuses)
            for name, one in connections.items()
        }
        pytest.fail(f"the token was not accepted everywhere before its revocation: {answers}")


@pytest.fixture(scope="module")
def valkey() -> Iterator[PrivateValkey]:
    with PrivateValkey() as store:
        yield store


@pytest.fixture
def admin_token(valkey: PrivateValkey) -> str:
    """The first token, made in the store itself."""
    made = typed("token", "create", "ops", "--right", "admin", "--all-namespaces", "--url", valkey.url)
    assert made.exit_code == 0, made.output
    return made.stdout.strip()


@pytest.fixture
def servers(valkey: PrivateValkey, tmp_path: Path) -> Iterator[dict[str, tuple[int, int]]]:
    """Port and pid of each server, all on one store."""
    serve = (*DUELINE, "serve", "--listen", "127.0.0.1:0", "--store", valkey.url)
    commands = {name: (*CONTROL, valkey.url) if name == "control" else serve for name in NAMES}
    processes = {
        name: subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=(tmp_path / f"{name}.log").open("w"),
            text=True,
            env={**os.environ, "DUELINE_SERVER__AUTH": "tokens", "DUELINE_SERVER__LAME_DUCK_MS": "0"},
        )
        for name, command in commands.items()
    }
    try:
        found: dict[str, tuple[int, int]] = {}
        for name, process in processes.items():
            assert process.stdout is not None
            ready = READY.search(process.stdout.readline())
            assert ready is not None, (tmp_path / f"{name}.log").read_text()
            found[name] = int(ready[1].rpartition(":")[2]), process.pid
        yield found
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(WAIT_S)


def send_request(token: str) -> bytes:
    """A send that is not stored again: the id is the same."""
    body = b'{"id":"a","body":1,"delay":"1h"}'
    head = f"POST /v1/topics/t/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def test_no_server_accepts_a_token_after_its_revocation_was_answered(
    servers: dict[str, tuple[int, int]], admin_token: str
) -> None:
    ports = {name: port for name, (port, _) in servers.items()}
    async with AsyncClient(f"http://127.0.0.1:{ports['first']}", token=admin_token) as admin:
        made = await admin.create_token("load", ["send"])
        request = send_request(made.token)
        connections = {
            name: [TimedConnection(await connect(port), request) for _ in range(CONNECTIONS)]
            for name, port in ports.items()
        }
        over = asyncio.Event()
        loading = [asyncio.ensure_future(connection.load(over)) for one in connections.values() for connection in one]
        await warmed(connections)
        for name in ("stopped", "control"):
            os.kill(servers[name][1], signal.SIGSTOP)
        begun_s = time.monotonic()
        await admin.revoke_token(made.id)
        answered_s = time.monotonic()
    over.set()
    for name, port in ports.items():
        for connection in connections[name]:
            for _ in range(LATE):
                await connection.send()
        for _ in range(LATE_CONNECTIONS):
            late = TimedConnection(await connect(port), request)
            connections[name].append(late)
            for _ in range(LATE):
                await late.send()
    for name in ("stopped", "control"):
        os.kill(servers[name][1], signal.SIGCONT)
    await asyncio.wait_for(asyncio.gather(*loading), WAIT_S)
    await asyncio.wait_for(
        asyncio.gather(*(connection.read() for one in connections.values() for connection in one)), WAIT_S
    )

    before = {name: sum(len(connection.statuses) for connection in one) for name, one in connections.items()}
    after = {
        name: sum((connection.after(answered_s) for connection in one), Counter[int]())
        for name, one in connections.items()
    }
    accepted = {name: sum(n for status, n in one.items() if is_accepted(status)) for name, one in after.items()}
    print(f"revoked in {answered_s - begun_s:.2f} s; requests in all {before}; after the answer {after}")
    expected = LATE * (CONNECTIONS + LATE_CONNECTIONS)
    assert {name: one.total() >= expected for name, one in after.items()} == dict.fromkeys(NAMES, True)
    assert {name: n for name, n in accepted.items() if name != "control"} == {"first": 0, "second": 0, "stopped": 0}
    assert accepted["control"] > 0, after
    # 503: the server was too slow to renew its lease, so it refuses every token.
    assert {name: set(one) - {401, 503} for name, one in after.items() if name != "control"} == {
        "first": set(),
        "second": set(),
        "stopped": set(),
    }
    assert answered_s - begun_s >= LEASE_S + MARGIN_S  # it waited for the servers that were stopped
