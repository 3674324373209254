"""Opening and closing a store (dueline.runtime): what is refused, and what is left when a start is given up."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from dueline.client import DuelineApiError, Patience
from dueline.engine.engine import Engine
from dueline.engine.errors import Unavailable
from dueline.integrations.mounted import MountedServer
from dueline.runtime.access import StoreAccess
from dueline.runtime.locations import FolderStore, StoreLocation
from dueline.runtime.runtime import Runtime
from dueline.server.start_checks import StartRefused
from dueline.store.valkey.embedded import EmbeddedStore, StoreState
from dueline.testing.process import DUELINE, free_port
from dueline.worker.direct import DirectQueue
from tests.kit.valkey import PrivateValkey
from tests.kit.waiting import turns

from .serve_kit import typed

EVICTS = ("--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru")
UNTIL = "at least until all jobs of the namespace have ended and are no longer retained"


# --- stores -------------------------------------------------------------------------------------------------------


@contextmanager
def store_with(*options: str) -> Generator[str]:
    with PrivateValkey(options=options) as store:
        yield store.url


@contextmanager
def node_of_a_cluster() -> Generator[str]:
    bus = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with PrivateValkey(port=free_port(), options=bus) as store:
        yield store.url


@contextmanager
def no_cluster() -> Generator[str]:
    with PrivateValkey(port=free_port()) as store:
        yield store.url.replace("redis://", "redis+cluster://")


def command(url: str, *words: str) -> None:
    with closing(redis.Redis.from_url(url)) as client:
        client.execute_command(*words)


@contextmanager
def store_after(*words: str) -> Generator[str]:
    with store_with() as url:
        command(url, *words)
        yield url


@contextmanager
def old_store() -> Generator[str]:
    """A Valkey that says it is version 6."""
    with store_with() as url, socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_forward, args=(listener, urlsplit(url).path), daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _forward(listener: socket.socket, path: str) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.socket(socket.AF_UNIX)
        server.connect(path)
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with source, sink:
        while data := _received(source):
            sink.sendall(data.replace(b"valkey_version:9.", b"valkey_version:6."))
        sink.close()


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(1 << 20)
    except OSError:
        return b""


@contextmanager
def store_with_other_scope() -> Generator[str]:
    """A store on which a server gave the namespace "n" ids that are unique over all its topics."""

    async def send(url: str) -> None:
        queue = DirectQueue(url, "n", namespace_ids=frozenset({"n"}))
        try:
            await queue.send("mail", 1)
        finally:
            await queue.close()

    with store_with() as url:
        asyncio.run(send(url))
        yield url


# --- openers ------------------------------------------------------------------------------------------------------


def by_the_server(url: str) -> str:
    ended = subprocess.run(
        [*DUELINE, "serve", "--listen", "127.0.0.1:0", "--store", url], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    return ended.stderr.splitlines()[-1].removeprefix("dueline: ")


def by_the_mounted_server(url: str) -> str:
    async def run() -> str:
        with pytest.raises(StartRefused) as refused:
            await MountedServer(store=url, env={}).start()
        return str(refused.value)

    return asyncio.run(run())


def by_a_direct_queue(url: str) -> str:
    async def run() -> str:
        queue = DirectQueue(url, patience=Patience(deadline_s=20))
        try:
            with pytest.raises(DuelineApiError) as refused:
                await queue.send("t", 1)
        finally:
            await queue.close()
        assert refused.value.code == "wrong_store"
        return refused.value.message

    return asyncio.run(run())


def by_the_command_line(url: str) -> str:
    ended = typed("topics", "--url", url, "-o", "json")
    assert (ended.exit_code, ended.stdout) == (1, "")
    return json.loads(ended.stderr)["error"]["message"]


@pytest.mark.parametrize("opened", [by_the_server, by_the_mounted_server, by_a_direct_queue, by_the_command_line])
@pytest.mark.parametrize(
    ("store", "words"),
    [
        pytest.param(
            old_store, r"the store is valkey 6\.[\d.]+; at least Redis 7\.0 or Valkey 7\.2 is needed", id="old"
        ),
        pytest.param(
            lambda: store_with("--replicaof", "127.0.0.1", str(free_port())),
            "the store is a slave: give the address of the primary",
            id="replica",
        ),
        pytest.param(
            node_of_a_cluster,
            r"the store is a node of a Cluster: give its address as redis\+cluster://127\.0\.0\.1:\d+",
            id="node of a Cluster",
        ),
        pytest.param(
            no_cluster, "the store is not a node of a Cluster: give its address as redis://", id="not a Cluster"
        ),
        pytest.param(
            lambda: store_with(*EVICTS),
            'the store may delete jobs when its memory is full: its maxmemory-policy is "allkeys-lru"[.] '
            "Set it to noeviction",
            id="evicts",
        ),
        pytest.param(
            lambda: store_after("ACL", "SETUSER", "default", "-@scripting"),
            r"the store does not let this user call scripts \(EVAL\)",
            id="no scripts",
        ),
        pytest.param(
            lambda: store_after("HSET", "dueline:{directory}:meta", "version", "99"),
            r"the store holds data of version 99, this program reads \d+: use the matching version",
            id="data version",
        ),
        pytest.param(
            store_with_other_scope,
            r'the namespace "n" holds jobs \(topic "mail"\) whose ids are unique over all its topics, and these '
            rf"settings would not find them: set dialects\.\*\.namespace as before, {UNTIL}\. Programs and commands "
            "that open the store themselves have no such setting: give them the URL of a server",
            id="other scope",
        ),
    ],
)
def test_everything_that_opens_a_store_refuses_a_wrong_one_in_the_same_words(
    store: Callable[[], AbstractContextManager[str]], words: str, opened: Callable[[str], str]
) -> None:
    with store() as url:
        said = opened(url)
    assert re.fullmatch(words, said), said


# --- a full store -------------------------------------------------------------------------------------------------


async def test_a_full_store_is_opened_because_only_consumers_can_empty_it() -> None:
    with store_with() as url:
        first, second = DirectQueue(url), DirectQueue(url)
        try:
            await first.send("mail", 1, id="a")
            command(url, "CONFIG", "SET", "maxmemory", "1000")
            with pytest.raises(DuelineApiError, match="full"):
                await first.send("mail", 1, id="b")
            assert [job.id for job in await second.pull(["mail"])] == ["a"]
        finally:
            await first.close()
            await second.close()


def test_a_full_store_that_was_never_used_is_refused() -> None:
    with store_with("--maxmemory", "1000") as url:
        assert by_a_direct_queue(url).startswith("the store refuses writes: ")


# --- stopping -----------------------------------------------------------------------------------------------------


def never(error: Unavailable, elapsed_s: float) -> float:
    raise error


def runtime_at(folder: Path) -> tuple[Runtime, StoreAccess]:
    access = StoreAccess(FolderStore(folder), never)
    return Runtime(access, Engine(access.store)), access


async def test_a_runtime_is_stopped_twice_and_before_its_start(tmp_path: Path) -> None:
    unused, _ = runtime_at(tmp_path)
    runtime, access = runtime_at(tmp_path)
    await runtime.start()
    await unused.stop()
    await access.check()
    await runtime.stop()
    await runtime.stop()


async def test_a_cancelled_start_leaves_nothing_running(tmp_path: Path) -> None:
    runtime, access = runtime_at(tmp_path)
    starting = asyncio.create_task(runtime.start())
    states = list[StoreState | None]()

    def cancel(_: object) -> None:
        states.append(state_of(access.location))
        starting.cancel()

    access.looked = cancel  # its process runs, and it is not checked yet
    with pytest.raises(asyncio.CancelledError):
        await starting
    states.append(state_of(access.location))
    again = EmbeddedStore(tmp_path)
    await again.start()  # raises FolderInUse if the first one still runs
    await again.stop()
    assert (states[0], states[-1]) == (StoreState.READY, StoreState.STOPPED)


def state_of(location: StoreLocation) -> StoreState | None:
    return None if location.status is None else location.status.state


async def test_a_queue_that_is_closed_while_it_connects_tells_its_callers(tmp_path: Path) -> None:
    queue = DirectQueue(f"unix://{tmp_path}/none.sock")
    sending = asyncio.create_task(queue.send("t", 1))
    await turns()  # now it connects
    await queue.close()
    with pytest.raises(DuelineApiError) as refused:
        await sending
    assert refused.value.code == "draining"
