"""Every refusal has a stable code and names its field; nothing of a refused call is stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from engine_kit import NS, EngineKit

from dueline.engine.commands import Filter, Patch, Pull, Send, TopicPatch
from dueline.engine.engine import Engine
from dueline.engine.errors import DuelineError
from dueline.engine.job import BodyKind, State
from dueline.engine.limits import LAST_MS
from dueline.engine.policy import Backoff, Ladder, TopicPolicy
from dueline.engine.store import Extend, Query, Ref, Release

TEN_YEARS_MS = 10 * 366 * 86_400_000
YEAR_MS = 366 * 86_400_000


def a_send(id: str | None = "a", body: bytes = b"1", **options: Any) -> Send:
    return Send(id, body, BodyKind.JSON, **options)


REFUSED_SENDS = [
    (a_send(id=""), "invalid_field", "id"),
    (a_send(id="x" * 513), "invalid_field", "id"),
    (a_send(id="a\nb"), "invalid_field", "id"),
    (a_send(id="\ud800"), "invalid_field", "id"),
    (a_send(body=b"x" * (256 * 1024 + 1)), "body_too_large", "body"),
    (a_send(delay_ms=-1), "invalid_field", "delay_ms"),
    (a_send(delay_ms=TEN_YEARS_MS + 1), "invalid_field", "delay_ms"),
    (a_send(delay_ms=1, at_ms=1), "invalid_field", "at_ms"),
    (a_send(at_ms=1_700_000_000_000 + TEN_YEARS_MS + 1), "invalid_field", "at_ms"),
    (a_send(at_ms=-1), "invalid_field", "at_ms"),
    (a_send(at_ms=1 << 63), "invalid_field", "at_ms"),
    (a_send(lease_ms=0), "invalid_field", "lease_ms"),
    (a_send(lease_ms=7 * 86_400_000 + 1), "invalid_field", "lease_ms"),
    (a_send(ttl_ms=0), "invalid_field", "ttl_ms"),
    (a_send(ttl_ms=TEN_YEARS_MS + 1), "invalid_field", "ttl_ms"),
    (a_send(max_attempts=0), "invalid_field", "max_attempts"),
    (a_send(max_attempts=10_001), "invalid_field", "max_attempts"),
    (a_send(retain_ms=-1), "invalid_field", "retain_ms"),
    (a_send(dead_retain_ms=-1), "invalid_field", "dead_retain_ms"),
    (a_send(retry=Ladder(())), "invalid_field", "retry.ladder"),
    (a_send(retry=Ladder((1,) * 33)), "too_many_items", "retry.ladder"),
    (a_send(retry=Ladder((-1,))), "invalid_field", "retry.ladder"),
    (a_send(retry=Ladder((YEAR_MS + 1,))), "invalid_field", "retry.ladder"),
    (a_send(retry=Backoff(0)), "invalid_field", "retry.base_ms"),
    (a_send(retry=Backoff(1, factor=0.5)), "invalid_field", "retry.factor"),
    (a_send(retry=Backoff(1, factor=float("nan"))), "invalid_field", "retry.factor"),
    (a_send(retry=Backoff(10, max_ms=9)), "invalid_field", "retry.max_ms"),
    (a_send(retry=Backoff(1, jitter=1.5)), "invalid_field", "retry.jitter"),
    (a_send(tags=("",)), "invalid_field", "tags"),
    (a_send(tags=("x" * 65,)), "invalid_field", "tags"),
    (a_send(tags=("a\x00",)), "invalid_field", "tags"),
    (a_send(tags=("\ud800",)), "invalid_field", "tags"),
    (a_send(tags=("a", "a")), "invalid_field", "tags"),
    (a_send(tags=tuple(f"t{n}" for n in range(17))), "too_many_items", "tags"),
    (a_send(headers=(("a b", "1"),)), "invalid_field", "headers"),
    (a_send(headers=(("", "1"),)), "invalid_field", "headers"),
    (a_send(headers=(("a", "1\r\nb: 2"),)), "invalid_field", "headers"),
    (a_send(headers=(("a", "1"), ("A", "2"))), "invalid_field", "headers"),
    (a_send(headers=(("a", "x" * 8193),)), "invalid_field", "headers"),
    (a_send(headers=tuple((f"h{n}", "") for n in range(33))), "too_many_items", "headers"),
]


@pytest.mark.parametrize(("command", "code", "field"), REFUSED_SENDS)
async def test_a_send_beyond_a_limit_is_refused_and_leaves_no_trace(
    command: Send, code: str, field: str, kit: EngineKit
) -> None:
    with pytest.raises(DuelineError) as one:
        await kit.engine.send(NS, "mail", command)
    with pytest.raises(DuelineError) as many:
        await kit.engine.send_many(NS, "mail", [a_send("ok"), command])
    assert (one.value.code, one.value.field) == (code, field)
    assert (many.value.code, many.value.field) == (code, f"[1].{field}")
    assert await kit.engine.topics(NS, "", 10) == ([], None)
    assert (await kit.engine.list(NS, "mail", Query())).jobs == []


ACCEPTED_SENDS = [
    a_send(id="x" * 512),
    a_send(id="日" * 170),
    a_send(body=b"x" * (256 * 1024)),
    a_send(delay_ms=TEN_YEARS_MS),
    a_send(at_ms=0),
    a_send(at_ms=1_700_000_000_000 + TEN_YEARS_MS),
    a_send(max_attempts=None, ttl_ms=None, lease_ms=None, retry=None),
    a_send(max_attempts=10_000, ttl_ms=1, lease_ms=1),
    a_send(retry=Ladder((0,) * 32)),
    a_send(retry=Backoff(1, 100, YEAR_MS, 1)),
    a_send(tags=tuple("x" * 62 + f"{n:02}" for n in range(16))),
    a_send(headers=(("x-a", "é \t"[:2]),)),
]


@pytest.mark.parametrize("command", ACCEPTED_SENDS)
async def test_a_send_at_a_limit_is_taken(command: Send, kit: EngineKit) -> None:
    assert (await kit.engine.send(NS, "mail", command)).result == "created"


Call = Callable[[Engine], Awaitable[object]]
REFUSED_CALLS: list[tuple[Call, str, str | None]] = [
    (lambda e: e.send(NS, "", a_send()), "invalid_field", "topic"),
    (lambda e: e.send("a\x00", "mail", a_send()), "invalid_field", "namespace"),
    (lambda e: e.send_many(NS, "mail", [a_send(None)] * 1001), "too_many_items", None),
    (lambda e: e.pull(Pull(NS, ("mail",), 0)), "invalid_field", "max"),
    (lambda e: e.pull(Pull(NS, ("mail",), 1001)), "invalid_field", "max"),
    (lambda e: e.pull(Pull(NS, ("mail",), 1, 0)), "invalid_field", "lease_ms"),
    (lambda e: e.pull(Pull(NS, ("mail",), wait_ms=300_001)), "invalid_field", "wait_ms"),
    (lambda e: e.pull(Pull(NS, ("mail",), wait_ms=-1)), "invalid_field", "wait_ms"),
    (lambda e: e.pull(Pull(NS, ())), "invalid_field", "topics"),
    (lambda e: e.pull(Pull(NS, ("a", "a"))), "invalid_field", "topics"),
    (lambda e: e.pull(Pull(NS, ("a\n",))), "invalid_field", "topic"),
    (lambda e: e.ack(NS, "mail", [Ref("a", "t"), Ref("", "t")]), "invalid_field", "[1].id"),
    (lambda e: e.ack(NS, "mail", [Ref("a", "é")]), "invalid_field", "[0].lease"),
    (lambda e: e.ack(NS, "mail", [Ref("a", "")]), "invalid_field", "[0].lease"),
    (lambda e: e.ack(NS, "mail", [Ref("a", "t")] * 1001), "too_many_items", None),
    (lambda e: e.release(NS, "mail", [Release("a", "t", delay_ms=-1)]), "invalid_field", "[0].delay_ms"),
    (lambda e: e.release(NS, "mail", [Release("a", "t", error="\ud800")]), "invalid_field", "[0].error"),
    (lambda e: e.extend(NS, "mail", [Extend("a", "t", 0)]), "invalid_field", "[0].lease_ms"),
    (lambda e: e.cancel(NS, "mail", ["a", "\x00"]), "invalid_field", "[1]"),
    (lambda e: e.get(NS, "mail", ""), "invalid_field", "id"),
    (lambda e: e.fire(NS, "mail", "a" * 513), "invalid_field", "id"),
    (lambda e: e.patch(NS, "mail", Patch("a", delay_ms=-1)), "invalid_field", "delay_ms"),
    (lambda e: e.patch(NS, "mail", Patch("a", lease_ms=0)), "invalid_field", "lease_ms"),
    (lambda e: e.patch(NS, "mail", Patch("a", body=b"x" * 300_000)), "body_too_large", "body"),
    (lambda e: e.list(NS, "mail", Query(limit=501)), "invalid_field", "limit"),
    (lambda e: e.list(NS, "mail", Query(cursor=b"garbage")), "invalid_field", "cursor"),
    (lambda e: e.list(NS, "mail", Query(tag="")), "invalid_field", "tag"),
    (lambda e: e.list(NS, "mail", Query(due_after_ms=-1)), "invalid_field", "due_after_ms"),
    (lambda e: e.cancel_matching(NS, "mail", Filter(state=State.DEAD), False), "invalid_field", "filter.state"),
    (lambda e: e.cancel_matching(NS, "mail", Filter(tag="\n"), False), "invalid_field", "filter.tag"),
    (lambda e: e.revive_matching(NS, "mail", Filter(state=State.DONE), False), "invalid_field", "filter.state"),
    (lambda e: e.purge_matching(NS, "mail", Filter(state=State.READY), False), "invalid_field", "filter.state"),
    (lambda e: e.revive(NS, "mail", ["a"], delay_ms=-1), "invalid_field", "delay_ms"),
    (lambda e: e.revive(NS, "mail", ["a"], max_attempts=0), "invalid_field", "max_attempts"),
    (lambda e: e.pause(NS, "mail", 0), "invalid_field", "until_ms"),
    (lambda e: e.pause(NS, "mail", LAST_MS + 1), "invalid_field", "until_ms"),
    (lambda e: e.topics(NS, "", 0), "invalid_field", "limit"),
    (lambda e: e.topic(NS, "never"), "not_found", None),
    (lambda e: e.resume(NS, "never"), "not_found", None),
    (lambda e: e.set_topic(NS, "mail", TopicPatch(TopicPolicy(lease_ms=0))), "invalid_field", "lease_ms"),
    (lambda e: e.set_topic(NS, "mail", TopicPatch(TopicPolicy(on_conflict="x"))), "invalid_field", "on_conflict"),
    (lambda e: e.set_topic(NS, "mail", TopicPatch(TopicPolicy(spread_ms=-1))), "invalid_field", "spread_ms"),
    (
        lambda e: e.set_topic(NS, "mail", TopicPatch(TopicPolicy(max_body_bytes=(4 << 20) + 1))),
        "invalid_field",
        "max_body_bytes",
    ),
    (lambda e: e.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=1025)), "invalid_field", "partitions"),
    (lambda e: e.set_topic(NS, "mail", TopicPatch(TopicPolicy(), partitions=0)), "invalid_field", "partitions"),
]


@pytest.mark.parametrize(("call", "code", "field"), REFUSED_CALLS)
async def test_a_call_beyond_a_limit_is_refused_with_its_field(
    call: Call, code: str, field: str | None, kit: EngineKit
) -> None:
    with pytest.raises(DuelineError) as refused:
        await call(kit.engine)
    assert (refused.value.code, refused.value.field) == (code, field)


async def test_an_error_text_is_cut_and_not_refused(kit: EngineKit) -> None:
    await kit.send("mail", "a")
    [job] = await kit.pull("mail")
    await kit.engine.release(NS, "mail", [Release("a", job.lease, error="é" * 600)])
    assert (await kit.engine.get(NS, "mail", "a")).last_error == "é" * 512
