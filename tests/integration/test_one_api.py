"""A call has one answer, whether it goes to a server or to the API in this process: every field, every word."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from dueline import Client, DuelineApiError, NewJob, Patience
from dueline.api.token_requests import CreateToken
from dueline.client import Lease, calls, json_body, overview_calls, schedule_calls, token_calls
from dueline.worker import Queue, connect
from dueline.worker.direct import DirectQueue

from ..kit.valkey import PrivateValkey
from .serve_kit import served

ONE_TRY = Patience(deadline_s=0)
BODY = json_body({"n": 1})
VARIES = (
    *("at_ms", "from_ms", "lease", "lease_until_ms", "due_at_ms", "created_at_ms", "updated_at_ms"),
    *("expires_at_ms", "retain_until_ms"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("one") / "data") as url:
        yield url


@pytest.fixture(scope="module")
def valkey() -> Iterator[PrivateValkey]:
    with PrivateValkey() as store:
        yield store


def plain(value: Any) -> Any:
    """A value without what differs from run to run: tokens and moments."""
    if isinstance(value, dict):
        return {
            name: "*" if one and (name in VARIES or is_event_id(one)) else plain(one) for name, one in value.items()
        }
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def is_event_id(value: Any) -> bool:
    """It begins with a moment."""
    return isinstance(value, str) and re.fullmatch(r"\d{13}-\d+", value) is not None


def words(error: DuelineApiError) -> tuple[Any, ...]:
    return type(error).__name__, error.code, error.message, error.field


JOBS: dict[str, dict[str, Any]] = {
    "fine": {"id": "a", "body": BODY, "delay_ms": 60_000},
    "bytes": {"id": "b", "body_base64": "AAE=", "tags": ("x", "y"), "headers": {"k": "v"}, "delay": "1h"},
    "policy": {"id": "c", "body": BODY, "retry": {"ladder": ["2m"]}, "lease_ms": 5, "max_attempts": None},
    "two bodies": {"id": "d", "body": BODY, "body_base64": "AAE="},
    "no body": {"id": "d"},
    "base64 that is not canonical": {"id": "d", "body_base64": "AAF="},
    "base64 without padding": {"id": "d", "body_base64": "AAE"},
    "two times": {"id": "d", "body": BODY, "delay": "1h", "at_ms": 5},
    "negative delay": {"id": "d", "body": BODY, "delay_ms": -1},
    "delay that is no number": {"id": "d", "body": BODY, "delay_ms": "5"},
    "delay too long": {"id": "d", "body": BODY, "delay": "4000d"},
    "time too far": {"id": "d", "body": BODY, "at": "2099-01-01T00:00:00Z"},
    "time without an offset": {"id": "d", "body": BODY, "at": "2030-01-01T00:00:00"},
    "time that is none": {"id": "d", "body": BODY, "at": "soon"},
    "lease of nothing": {"id": "d", "body": BODY, "lease_ms": 0},
    "attempts of nothing": {"id": "d", "body": BODY, "max_attempts": 0},
    "unknown conflict": {"id": "d", "body": BODY, "on_conflict": "ignore"},
    "unknown field of a retry": {"id": "d", "body": BODY, "retry": {"ladder": ["1m"], "times": 3}},
    "ladder and backoff": {"id": "d", "body": BODY, "retry": {"ladder": ["1m"], "base_ms": 3}},
    "backoff without a base": {"id": "d", "body": BODY, "retry": {"factor": 2}},
    "factor too large": {"id": "d", "body": BODY, "retry": {"base_ms": 1, "factor": 101}},
    "too many tags": {"id": "d", "body": BODY, "tags": tuple(map(str, range(65)))},
    "reserved header": {"id": "d", "body": BODY, "headers": {"Dueline-Url": "http://x"}},
    "id with a space": {"id": "no space", "body": BODY},
    "body that is no JSON": {"id": "d", "body": Raw(b"{")},
    "body that is not UTF-8": {"id": "d", "body": Raw(b'"\xff"')},
    "body with a lone surrogate": {"id": "d", "body": Raw(b'"\\ud800"')},
    "body that is too deep": {"id": "d", "body": Raw(b"[" * 65 + b"]" * 65)},
    "number that is too large": {"id": "d", "body": Raw(b"1e999")},
}


async def sent(url: str, job: dict[str, Any]) -> Any:
    """What the queue at `url` answers to a send, or its error."""
    queue: Queue = connect(url, namespace="jobs")
    try:
        return plain([msgspec.structs.asdict(one) for one in await queue.send_many("t", [NewJob(**job)])])
    except DuelineApiError as refused:
        return words(refused)
    finally:
        await queue.close()


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
async def test_a_job_is_taken_or_refused_in_the_same_words_with_and_without_a_server(
    job: dict[str, Any], server: str, valkey: PrivateValkey
) -> None:
    assert await sent(server, job) == await sent(valkey.url, job)


async def test_a_send_from_a_thread_is_refused_in_the_same_words(valkey: PrivateValkey) -> None:
    queue = DirectQueue(valkey.url, "threads")
    try:
        await queue.answer(calls.send("t", NewJob(body=BODY)))  # a thread sends only to a topic that is known
        replies = {name: await queue.answer(calls.send("t", NewJob(**job))) for name, job in JOBS.items()}
        refused = {name: words(calls.reply_error(reply)) for name, reply in replies.items() if reply.status >= 400}
        assert "time too far" in refused
        for name, expected in refused.items():
            with pytest.raises(DuelineApiError) as error:
                await asyncio.to_thread(queue.send_now, "t", NewJob(**JOBS[name]))
            assert words(error.value) == expected, name
    finally:
        await queue.close()


# Its next occurrence is years ahead, so it is the same for both callers.
YEARS: dict[str, object] = {"topic": "t", "every": "3650d", "job": {"body": 1, "tags": ["x"]}}
CALLS: dict[str, calls.Call[Any]] = {
    "send": calls.send("t", NewJob(id="a", body=BODY, tags=("x",))),
    "send again": calls.send("t", NewJob(id="a", body=json_body(2))),
    "send many, one refused": calls.send_many("t", [NewJob(id="b", body=BODY), NewJob(id="a", body=json_body(3))]),
    "send many, all refused": calls.send_many("t", [NewJob(id="a", body=json_body(4))]),
    "send many with an unknown field": calls.send_many("t", [{"id": "c", "body": 1}, {"body": 1, "wait": 5}]),
    "send what is no job": calls.send_many("t", [Raw(b"5")]),
    "send too many": calls.send_many("t", [Raw(b"{}")] * 1001),
    "send to no topic": calls.send("no topic", NewJob(body=BODY)),
    "get": calls.get("t", "a"),
    "get nobody": calls.get("t", "nobody"),
    "history": overview_calls.history("t", "a"),
    "history of nobody": overview_calls.history("t", "nobody"),
    "patch": calls.patch("t", "b", {"delay": "1h"}),
    "patch to a time too far": calls.patch("t", "b", {"delay": "4000d"}),
    "patch an unknown field": calls.patch("t", "b", {"wait": 1}),
    "patch another version": calls.patch("t", "b", {"delay_ms": 1, "version": 99}),
    "fire": calls.fire("t", "b"),
    "list": calls.list_jobs("t", tag="x", body=True),
    "list with a wrong cursor": calls.list_jobs("t", cursor="%%"),
    "list too much": calls.list_jobs("t", limit=501),
    "list an unknown state": calls.list_jobs("t", state="asleep"),
    "pull too much": calls.pull(["t"], max=1001),
    "pull no topic": calls.pull([]),
    "pull too long": calls.pull(["t"], wait_ms=300_001),
    "ack what is not leased": calls.ack("t", [Lease("a", "x"), Lease("nobody", "x")]),
    "ack nothing": calls.ack("t", []),
    "release before now": calls.release("t", Lease("a", "x"), delay_ms=-1),
    "extend by nothing": calls.extend("t", Lease("a", "x"), 0),
    "pull": calls.pull(["t"], max=10),
    "cancel by filter": calls.cancel_matching("t", {"tag": "x"}, dry_run=True),
    "cancel nobody": calls.cancel("t", "nobody"),
    "cancel some": calls.cancel_many("t", ["b", "nobody"]),
    "set a topic": calls.set_topic("p", {"lease_ms": 5, "retry": {"ladder": ["60s"]}, "merge": {"quiet_ms": 5}}),
    "set a topic to what is unknown": calls.set_topic("p", {"color": "red"}),
    "set a topic to another version": calls.set_topic("p", {"version": 99}),
    "get a topic": calls.topic("p"),
    "get no topic": calls.topic("nothing"),
    "forecast": overview_calls.forecast([1, 4_000_000_000_000]),
    "forecast of a topic": overview_calls.forecast([1, 4_000_000_000_000], "p"),
    "forecast of no topic": overview_calls.forecast([1, 2], "nothing"),
    "forecast backwards": overview_calls.forecast([2, 1]),
    "groups": overview_calls.groups("t"),
    "groups with a wrong cursor": overview_calls.groups("t", "%%"),
    "charts of a week": overview_calls.charts(168),
    "pause": calls.pause("p"),
    "resume": calls.resume("p"),
    "topics": calls.topics(limit=1),
    "set a push target": calls.set_push("p", {"url": "https://93.184.216.34/x", "secrets": ["whsec_" + "QUJD" * 8]}),
    "set a push target with a wrong secret": calls.set_push("p", {"url": "https://93.184.216.34/x", "secrets": ["no"]}),
    "set a push target without an address": calls.set_push("p", {}),
    "get a push target": calls.push("p"),
    "remove a push target": calls.remove_push("p"),
    "remove no push target": calls.remove_push("p"),
    "attempts of no target": calls.attempts("p"),
    "dead": calls.dead("t"),
    "revive nobody": calls.revive("t", ["nobody"]),
    "purge by filter": calls.purge_matching("t", {}, dry_run=False),
    "delete a topic": calls.delete_topic("p"),
    "delete a topic with jobs": calls.delete_topic("t"),
    "put a schedule": schedule_calls.put_schedule("s", YEARS),
    "put a schedule again": schedule_calls.put_schedule("s", {**YEARS, "paused": True}),
    "put another version": schedule_calls.put_schedule("s", {**YEARS, "version": 99}),
    "put a schedule with a wrong field": schedule_calls.put_schedule("s", {**YEARS, "cron": "@daily"}),
    "put a schedule without a job": schedule_calls.put_schedule("s", {"topic": "t", "every": "1h"}),
    "schedules": schedule_calls.schedules(limit=1),
    "get a schedule": schedule_calls.schedule("s"),
    "get no schedule": schedule_calls.schedule("nobody"),
    "resume a schedule": schedule_calls.resume_schedule("s"),
    "next": schedule_calls.next_occurrences("s", 1),
    "next, too many": schedule_calls.next_occurrences("s", 101),
    "preview": schedule_calls.preview_schedule("s", YEARS),
    "preview of a wrong schedule": schedule_calls.preview_schedule("s", {**YEARS, "cron": "@daily"}),
    "pause a schedule": schedule_calls.pause_schedule("s"),
    "run no schedule": schedule_calls.run_schedule("nobody"),
    "delete a schedule": schedule_calls.delete_schedule("s"),
    "tokens": token_calls.list_tokens(),
    "make a token that has expired": token_calls.create_token(CreateToken(name="x", rights=["send"], expires_at_ms=1)),
    "get no token": token_calls.token("5d41402abc4b"),
    "rotate no token": token_calls.rotate_token("nobody"),
    "rotate a token with a wrong overlap": token_calls.rotate_token("nobody", "later"),
    "revoke no token": token_calls.revoke_token("nobody"),
    "a worker that is not there": calls.stop_worker("nobody"),
    "workers of nobody": calls.workers(),
    "events behind a wrong position": calls.events(["t"], "x"),
    "events of the future": calls.events(["t"], "9999999999999-1", 0),
    "audit of nobody": calls.audit("calls", "nobody", "pause", 5, limit=1),
    "audit with a wrong cursor": calls.audit(cursor="%%"),
    "audit of too much": calls.audit(limit=501),
    "ready": calls.ready(),
}


def test_every_call_has_the_same_answer_from_a_server_and_in_this_process(server: str, valkey: PrivateValkey) -> None:
    """One after the other, because a call sees what those before it did."""
    from dueline.cli.direct import StoreClient

    with Client(server, "calls", patience=ONE_TRY) as http, StoreClient(valkey.url, "calls", ONE_TRY) as direct:
        for name, call in CALLS.items():
            assert seen(http, call) == seen(direct, call), name


@pytest.mark.parametrize("namespace", ["no space", "dueline.internal", "x" * 129])
def test_a_namespace_is_refused_in_the_same_words(namespace: str, server: str, valkey: PrivateValkey) -> None:
    from dueline.cli.direct import StoreClient

    with Client(server, namespace, patience=ONE_TRY) as http, StoreClient(valkey.url, namespace, ONE_TRY) as direct:
        assert seen(http, calls.topics()) == seen(direct, calls.topics())
        assert seen(direct, calls.topics())[0] == "InvalidRequest"


def seen(client: Client, call: calls.Call[Any]) -> Any:
    """What a caller sees: the status, the JSON as it is printed and the value, or the whole error."""
    try:
        answer = client.call(call)
    except DuelineApiError as error:
        return *words(error), error.status, error.id, error.retry_after_s, error.raw
    shown = plain(msgspec.json.decode(answer.raw))
    return answer.status, shown, plain(msgspec.json.decode(msgspec.json.encode(answer.value))), type(answer.value)
