"""A worker's health port: alive, ready or why not, and its metrics."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dueline import Worker
from dueline.client.errors import Unavailable
from dueline.testing.process import free_port
from dueline.testing.queue import VirtualQueue
from dueline.worker import Discard, Snooze, health

from .kit import worker_kit


async def raw(address: str, request: bytes) -> bytes:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    return answer


async def get(address: str, path: str) -> tuple[int, bytes]:
    head, _, body = (await raw(address, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head.lower()
    return int(head.split()[1]), body


async def ready(address: str) -> tuple[int, list[str]]:
    status, body = await get(address, "/readyz")
    answer = msgspec.json.decode(body)
    assert answer["ready"] is (status == 200)
    return status, [reason["code"] for reason in answer.get("reasons", [])]


def metrics(page: bytes) -> dict[str, float]:
    """Samples by name and labels; of histograms the count only."""
    return {
        " ".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_sum"))
    }


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


async def test_a_worker_is_ready_from_its_start_to_its_stop(address: str) -> None:
    async with worker_kit(health=address) as kit:

        @kit.worker.on_startup
        async def starting() -> None:
            assert await get(address, "/healthz") == (200, b'{"alive":true}')
            assert await ready(address) == (503, ["starting"])

        @kit.worker.on_shutdown
        async def stopping() -> None:
            assert await get(address, "/healthz") == (200, b'{"alive":true}')
            seen.append(await ready(address))

        seen: list[Any] = []
        kit.worker.handles("t")(print)
        await kit.worker.start()
        assert await ready(address) == (200, [])
        await kit.worker.stop()
        assert seen == [(503, ["draining"])]
        with pytest.raises(OSError, match=r"refused|111"):
            await get(address, "/healthz")
        await kit.worker.start()
        assert await ready(address) == (200, []), "the port is free again"


async def test_a_worker_that_cannot_pull_is_not_ready_and_says_why(address: str) -> None:
    async with worker_kit(health=address) as kit:
        kit.worker.handles("t")(print)
        pull, down, failed = kit.queue.pull, asyncio.Event(), asyncio.Event()

        async def away(*args: Any, **options: Any) -> Any:
            if down.is_set():
                failed.set()
                raise Unavailable("store_down", "the store is away")
            return await pull(*args, **options)

        down.set()
        kit.queue.pull = away
        await kit.worker.start()
        await failed.wait()
        assert await ready(address) == (503, ["queue"])
        assert b"the store is away" in (await get(address, "/readyz"))[1]
        down.clear()
        async with asyncio.timeout(20):
            while (await ready(address)) != (200, []):
                await kit.queue.send("t", "wake")  # a pull that gets something has ended


async def test_jobs_are_counted_by_how_they_ended_and_timed(address: str) -> None:
    async with worker_kit(health=address, lease="1s") as kit:
        begun: asyncio.Queue[str] = asyncio.Queue()
        ended: asyncio.Queue[str] = asyncio.Queue()

        @kit.worker.handles("t")
        async def handle(body: str) -> None:
            if body == "failed":
                raise ValueError(body)
            if body == "discarded":
                raise Discard
            if body == "snoozed":
                raise Snooze("1h")
            if body != "done":
                begun.put_nowait(body)
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.put_nowait(body)

        await kit.worker.start()
        for body, state in {"done": "done", "discarded": "dead", "failed": "dead", "snoozed": "scheduled"}.items():
            await handle.asend(body, id=body, max_attempts=2, retry=["1ms"])
            await kit.until(body, state)
        await handle.asend("lost", id="lost")
        await begun.get()
        assert metrics((await get(address, "/metrics"))[1])["dueline_worker_jobs_in_flight t"] == 1
        await kit.queue.cancel("t", "lost")  # heard of when the lease is extended
        assert await ended.get() == "lost"
        await handle.asend("given_back", id="given_back")
        await begun.get()
        await kit.worker.stop(0)
        await kit.queue.cancel("t", "given_back")
        await kit.worker.start()  # the metrics are those of the worker, not of one run
        assert metrics((await get(address, "/metrics"))[1]) == {
            "dueline_worker_jobs_total done t": 1,
            "dueline_worker_jobs_total discarded t": 1,
            "dueline_worker_jobs_total failed t": 2,
            "dueline_worker_jobs_total snoozed t": 1,
            "dueline_worker_jobs_total lost t": 1,
            "dueline_worker_jobs_total given_back t": 1,
            "dueline_worker_jobs_in_flight t": 0,
            "dueline_worker_job_duration_seconds_count t": 7,
        }


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"GET /nowhere HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 "),
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 "),
        (b"GET /healthz?verbose=1 HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 "),
        (b"rubbish\r\n\r\n", b"HTTP/1.1 405 "),
        (b"GET /" + b"x" * 100_000, b""),
        (b"\r\n\r\n", b"HTTP/1.1 405 "),
    ],
)
async def test_whatever_is_asked_the_worker_goes_on(address: str, request_: bytes, answer: bytes) -> None:
    async with worker_kit(health=address) as kit:
        kit.worker.handles("t")(print)
        await kit.worker.start()
        try:
            assert (await raw(address, request_)).startswith(answer)
        except ConnectionResetError:
            assert answer == b""
        head = await raw(address, b"HEAD /healthz HTTP/1.1\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert head.endswith(b"\r\n\r\n"), "no body"


async def test_silent_connections_are_bounded_and_end_with_the_worker(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "HEAD_S", 1000.0)

    async with worker_kit(health=address) as kit:
        kit.worker.handles("t")(print)
        await kit.worker.start()
        host, port = address.rsplit(":", 1)
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(health.MAX_CONNECTIONS)]
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await reader.read() == b"", "one too many"
        writer.close()
        await kit.worker.stop(0)
        for reader, writer in silent:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()


@pytest.mark.parametrize("text", ["9280", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "", ":9280", "http://a:1"])
def test_an_address_that_is_none_is_refused_at_once(text: str) -> None:
    with pytest.raises(ValueError, match="health: write HOST:PORT"):
        Worker(health=text)


async def test_an_address_that_is_taken_keeps_the_worker_from_starting(address: str) -> None:
    host, port = address.rsplit(":", 1)
    taken = await asyncio.start_server(lambda *_: None, host, int(port))
    async with taken, worker_kit(health=address) as kit:
        kit.worker.handles("t")(print)
        with pytest.raises(ValueError, match=f"health: cannot listen on {address}: Address already in use"):
            await kit.worker.start()
        assert kit.queue.pulls == []


def test_a_worker_in_a_test_opens_no_port(dueline_queue: VirtualQueue, address: str) -> None:
    worker = Worker(health=address)
    worker.handles("t")(print)
    dueline_queue.work(worker)
    with pytest.raises(OSError, match=r"refused|111"):
        asyncio.run(get(address, "/healthz"))
