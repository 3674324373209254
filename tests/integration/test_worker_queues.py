"""The ways to a queue are one: over HTTP, straight on a store, embedded. And a pull that is left wastes nothing."""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dueline import AsyncClient, Client, DuelineApiError, NewJob, new_job
from dueline.api.requests import Merge
from dueline.client.address import addresses_of
from dueline.client.async_connection import AsyncConnection
from dueline.client.calls import Leased, json_body
from dueline.client.patience import Patience
from dueline.engine.errors import StoreDown, UnknownOutcome
from dueline.engine.job import Partition
from dueline.engine.store import SendItem
from dueline.store.valkey.store import ValkeyStore
from dueline.worker import Context, Queue, SyncQueue, Worker, connect
from dueline.worker.direct import DirectQueue
from dueline.worker.queue import resolved
from tests.kit.waiting import turns

from ..faults.kit import short_folder
from ..kit.valkey import PrivateValkey
from .scripted_server import CUT, ScriptedServer, answer
from .serve_kit import served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("w") / "data") as url:
        yield url


@pytest.fixture(scope="module")
def valkey() -> Iterator[PrivateValkey]:
    with PrivateValkey() as store:
        yield store


@asynccontextmanager
async def opened(url: str, **options: Any) -> Any:
    queue = connect(url, **options)
    try:
        yield queue
    finally:
        await queue.close()


VARIES = ("lease", "lease_until_ms", "due_at_ms", "created_at_ms", "updated_at_ms", "ended_at_ms")


def plain(value: Any) -> Any:
    """An answer without what differs from run to run: tokens and moments (those that are there stay there)."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, msgspec.Struct):
        shown = msgspec.structs.asdict(value)
        masked = {name: "*" for name in (*VARIES, "expires_at_ms", "retain_until_ms") if shown.get(name)}
        return {"": type(value).__name__} | {name: plain(one) for name, one in shown.items()} | masked
    return bytes(value) if isinstance(value, Raw) else value


async def tell(call: Any) -> Any:
    try:
        return plain(await call)
    except DuelineApiError as error:
        return type(error).__name__, error.code, error.field


async def everything(queue: Queue) -> list[Any]:
    """Every method, with success and with refusal."""
    said = [
        await tell(queue.send("t", {"a": 1.0}, id="a", tags=["x"], headers={"k": "v"}, retry=["1m", "90s"])),
        await tell(queue.send("t", {"a": 1.0}, id="a", tags=["x"], headers={"k": "v"}, retry=["1m", "90s"])),
        await tell(queue.send("t", "other", id="a")),
        await tell(queue.send("t", "other", id="a", on_conflict="keep")),
        await tell(queue.send("t", b"\x00\xff", id="b", lease="5m", ttl="1h", max_attempts=None)),
        await tell(queue.send("t", 1, id="once", retry="none", delay="1h")),
        await tell(queue.get("t", "once")),
        await tell(queue.send("t", "té", id="c", retry={"base_ms": 500, "jitter": 0.5}, max_attempts=7)),
        await tell(queue.send("t", [1], id="late", at="2030-01-01T00:00:00.0005Z")),
        await tell(queue.send("m", 1, merge={"key": "k", "quiet": "1h", "max_items": 2})),
        await tell(queue.send_many("t", [new_job(n, id=f"n{n}") for n in range(3)] + [new_job(9, id="a")])),
        await tell(queue.send("t", 1, id="no space")),
        await tell(queue.send("no topic", 1, id="x")),
        await tell(queue.send("t", 1, retry=["soon"])),
        await tell(queue.send("t", 1, retry={"factor": 2})),
        await tell(queue.send("t", 1, retry=[])),
        await tell(queue.send("t", 1, headers={"Dueline-Url": "http://x"})),
        await tell(queue.send("t", 1, tags=["same", "same"])),
        await tell(queue.send("t", "x" * 300_000, id="big")),
        await tell(queue.get("t", "a")),
        await tell(queue.get("t", "nobody")),
        await tell(queue.reschedule("t", "late", delay="2h")),
        await tell(queue.reschedule("t", "nobody", delay="2h")),
        await tell(queue.cancel("t", "late")),
        await tell(queue.cancel("t", "nobody")),
    ]
    leased = list(await queue.pull(["u", "t"], 10, 60_000, 0))
    said += [plain(leased), plain(await queue.pull(["u"], 1, None, 0)), await tell(queue.pull([], 1))]
    by_id = {job.id: job for job in leased}
    said += [
        await tell(queue.extend([by_id["a"], by_id["b"]], 120_000)),
        await tell(queue.ack([by_id["a"], Leased("t", "b", "wrong"), Leased("u", "nobody", "x")])),
        await tell(queue.release([by_id["b"]], 60_000, "later", True)),
        await tell(queue.release([by_id["c"]], None, "gone", True, True)),
        await tell(queue.release([by_id["n0"]], 0, None, False)),
        await tell(queue.release([by_id["n1"]], None, "x" * 5000)),
        await tell(queue.cancel("t", "a")),
        await tell(queue.propose_policy("p", {"lease": "5s", "ttl": "1h", "max_attempts": 3, "retry": ["60s"]})),
        await tell(queue.propose_policy("p", {"retry": "none"})),
        await tell(queue.propose_policy("p", {"retry": {"base_ms": 5}, "max_attempts": 4})),
        await tell(queue.propose_policy("p", {"max_attempts": 0})),
        await tell(queue.propose_policy("p", {"retry": ["soon"]})),
        await tell(queue.propose_policy("no topic", {"retry": "none"})),
        await tell(queue.send("p", 1, id="p")),
        await tell(queue.get("p", "p")),
        *[await tell(queue.get("t", id)) for id in ("a", "b", "c", "n0", "n1", "late")],
    ]
    return said


async def test_a_store_without_a_server_answers_exactly_as_a_server_does(server: str, valkey: PrivateValkey) -> None:
    transcripts: list[list[Any]] = []
    for url in (server, valkey.url):
        async with opened(url, namespace="same") as queue:
            transcripts.append(await everything(queue))
    for over_http, direct in zip(*transcripts, strict=True):
        merged = [
            {**one, "id": "*"} if isinstance(one, dict) and one.get("items_count") else one
            for one in (over_http, direct)
        ]
        assert merged[0] == merged[1]


@pytest.mark.parametrize("way", ["server", "store"])
async def test_a_handlers_policy_holds_for_jobs_of_any_client(way: str, server: str, valkey: PrivateValkey) -> None:
    url = server if way == "server" else valkey.url
    worker = Worker(url, namespace="policies")
    seen: list[int] = []

    @worker.handles("t", max_attempts=3, retry="none")
    async def handle(n: int, context: Context) -> None:
        seen.append(context.attempt)
        raise LookupError

    async with worker, opened(url, namespace="policies") as queue:
        await queue.send("t", 1, id="a")
        async with asyncio.timeout(20):
            while (job := await queue.get("t", "a")).state != "dead":
                await queue.pull(["nothing"], wait_ms=20)
    assert (job.attempts, job.max_attempts, job.retry, seen) == (3, 3, "none", [1, 2, 3])


def test_a_server_that_forbids_to_set_topics_is_sent_to_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    forbidden = answer(403, b'{"error":{"code":"forbidden","message":"the token may not do this","field":null}}')
    sent = answer(201, b'{"id":"a","topic":"t","result":"created","state":"ready","due_at_ms":1,"version":1}')
    with ScriptedServer([forbidden, sent]) as refusing:
        worker = Worker(refusing.url)
        handle = worker.handles("t", max_attempts=3)(print)
        assert handle.send(1, id="a").result == handle.send(1, id="a").result == "created"
        worker.close()
    asked, first, second = refusing.requests
    assert asked.startswith(b"PUT /v1/topics/t ")
    assert b'"set_by":"worker"' in asked
    assert b'"max_attempts":3' in first
    assert b'"max_attempts":3' in second
    assert "the policy of t could not be set" in caplog.text


async def test_any_number_of_jobs_may_be_sent_and_settled_at_once(valkey: PrivateValkey, server: str) -> None:
    for url in (valkey.url, server):
        async with opened(url, namespace="many") as queue:
            sent = await queue.send_many("t", (new_job(n, id=str(n)) for n in range(2500)))
            assert [one.id for one in sent] == [str(n) for n in range(2500)]
            leased: list[Any] = []
            while more := await queue.pull(["t"], 1000, 60_000, 0):
                leased += more
            assert len(leased) == 2500
            assert {one.result for one in await queue.ack(leased)} == {"acked"}


@pytest.mark.parametrize("done", [True, False], ids=["and has them", "and has not"])
async def test_many_jobs_without_ids_are_stored_once_when_a_store_does_not_say_that_it_has_them(
    valkey: PrivateValkey, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """The store's answer is lost for good, or it was away: all that is left is to send the same jobs again."""
    send, lost = ValkeyStore.send, list[int]()

    async def unheard(store: ValkeyStore, partition: Partition, items: Sequence[SendItem], version: int = 0) -> Any:
        if lost:
            return await send(store, partition, items, version)
        lost.append(len(items))
        if not done:
            raise StoreDown
        await send(store, partition, items, version)
        raise UnknownOutcome

    monkeypatch.setattr(ValkeyStore, "send", unheard)
    async with opened(valkey.url, namespace=f"unheard-{done}") as queue:
        jobs = [NewJob(body=json_body(1)), NewJob(body=json_body(2))]
        merged = NewJob(body=json_body(3), merge=Merge("k", quiet_ms=3_600_000))
        sent = await queue.send_many("t", [*jobs, merged])
        assert lost
        assert sorted(job.id for job in await queue.pull(["t"], 10)) == sorted(one.id for one in sent[:2])
        assert len((await queue.get("t", sent[2].id)).items or ()) == 1


@pytest.mark.parametrize("way", ["http", "direct"])
async def test_a_pull_that_waits_gets_what_comes_and_one_that_is_cancelled_takes_nothing(
    way: str, server: str, valkey: PrivateValkey
) -> None:
    async with opened(server if way == "http" else valkey.url, namespace="parked") as queue:
        waiting = asyncio.create_task(queue.pull(["t"], 1, 30_000, 60_000))
        await queue.send("t", 1, id="a")
        [job] = await waiting
        await queue.ack([job])
        for n in range(20):
            waiting = asyncio.create_task(queue.pull(["t"], 1, 30_000, 60_000))
            await turns(n)
            sending = asyncio.create_task(queue.send("t", n, id=f"b{n}", max_attempts=1))
            await turns(n)
            waiting.cancel()
            [came] = await asyncio.gather(waiting, return_exceptions=True)
            await sending
            if isinstance(came, BaseException):
                came = await queue.pull(["t"], 1, 30_000, 10_000)
            assert [(job.id, job.attempt) for job in came] == [(f"b{n}", 1)]
            await queue.ack(came)


async def test_an_answer_that_was_on_its_way_when_a_pull_was_left_is_given_back_uncounted(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has answered and the worker has not read it: the worst moment to stop."""
    async with opened(server, namespace="left") as queue:
        await queue.send("t", 1, id="a", max_attempts=1)
        read, unread = AsyncConnection.data_received, asyncio.Queue[tuple[AsyncConnection, bytes]]()
        monkeypatch.setattr(AsyncConnection, "data_received", lambda *answer: unread.put_nowait(answer))
        pulling = asyncio.create_task(queue.pull(["t"], 1, 300_000, 10_000))
        answer = await unread.get()
        monkeypatch.undo()
        assert (await queue.get("t", "a")).state == "leased"
        pulling.cancel()
        asyncio.get_running_loop().call_soon(read, *answer)
        await asyncio.gather(pulling, return_exceptions=True)
        job = await queue.get("t", "a")
        assert (job.state, job.attempts) == ("ready", 0)


async def test_a_pull_whose_connection_breaks_or_that_is_refused_for_now_is_tried_again() -> None:
    away = answer(503, b'{"error":{"code":"store_down","message":"away","field":null}}')
    with ScriptedServer([CUT, away, answer(200, b'{"jobs":[]}')]) as server:
        url = server.url
        async with opened(url) as queue:
            assert list(await queue.pull(["t"], 1, None, 1000)) == []
    assert len(server.requests) == 3


def test_a_folder_that_is_open_already_is_joined_and_a_plain_program_may_send_to_it() -> None:
    with short_folder() as folder:
        url = f"embedded:{folder}/data"
        with SyncQueue(url) as first, SyncQueue(url) as second:
            assert first.send("t", 1, id="a").result == "created"
            assert second.send("t", 1, id="a").result == "kept"
            assert second.cancel("t", "a").result == "cancelled"
        with SyncQueue(url) as again:
            assert again.get("t", "a").state == "cancelled", "it was on disk"


def test_threads_share_a_queue_and_a_fork_opens_its_own(valkey: PrivateValkey) -> None:
    with SyncQueue(valkey.url, namespace="threads") as queue:
        threads = [threading.Thread(target=lambda n=n: queue.send("t", n, id=str(n))) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        child = os.fork()
        if child == 0:
            try:
                queue.send("t", 20, id="20")
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert [queue.get("t", str(n)).json() for n in range(21)] == list(range(21))
        queue.close()
        assert queue.send("t", 1, id="1", on_conflict="keep").result == "kept", "closed is not the end"


@pytest.mark.parametrize("namespace_ids", [False, True], ids=["in its topic", "over all topics"])
async def test_a_namespace_whose_ids_are_unique_in_another_scope_than_here_is_refused(namespace_ids: bool) -> None:
    """To work on it would be to see none of its jobs."""
    kept, here = (frozenset({"n"}), frozenset[str]()) if namespace_ids else (frozenset[str](), frozenset({"n"}))

    with PrivateValkey() as store:
        url = store.url
        other, queue = DirectQueue(url, "n", namespace_ids=kept), DirectQueue(url, "n", namespace_ids=here)
        try:
            await other.send("t", 1, id="a")
            with pytest.raises(DuelineApiError, match='namespace "n"') as refused:
                await queue.pull(["t"])
            assert refused.value.code == "wrong_store"
        finally:
            await queue.close()
            await other.close()


async def test_a_store_that_is_not_there_is_tried_for_as_long_as_patience_lasts(tmp_path: Path) -> None:
    queue = DirectQueue(f"unix://{tmp_path}/none.sock", patience=Patience(deadline_s=0))
    with pytest.raises(DuelineApiError) as refused:
        await queue.send("t", 1)
    assert refused.value.code == "store_down"
    await queue.close()


@pytest.mark.parametrize("url", ["ftp://x", "localhost:9277", "embedded:"])
def test_what_is_no_queue_is_refused_when_it_is_named(url: str) -> None:
    with pytest.raises(ValueError, match=r"queue|folder"):
        connect(url)


@pytest.mark.parametrize("make", [connect, SyncQueue, Client, AsyncClient])
@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://:hunter2@127.0.0.1:26379",
        "amqp://user:hunter2@127.0.0.1",
        "http://user:hunter2@127.0.0.1:99999",
        "redis://:hunter2/slash@127.0.0.1:6379",
        "redis://:slash/hunter2@127.0.0.1:6379",
        "http://:mark?hunter2@127.0.0.1",
        "http://hunter2\u2100@127.0.0.1",
        "ftp://127.0.0.1/?password=hunter2",
        "redis:hunter2@127.0.0.1",
        "hunter2@127.0.0.1:6379",
    ],
)
def test_a_refused_url_is_shown_without_its_password(make: Callable[[str], Any], url: str) -> None:
    with pytest.raises(ValueError, match="127") as refused:
        make(url)
    assert "hunter2" not in "".join(traceback.format_exception(refused.value))


def test_without_a_url_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUELINE_URL", "http://127.0.0.1:1")
    assert resolved(None) == "http://127.0.0.1:1"
    assert addresses_of("http://127.0.0.1:2")[0].port == 2
