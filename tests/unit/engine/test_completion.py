"""Completions: one result for each call, whatever happens on its way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dueline.engine.completion import Done, Outbox, awaited, leave, poll, tell, through
from dueline.engine.errors import NotFound
from tests.kit.waiting import turns


class Parked:
    """A call that waits until somebody ends it."""

    def __init__(self) -> None:
        self.done: Done | None = None
        self.cancelled = False

    def post(self, done: Done) -> Parked:
        self.done = done
        return self

    def cancel(self) -> None:
        self.cancelled = True


async def test_who_awaits_a_post_gets_its_result_or_its_error() -> None:
    assert await awaited(lambda number, done: done(number + 1), 1) == 2
    with pytest.raises(NotFound):
        await awaited(lambda done: done(NotFound()))


async def test_the_rest_of_a_call_in_a_task_ends_it_once() -> None:
    async def work(result: Any) -> Any:
        await asyncio.sleep(0)
        if isinstance(result, Exception):
            raise result
        return result

    results: list[Any] = []
    error = NotFound()
    leave(work([]), results.append)
    leave(work(error), results.append)
    await turns(5)
    assert results == [[], error]


async def test_a_cancelled_poll_is_cancelled_where_it_waits_and_a_late_result_hurts_nobody() -> None:
    parked = Parked()
    waiting = asyncio.ensure_future(poll(parked.post))
    await turns(2)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert parked.cancelled
    assert waiting.cancelled()
    assert parked.done is not None
    parked.done("too late")


async def test_a_conversion_that_fails_is_the_result_and_one_that_awaits_leaves_the_line() -> None:
    async def later(number: int) -> int:
        await asyncio.sleep(0)
        return -number

    results: list[Any] = []
    error = NotFound()
    through(lambda number: 1 // number, results.append)(0)
    through(lambda _: "unused", results.append)(error)
    through(later, results.append)(7)
    assert isinstance(results[0], ZeroDivisionError)
    assert results[1] is error
    await turns(5)
    assert results[2] == -7


async def test_a_completion_that_fails_is_reported_and_the_others_are_told() -> None:
    results, reported = list[Any](), list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))

    def broken(_: Any) -> None:
        raise ValueError

    outbox = Outbox()
    outbox.hold()
    outbox.tell(broken, 1)
    outbox.tell(results.append, 2)
    assert results == []
    outbox.release()
    tell(results.append, 3)
    assert results == [2, 3]
    assert [type(error) for error in reported] == [ValueError]
