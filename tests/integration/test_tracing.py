"""The spans of clients and workers on a real server, and what a job carries of them."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from dueline import Client, Leased, new_job
from dueline.client.errors import LeaseLost
from dueline.client.tracing import with_headers
from dueline.worker import Context, Discard, Worker
from dueline.worker.log import shown_log
from dueline.worker.sync import SyncQueue
from tests.kit.spans import Spans, about, header, linked, recorded
from tests.kit.valkey import PrivateValkey

from . import traced_app
from .serve_kit import served
from .shells import Shell, both

WAIT = "60s"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("traced") / "data") as address:
        yield address


@pytest.fixture
def spans() -> Iterator[Spans]:
    with recorded() as found:
        yield found


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of this test alone."""
    return f"t-{abs(hash(request.node.nodeid))}"


@both
def test_the_life_of_a_job_has_a_span_per_call(kind: type[Any], url: str, topic: str, spans: Spans) -> None:
    with Shell(kind, url) as one:
        sent = one.send(topic, {"order": 7}, headers={"k": "v"})
        [leased] = one.pull(topic, wait=WAIT)
        assert one.pull(topic) == ()  # an empty pull has no span
        one.ack(leased)
    send, receive, ack = spans.all
    names = [(span.name, span.kind, span.status.status_code) for span in spans.all]
    assert names == [
        (f"send {topic}", SpanKind.PRODUCER, StatusCode.UNSET),
        (f"receive {topic}", SpanKind.CLIENT, StatusCode.UNSET),
        (f"ack {topic}", SpanKind.CLIENT, StatusCode.UNSET),
    ]
    here: dict[str, object] = {"destination.name": topic, "message.id": sent.id}
    assert about(send) == {"operation.name": "send", "operation.type": "send", **here}
    assert about(receive) == {
        **{"operation.name": "receive", "operation.type": "receive", "batch.message_count": 1},
        **here,
    }
    assert about(ack) == {"operation.name": "ack", "operation.type": "settle", "batch.message_count": 1, **here}
    assert leased.headers == {"k": "v", "traceparent": header(send)}
    assert linked(receive) == [header(send)]


@both
def test_many_sends_are_one_span_that_all_jobs_carry(kind: type[Any], url: str, topic: str, spans: Spans) -> None:
    with Shell(kind, url) as one:
        one.send_many(topic, [new_job(n) for n in range(3)])
        jobs = one.pull([topic, "another"], max=10, wait=WAIT)
    send, receive = spans.all
    assert (send.name, about(send)["batch.message_count"]) == (f"send {topic}", 3)
    assert [job.headers for job in jobs] == [{"traceparent": header(send)}] * 3
    assert (receive.name, linked(receive)) == (f"receive {topic}", [header(send)] * 3)


def test_a_call_is_a_child_of_the_span_around_it(url: str, topic: str, spans: Spans) -> None:
    with Client(url) as client, trace.get_tracer("app").start_as_current_span("checkout"):
        client.send(topic)
    send, checkout = spans.one(f"send {topic}"), spans.one("checkout")
    assert send.parent is not None
    assert (send.context.trace_id, send.parent.span_id) == (checkout.context.trace_id, checkout.context.span_id)


def test_a_refused_call_is_an_error_of_its_span(url: str, topic: str, spans: Spans) -> None:
    with Client(url) as client:
        sent = client.send(topic)
        with pytest.raises(LeaseLost):
            client.ack(Leased(topic, sent.id, "not-a-lease"))
    ack = spans.one(f"ack {topic}")
    assert (about(ack)["error.type"], ack.status.status_code) == ("lease_lost", StatusCode.ERROR)


def test_a_context_that_the_sender_wrote_itself_stays(url: str, topic: str, spans: Spans) -> None:
    own = f"00-{'a' * 32}-{'b' * 16}-01"
    with Client(url) as client:
        client.send(topic, headers={"Traceparent": own})
        [leased] = client.pull(topic, wait=WAIT)
    assert leased.headers == {"Traceparent": own}
    assert linked(spans.one(f"receive {topic}")) == [own]


def test_a_span_that_is_not_recorded_leaves_nothing_in_the_job(url: str, topic: str) -> None:
    with recorded() as spans:
        spans.switch.on = False
        with Client(url) as client:
            client.send(topic)
            [leased] = client.pull(topic, wait=WAIT)
        assert (leased.headers, spans.all) == ({}, ())


def test_a_send_is_the_same_request_in_any_trace(url: str, topic: str, spans: Spans) -> None:
    with Client(url) as client:
        client.send(topic, 1, id="a")
        assert client.send(topic, 1, id="a").result == "kept"
        spans.switch.on = False
        assert client.send(topic, 1, id="a").result == "kept"


def test_a_job_whose_headers_are_full_is_sent_without_the_context(url: str, topic: str, spans: Spans) -> None:
    full = {f"x-{n}": "v" for n in range(32)}
    with Client(url) as client:
        client.send(topic, headers=full)
        client.send(topic, headers={"x-long": "v" * 8000})
        jobs = client.pull(topic, max=2, wait=WAIT)
    assert [dict(job.headers) for job in jobs] == [full, {"x-long": "v" * 8000}]
    assert with_headers(new_job(1), {}).headers is None


# --- workers ---------------------------------------------------------------------------------------------------------


async def test_a_worker_processes_a_job_in_a_trace_of_its_own_that_links_to_the_send(
    url: str, topic: str, spans: Spans, capsys: pytest.CaptureFixture[str]
) -> None:
    worker, ended, seen = Worker(url, lease="60s"), asyncio.Event(), []

    @worker.handles(topic, max_attempts=1)
    async def handle(n: int, context: Context) -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)
        await following.asend(n)
        raise Discard("no such order")

    @worker.handles(f"{topic}.next")
    def following(n: int) -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)
        asyncio.run_coroutine_threadsafe(_set(ended), loop)

    loop, log, handler = asyncio.get_running_loop(), logging.getLogger("dueline.worker"), shown_log()
    log.addHandler(handler)
    try:
        await handle.asend(7)
        with trace.get_tracer("app").start_as_current_span("startup"):
            await worker.start()
        await asyncio.wait_for(ended.wait(), 60)
    finally:
        await worker.stop(10)
        log.removeHandler(handler)
    first, second = spans.one(f"process {topic}"), spans.one(f"process {topic}.next")
    assert (first.kind, first.parent, second.parent) == (SpanKind.CONSUMER, None, None)
    assert seen == [first.context.trace_id, second.context.trace_id]
    assert linked(first) == [header(spans.one(f"send {topic}"))]
    sent = spans.one(f"send {topic}.next")
    assert (sent.context.trace_id, linked(second)) == (first.context.trace_id, [header(sent)])
    assert (about(first)["error.type"], "error.type" in about(second)) == ("discarded", False)
    assert spans.one(f"release {topic}").context.trace_id == first.context.trace_id
    lines = [line for line in capsys.readouterr().err.splitlines() if "is dead (rejected)" in line]
    assert [line.endswith(f" trace_id={first.context.trace_id:032x}") for line in lines] == [True]


async def _set(event: asyncio.Event) -> None:
    event.set()


async def test_a_handler_in_a_child_process_runs_in_the_trace_of_its_worker(url: str, spans: Spans) -> None:
    traced_app.worker.join_queue(url, None, None)
    try:
        await traced_app.report.asend(1)
        await traced_app.worker.start()
        with Client(url) as client:
            [reported] = await asyncio.to_thread(client.pull, "reports", wait=WAIT)
    finally:
        await traced_app.worker.stop(10)
    assert reported.json() == f"{spans.one('process traced.child').context.trace_id:032x}"


def test_a_thread_that_sends_straight_to_the_store_is_traced(spans: Spans) -> None:
    with PrivateValkey() as store, SyncQueue(store.url) as queue:
        sent = [queue.send("direct") for _ in range(4)]  # the first ones open the store and the topic, on its loop
        jobs = [queue.get("direct", one.id) for one in sent]
    sends = spans.named("send direct")
    assert [about(span)["message.id"] for span in sends] == [one.id for one in sent]
    assert [job.headers for job in jobs] == [{"traceparent": header(span)} for span in sends]


def test_a_program_without_opentelemetry_does_not_load_it(url: str, topic: str) -> None:
    code = f"""
import sys
from dueline import Client
with Client({url!r}) as client:
    client.send({topic!r})
    [job] = client.pull({topic!r}, wait="60s")
    client.ack(job)
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_a_program_that_only_loads_opentelemetry_is_traced_from_when_it_has_a_provider(url: str, topic: str) -> None:
    code = f"""
import opentelemetry.trace
from dueline import Client
from dueline.client.calls import ack
from dueline.client.tracing import span_of
call = ack({topic!r}, [])
def sent(client):
    client.send({topic!r})
    [job] = client.pull({topic!r}, wait="60s")
    return span_of(call) is not None, sorted(job.headers)
with Client({url!r}) as client:
    print(*sent(client))
    from opentelemetry.sdk.trace import TracerProvider
    opentelemetry.trace.set_tracer_provider(TracerProvider())
    print(*sent(client))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["False []", "True ['traceparent']"]
