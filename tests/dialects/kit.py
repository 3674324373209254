"""What dialect tests share: one real `dueline serve` per dialect, a client that speaks in bytes, cases side by side.

    async def test_case_015_...(camellia: Camellia) -> None:      # one argument: the dialect's session fixture

The coroutine tests of a file that take the same fixture run at the same time on one loop (conftest); each has topics of
its own. So the timed cases of a file cost as much as the longest of them.

DUELINE_TEST_AUTH=path runs the servers with tokens, and every client has its token in front of its paths.
DUELINE_TEST_STORE=URL runs the servers on this store, for example on a Cluster.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import threading
import time
import uuid
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from dueline.cli.direct import StoreClient
from dueline.client import Patience
from dueline.dialects.table import DIALECTS
from tests.kit.waiting import until
from tools.faults.server_process import ServerProcess

from ..kit.raw_http import Answer, RawClient, connect

T = TypeVar("T")
PATIENCE_S = 60.0
LOOK_S = 0.02
PATH_TOKENS = {f"DUELINE_DIALECTS__{spec.name.upper()}__AUTH": "path" for spec in DIALECTS if spec.name != "native"}
NOWHERE = {"scheduled": 0, "ready": 0, "leased": 0, "done": 0, "dead": 0, "cancelled": 0}
_HEAD = re.compile(rb"(?P<method>[A-Z]+) (?P<path>/\S*)(?P<rest> HTTP/1\.[01]\r\n)")
_numbers = itertools.count(1)


class Runner:
    """An event loop in a thread of its own, for a whole test session."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dialect tests", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.submit(work).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Client:
    """One keep-alive connection. It is never opened a second time: a server that closes it is found out. `token`:
    stands in front of every path, as if it were part of the server's address; the native API gets it in a header."""

    def __init__(self, port: int, token: str | None = None, source: str | None = None) -> None:
        self._port = port
        self._token = token
        self._source = source
        self._client: RawClient | None = None

    async def ask(
        self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        lines = {"Host": f"127.0.0.1:{self._port}", "Content-Length": str(len(body)), **(headers or {})}
        head = f"{method} {target} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return await self.raw(head.encode() + b"\r\n" + body)

    async def raw(self, data: bytes) -> Answer:
        """Send these very bytes (and the token, if there is one), read one answer."""
        if self._client is None:
            self._client = await connect(self._port, source=self._source)
        async with asyncio.timeout(PATIENCE_S):
            return await self._client.ask(data if self._token is None else _HEAD.sub(self._add_token, data))

    def _add_token(self, head: re.Match[bytes]) -> bytes:
        token = (self._token or "").encode()
        if head["path"].startswith((b"/v1/", b"/metrics")):
            return head[0] + b"Authorization: Bearer " + token + b"\r\n"
        return head["method"] + b" /" + token + head["path"] + head["rest"]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


@dataclass
class RunningServer:
    """A running server as tests see it."""

    server: ServerProcess
    clients: list[Client] = field(default_factory=list)
    token: str | None = None  # of its clients

    def client(self, port: int | None = None) -> Client:
        self.clients.append(Client(self.server.port if port is None else port, self.token))
        return self.clients[-1]

    async def logged(self, *words: str) -> dict[str, Any]:
        """The first line of the log that has all these words, when it is there."""

        def look() -> str | None:
            lines = (line for line in self.server.output if line.startswith("{"))
            return next((line for line in lines if all(word in line for word in words)), None)

        return json.loads(await until(look, within_s=PATIENCE_S) or "")

    def topic(self) -> str:
        """A topic that no other test has."""
        return f"topic-{next(_numbers)}"

    async def stop(self) -> None:
        for client in self.clients:
            client.close()
        await self.server.stop()


async def serve(data: Path, env: Mapping[str, str] | None = None, args: Sequence[str] = ()) -> RunningServer:
    """Start a private server. `env`: its configuration, as DUELINE_... variables."""
    if os.environ.get("DUELINE_TEST_AUTH") == "path":
        return await serve_with_tokens(data, {**PATH_TOKENS, **(env or {})}, args)
    if (url := os.environ.get("DUELINE_TEST_STORE")) is not None:
        return await serve_on(url, data, env, args)
    server = ServerProcess(data, env=env, args=args)
    await server.start()
    return RunningServer(server)


async def serve_on(
    url: str, data: Path, env: Mapping[str, str] | None = None, args: Sequence[str] = ()
) -> RunningServer:
    """Start a private server on a store that others use, too: it has a prefix of its own."""
    server = ServerProcess(
        data, env={"DUELINE_STORE__PREFIX": uuid.uuid4().hex, **(env or {})}, args=args, store_url=url
    )
    await server.start()
    return RunningServer(server)


async def serve_with_tokens(data: Path, env: Mapping[str, str], args: Sequence[str] = ()) -> RunningServer:
    """Start a private server that checks tokens. Its clients have one with all rights."""
    server = ServerProcess(data, env={"DUELINE_SERVER__AUTH": "tokens", **env}, args=args)
    await server.start()
    return RunningServer(server, token=await asyncio.to_thread(_admin_token, data))


def _admin_token(data: Path) -> str:
    with StoreClient(f"embedded:{data}", None, Patience()) as store:
        return store.create_token("tests", ["admin"], namespace="*").token


class NativeView:
    """The state behind a dialect, as the native API tells it."""

    client: Client
    namespace: str

    async def job(self, topic: str, id: str) -> dict[str, Any] | None:
        return await self._native(f"/v1/topics/{quote(topic, safe='')}/jobs/{quote(id, safe='')}")

    async def counts(self, topic: str) -> dict[str, int]:
        """How many jobs of a topic are in which state. All zero: nothing can ever be delivered there."""
        found = await self._native(f"/v1/topics/{quote(topic, safe='')}")
        return NOWHERE if found is None else found["counts"]

    async def until(self, topic: str, **counts: int) -> None:
        """Wait until the jobs of a topic stand like this, and there are no others: no more can come than is said."""
        await until(lambda: self.counts(topic), lambda found: found == {**NOWHERE, **counts}, within_s=PATIENCE_S)

    async def _native(self, path: str) -> Any:
        answer = await self.client.ask("GET", path, headers={"Dueline-Namespace": self.namespace})
        assert answer.status in (200, 404), answer
        return answer.json() if answer.status == 200 else None


class AnyValue:
    """Stands in an expected answer for every value of one type that passes a check."""

    def __init__(self, kind: type, check: Any = None) -> None:
        self._kind = kind
        self._check = check

    def __eq__(self, other: object) -> bool:
        return type(other) is self._kind and (self._check is None or bool(self._check(other)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<some {self._kind.__name__}>"


async def after(moment_ms: int) -> None:
    """Return when the store's clock is past this moment, even as the server knows it."""
    while (rest_ms := moment_ms + 20 - now_ms()) > 0:  # noqa: ASYNC110 - only time passes
        await asyncio.sleep(rest_ms / 1000)


def now_ms() -> int:
    """The store runs on this machine, so this is its clock."""
    return time.time_ns() // 1_000_000
