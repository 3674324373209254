"""Questions that share a call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dueline.store.valkey.shared_call import MOST, SharedCall


class Asked:
    """Answers with the double of each number, once `go` is set; raises what is in `errors`."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.errors: list[Exception] = []
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.shared: SharedCall[int, int] = SharedCall(self._call)

    async def _call(self, questions: Sequence[int]) -> list[int]:
        self.calls.append(list(questions))
        self.begun.set()
        await self.go.wait()
        if self.errors:
            raise self.errors.pop()
        return [2 * question for question in questions]


async def test_questions_of_one_turn_and_those_during_a_call_share_one() -> None:
    asked = Asked()
    first = [asyncio.ensure_future(asked.shared.ask(n)) for n in (1, 2)]
    await asked.begun.wait()
    later = [asyncio.ensure_future(asked.shared.ask(n)) for n in (3, 4, 5)]
    await asyncio.sleep(0)
    asked.go.set()
    assert await asyncio.gather(*first, *later) == [2, 4, 6, 8, 10]
    assert asked.calls == [[1, 2], [3, 4, 5]]


async def test_a_call_has_a_bound() -> None:
    asked = Asked()
    asked.go.set()
    count = MOST + 1
    assert await asyncio.gather(*map(asked.shared.ask, range(count))) == [2 * n for n in range(count)]
    assert [len(call) for call in asked.calls] == [MOST, 1]


async def test_an_error_reaches_all_of_its_call_and_no_other() -> None:
    asked = Asked()
    asked.errors.append(LookupError("away"))
    asked.go.set()
    first = await asyncio.gather(*map(asked.shared.ask, (1, 2)), return_exceptions=True)
    assert [str(one) for one in first] == ["away", "away"]
    assert await asked.shared.ask(3) == 6


async def test_a_cancelled_question_is_not_asked_and_does_not_disturb_the_others() -> None:
    asked = Asked()
    first = asyncio.ensure_future(asked.shared.ask(1))
    await asked.begun.wait()
    second, third = (asyncio.ensure_future(asked.shared.ask(n)) for n in (2, 3))
    await asyncio.sleep(0)
    for one in (first, second):
        one.cancel()
    await asyncio.sleep(0)
    asked.go.set()
    assert await third == 6
    assert asked.calls == [[1], [3]]
    with pytest.raises(asyncio.CancelledError):
        await second
