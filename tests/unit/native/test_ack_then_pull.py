"""A pull that acks first, on the line: two calls of the engine, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, cast

import pytest

from dueline.dialects.http import Request
from dueline.dialects.native.lines import PullLine
from dueline.engine.engine import Engine
from dueline.engine.errors import StoreDown
from dueline.engine.outcomes import Actor, actor_name, begin_call
from dueline.engine.store import Code, Outcome

BODY = b'{"ack":[{"id":"a","lease":"x"}]}'


class Pulled:
    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class StubEngine:
    """Keeps what it was asked."""

    def __init__(self) -> None:
        self.acked: Callable[[Any], None] = lambda _: None
        self.by: list[str] = []
        self.pulled = Pulled()

    def post_ack(self, namespace: str, topic: str, refs: object, done: Callable[[Any], None]) -> None:
        self.acked = done

    def post_pull(self, command: object, done: Callable[[Any], None]) -> Pulled:
        self.by.append(actor_name())
        return self.pulled


@pytest.fixture
def engine() -> StubEngine:
    return StubEngine()


def ask(engine: StubEngine, answers: list[Any]) -> Any:
    request = Request("POST", "/v1/topics/t/pull", "", {"content-type": "application/json"}, BODY, params=("t",))
    return PullLine(cast(Engine, engine), cast(Any, None), request)(request, answers.append)


def test_the_pull_is_made_by_the_caller_and_not_by_whoever_reads_the_reply_to_the_acks(engine: StubEngine) -> None:
    def caller() -> None:
        begin_call(Actor("ann"))
        ask(engine, [])

    copy_context().run(caller)
    Context().run(engine.acked, [Outcome(Code.OK)])
    assert engine.by == ["ann"]


def test_nothing_is_pulled_if_the_client_leaves_before_the_acks_are_stored(engine: StubEngine) -> None:
    ask(engine, []).cancel()
    engine.acked([Outcome(Code.OK)])
    assert engine.by == []


def test_a_pull_that_waits_after_its_acks_can_be_cancelled(engine: StubEngine) -> None:
    begun = ask(engine, [])
    engine.acked([Outcome(Code.OK)])
    begun.cancel()
    assert engine.pulled.cancelled


def test_nothing_is_pulled_if_the_acks_could_not_be_stored(engine: StubEngine) -> None:
    answers: list[Any] = []
    ask(engine, answers)
    engine.acked(StoreDown())
    assert isinstance(answers[0], StoreDown)
    assert engine.by == []
