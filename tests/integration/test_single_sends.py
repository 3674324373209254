"""Sends of a program without an event loop, one after another: on a connection of their own, by a script of their own.

Whatever way a send took, the program sees the same; `ways` only shows that the tests below meet what they mean to.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import redis
import trustme

from dueline import DuelineApiError, InvalidRequest
from dueline.engine.errors import UnknownOutcome
from dueline.engine.fence import Occurrence
from dueline.engine.job import Partition
from dueline.engine.store import Code
from dueline.store.valkey.calls import Calls
from dueline.store.valkey.keys import partition_keys
from dueline.store.valkey.scripts import load_scripts
from dueline.store.valkey.single_sends import SingleSends
from dueline.store.valkey.store import ValkeyStore
from dueline.worker import SyncQueue, connect
from tools.faults.proxy import Cut, FaultProxy

from ..faults.kit import short_folder
from ..kit.store import item
from ..kit.valkey import PrivateValkey

SINGLE_SEND = load_scripts()["send"].sha.encode()


@pytest.fixture(scope="module")
def valkey() -> Iterator[PrivateValkey]:
    store = PrivateValkey()
    store.start()
    yield store
    store.stop()


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What became of each try without a loop: "stored", "left" to the usual way, or "unknown"."""
    seen: list[str] = []
    send = SingleSends.send

    def watched(self: SingleSends, *given: Any) -> Any:
        try:
            result = send(self, *given)
        except UnknownOutcome:
            seen.append("unknown")
            raise
        seen.append("left" if result is None else "stored")
        return result

    monkeypatch.setattr(SingleSends, "send", watched)
    return seen


def test_a_send_says_the_same_whichever_way_it_took(valkey: PrivateValkey, ways: list[str]) -> None:
    with SyncQueue(valkey.url, namespace="same") as queue:
        usual = queue.send("t", {"n": 1}, id="a", at="2030-01-01T00:00:00Z")  # the first one connects
        queue.send("t", {"n": 1}, id="b", at="2030-01-01T00:00:00Z")
        single_send = queue.send("t", {"n": 1}, id="c", at="2030-01-01T00:00:00Z")
        assert ways[-1] == "stored"
        assert (single_send.result, single_send.topic, single_send.state, single_send.due_at_ms) == (
            *(usual.result, usual.topic, usual.state, usual.due_at_ms),
        )
        first, last = queue.get("t", "a"), queue.get("t", "c")
        assert (last.json(), last.due_at_ms, last.max_attempts) == (first.json(), first.due_at_ms, first.max_attempts)
        assert last.version == single_send.version
        assert queue.send("t", {"n": 1}).state == "ready"


def test_what_needs_more_than_a_time_is_left_to_the_usual_way(valkey: PrivateValkey, ways: list[str]) -> None:
    with SyncQueue(valkey.url, namespace="unusual") as queue:
        queue.send("t", 0, id="first")
        queue.send("t", 0, id="second")
        del ways[:]
        assert queue.send("t", 0, id="first").result == "kept"
        with pytest.raises(DuelineApiError) as refused:
            queue.send("t", "another", id="first")
        assert refused.value.code == "id_exists"
        assert queue.send("t", 1, id="first", on_conflict="replace").result == "replaced"
        assert queue.send("t", 1, tags=["red"]).result == "created"
        assert queue.send("t", 1, ttl="1h").result == "created"
        assert queue.send("t", 1, lease="77s").result == "created"  # a policy that the partition does not know yet
        assert ways == ["stored"] * 3 + ["left"] * 2 + ["stored"]
        assert queue.send("t", 1, lease="77s").result == "created"
        assert queue.send("t", 1, merge="key", delay="1h").result == "created"
        assert ways == ["stored"] * 3 + ["left"] * 2 + ["stored"] * 2
        assert queue.cancel("t", "second").result == "cancelled"
        with pytest.raises(DuelineApiError) as ended:
            queue.send("t", 5, id="second")  # its end is remembered
        assert ended.value.code == "id_exists"


def stored(valkey: PrivateValkey, namespace: str) -> int:
    """How many records the partition of the topic "t" has."""
    return redis.from_url(valkey.url).hlen(partition_keys("dueline", Partition(namespace, "t")).keys[1])


def test_bad_input_is_refused_and_stores_nothing(valkey: PrivateValkey) -> None:
    with SyncQueue(valkey.url, namespace="bad") as queue:
        queue.send("t", 0)
        queue.send("t", 0)
        before = stored(valkey, "bad")
        for options, error in (
            ({"id": "no spaces"}, InvalidRequest),
            ({"delay": "400000d"}, DuelineApiError),
            ({"delay": 1, "at": 1}, ValueError),
            ({"colour": "red"}, TypeError),
        ):
            with pytest.raises(error):
                queue.send("t", 1, **options)  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidRequest):
            queue.send("no spaces", 1)
        assert stored(valkey, "bad") == before == 2


def test_threads_that_meet_go_both_ways_and_every_job_is_there_once(valkey: PrivateValkey, ways: list[str]) -> None:
    with SyncQueue(valkey.url, namespace="crowd") as queue:
        queue.send("t", 0, id="first")
        together = threading.Barrier(8)

        def send(number: int) -> None:
            together.wait()
            for n in range(50):
                assert queue.send("t", n, id=f"{number}-{n}").result == "created"

        threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(ways) == {"stored", "left"}
        versions = {queue.get("t", f"{number}-{n}").version for number in range(8) for n in range(50)}
        assert len(versions) == 400


@asynccontextmanager
async def proxied(valkey: PrivateValkey) -> AsyncIterator[tuple[FaultProxy, SyncQueue]]:
    """A queue whose store is behind a proxy."""
    with short_folder() as folder:
        proxy = FaultProxy(Path(valkey.url.removeprefix("unix://")), folder / "p.sock")
        await proxy.start()
        try:
            with SyncQueue(f"unix://{folder}/p.sock", namespace=folder.name) as queue:
                await asyncio.to_thread(queue.send, "t", 0, id="first")
                await asyncio.to_thread(queue.send, "t", 0, id="second")
                yield proxy, queue
                await asyncio.to_thread(queue.close)
        finally:
            await proxy.stop()


@pytest.mark.parametrize("after_bytes", [0, 1, 20])
async def test_a_reply_that_is_lost_leaves_the_job_there_once(
    after_bytes: int, valkey: PrivateValkey, ways: list[str]
) -> None:
    async with proxied(valkey) as (proxy, queue):
        cut = proxy.arm(Cut(SINGLE_SEND, after_bytes))
        sent = await asyncio.to_thread(queue.send, "t", 1, delay="1h")
        assert cut.fired.is_set()
        assert (ways[-1], sent.result) == ("stored", "created")
        found = await asyncio.to_thread(queue.get, "t", sent.id)
        assert (found.state, found.version) == ("scheduled", sent.version)


async def test_a_request_that_is_lost_is_sent_again(valkey: PrivateValkey, ways: list[str]) -> None:
    async with proxied(valkey) as (proxy, queue):
        cut = proxy.arm(Cut(SINGLE_SEND, 10, up=True))
        sent = await asyncio.to_thread(queue.send, "t", 1, delay="1h")
        assert cut.fired.is_set()
        assert (ways[-1], sent.result) == ("stored", "created")


async def pulled(url: str, namespace: str) -> list[str]:
    queue = connect(url, namespace)
    jobs = await queue.pull(["t"], max=10)
    await queue.close()
    return [job.id for job in jobs]


@pytest.mark.parametrize("options", [{"on_conflict": "replace"}, {}], ids=["replace", "plain"])
async def test_a_job_that_was_done_before_its_reply_was_repeated_is_not_made_again(
    options: Any, valkey: PrivateValkey, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply is lost, and a consumer is through with the job before the sender asks again."""

    async with proxied(valkey) as (proxy, queue):
        done: list[str] = []
        namespace = Path(str(proxy.address)).parent.name

        def consume(_: float) -> None:
            done.extend(asyncio.run(pulled(valkey.url, namespace)))

        for id in ("first", "second"):
            await asyncio.to_thread(queue.cancel, "t", id)
        monkeypatch.setattr("dueline.store.valkey.single_sends.sleep", consume)
        proxy.arm(Cut(SINGLE_SEND, 0))
        sent = await asyncio.to_thread(lambda: queue.send("t", 1, id="x", **options))
        assert done == ["x"], "the first try had stored it, and it was delivered"
        assert (sent.result, ways[-1]) == ("created", "stored")
        assert (await asyncio.to_thread(queue.get, "t", "x")).state == "leased", "still the one that was delivered"


async def test_a_repeat_that_finds_a_store_without_scripts_brings_its_own(
    valkey: PrivateValkey, ways: list[str]
) -> None:
    async with proxied(valkey) as (proxy, queue):
        cut = proxy.arm(Cut(SINGLE_SEND, 10, up=True))
        redis.from_url(valkey.url).script_flush()
        sent = await asyncio.to_thread(queue.send, "t", 1, delay="1h")
        assert cut.fired.is_set()
        assert (ways[-1], sent.result) == ("stored", "created")


@pytest.mark.parametrize(
    "words", [{"occurrence": Occurrence("default\0s", 1, 5)}, {"replaces": 0}], ids=["an occurrence", "a schedule"]
)
async def test_what_schedules_send_never_goes_this_way(valkey: PrivateValkey, words: dict[str, Any]) -> None:
    store, partition = ValkeyStore(valkey.url), Partition(f"n{uuid.uuid4().hex}", "t")
    await store.start()
    for id in ("a", "loaded"):
        await store.send(partition, [item(id)])
    single_send = store.single_sends()
    assert single_send is not None
    assert (await asyncio.to_thread(single_send.send, partition, item("b", **words), 0)) is None
    assert (await asyncio.to_thread(single_send.send, partition, item("c"), 0)) is not None
    assert [job and job.id for job in await store.read(partition, ["b", "c"])] == [None, "c"]
    single_send.close()
    await store.stop()


async def test_a_silent_store_is_not_waited_for_longer_than_patience_lasts() -> None:
    with PrivateValkey() as valkey:
        assert valkey.pid is not None
        store = ValkeyStore(valkey.url, reply_timeout_s=0.1, patience_s=0.3)
        pid = valkey.pid
        await store.start()
        partition = Partition("silent", "t")
        for id in ("a", "loaded"):  # the second one loads the script
            assert [one.code for one in await store.send(partition, [item(id)])] == [Code.CREATED]
        single_send = store.single_sends()
        assert single_send is not None
        assert (await asyncio.to_thread(single_send.send, partition, item("b"), 0)) is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(UnknownOutcome):
                await asyncio.wait_for(asyncio.to_thread(single_send.send, partition, item("c"), 0), 20)
        finally:
            os.kill(pid, signal.SIGCONT)
        single_send.close()
        await store.stop()


async def test_a_store_behind_tls_is_sent_to_in_the_same_way(
    tmp_path: Path, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("DUELINE_STORE__TLS__CA", str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)

    with PrivateValkey() as valkey:
        path = valkey.url.removeprefix("unix://")

        async def carried(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
            writer.close()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner_reader, inner_writer = await asyncio.open_unix_connection(path)
            await asyncio.gather(carried(reader, inner_writer), carried(inner_reader, writer), return_exceptions=True)

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        queue = SyncQueue(f"rediss://127.0.0.1:{port}")
        try:
            assert [(await asyncio.to_thread(queue.send, "t", n, delay="1h")).result for n in range(5)] == [
                "created"
            ] * 5
        finally:
            await asyncio.to_thread(queue.close)
            server.close()
    assert "stored" in ways


async def test_connections_that_ended_while_nobody_sent_cost_nothing(valkey: PrivateValkey, ways: list[str]) -> None:
    async with proxied(valkey) as (proxy, queue):
        assert proxy.sever()
        sent = await asyncio.to_thread(queue.send, "t", 1, delay="1h")
        assert sent.result in ("created", "kept")
        assert (await asyncio.to_thread(queue.get, "t", sent.id)).version == sent.version


def test_a_send_that_was_interrupted_leaves_no_reply_to_the_next_one(valkey: PrivateValkey, ways: list[str]) -> None:
    """Ctrl-C, an alarm, a test's time limit: whatever a signal's handler raises comes out of the wait for the reply."""

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    def play(proxy: FaultProxy, queue: SyncQueue, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.run_coroutine_threadsafe(slowed(proxy, 400), loop).result(10)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Interrupted):
            queue.send("t", "first", id="x", delay="1h")
        asyncio.run_coroutine_threadsafe(slowed(proxy, 0), loop).result(10)
        second = queue.send("t", "second", id="y", delay="9h")
        assert (second.id, second.version) == ("y", queue.get("t", "y").version)
        with pytest.raises(DuelineApiError) as refused:
            queue.send("t", "another", id="y", delay="9h")
        assert refused.value.code == "id_exists"

    async def slowed(proxy: FaultProxy, latency_ms: int) -> None:
        proxy.down.latency_ms = latency_ms

    before = signal.signal(signal.SIGALRM, interrupt)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with short_folder() as folder:
            proxy = FaultProxy(Path(valkey.url.removeprefix("unix://")), folder / "p.sock")
            asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(10)
            with SyncQueue(f"unix://{folder}/p.sock", namespace=folder.name) as queue:
                queue.send("t", 0, id="first")
                queue.send("t", 0, id="second")
                play(proxy, queue, loop)
            asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result(10)
    finally:
        signal.signal(signal.SIGALRM, before)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def test_a_store_that_forgot_its_scripts_is_taught_again(valkey: PrivateValkey, ways: list[str]) -> None:
    with SyncQueue(valkey.url, namespace="flushed") as queue:
        queue.send("t", 0)
        queue.send("t", 0)
        redis.from_url(valkey.url).script_flush()
        del ways[:]
        assert [queue.send("t", n).result for n in range(2)] == ["created", "created"]
        assert ways == ["left", "stored"]


def test_the_topic_of_a_lone_send_is_listed_again_when_it_was_forgotten(
    valkey: PrivateValkey, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: SimpleQueue[tuple[Partition, int]] = SimpleQueue()
    heard = Calls.found_unlisted

    def found_unlisted(self: Calls, partition: Partition) -> None:
        heard(self, partition)
        reports.put((partition, threading.get_ident()))

    with SyncQueue(valkey.url, namespace="listed") as queue:
        queue.send("t", 0)
        queue.send("t", 0)
        monkeypatch.setattr(Calls, "found_unlisted", found_unlisted)
        partition = Partition("listed", "t")
        redis.from_url(valkey.url).hdel(partition_keys("dueline", partition).keys[0], "reg")
        queue.send("t", 1)
        assert ways[-1] == "stored"
        found, thread = reports.get(timeout=10)
        assert found == partition
        assert thread != threading.get_ident(), "the engine is notified in its own loop"
