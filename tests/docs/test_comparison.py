"""The guide for people who come from other libraries: the Dueline halves do what the page says, in virtual time."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dueline.testing.queue import VirtualQueue

PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
SECTION = re.compile(r"^## (Celery|RQ|arq|dramatiq|huey)\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HALVES = {name: dict(BLOCK.findall(text)) for name, text in SECTION.findall(PAGE.read_text())}
LIBRARIES = ("Celery", "RQ", "arq", "dramatiq", "huey")

# Seconds between the due time and each attempt of a shop that stays down: what the other half says.
WAITS_S = {
    "Celery": [0, 60, 120, 180],
    "RQ": [0, 10, 70, 670],
    "arq": [0, 5, 15, 30, 50],
    "dramatiq": [0, 15, 45, 105],
    "huey": [0, 60, 120, 180],
}
DUE_S = 1800


class Shop(ModuleType):
    """The reader's own code: notes when it is asked to close an order, and is down for the first `failures` times."""

    class Down(Exception):
        pass

    def __init__(self, queue: VirtualQueue) -> None:
        super().__init__("shop")
        self.failures = 0
        self.asked: list[tuple[str, int]] = []
        self._queue = queue
        self._begin_ms = queue.clock.now_ms

    def close(self, order: str) -> None:
        self.asked.append((order, (self._queue.clock.now_ms - self._begin_ms) // 1000))
        if len(self.asked) <= self.failures:
            raise self.Down("the shop is down")

    async def aclose(self, order: str) -> None:
        self.close(order)


class Program:
    """A Dueline half of the page, running."""

    def __init__(self, library: str, queue: VirtualQueue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue = queue
        self.shop = Shop(queue)
        module = ModuleType(f"comparison_{library}")
        monkeypatch.setitem(sys.modules, "shop", self.shop)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(HALVES[library]["python"], f"{PAGE}:{library}", "exec"), module.__dict__)
        self._module = module
        queue.work(module.worker)

    def tell(self, what: str, order: str) -> None:
        """`placed` or `paid`, a plain function or a coroutine."""
        done: Any = getattr(self._module, what)(order)
        if inspect.iscoroutine(done):
            self.queue.run(done)

    def state(self, order: str) -> str:
        return self.queue.client.get("orders.close", f"close-{order}").state


@pytest.fixture
def queue() -> Iterator[VirtualQueue]:
    with VirtualQueue() as opened:
        yield opened


def test_every_library_has_a_half_of_its_own_and_one_of_ours() -> None:
    assert {name: sorted(halves) for name, halves in HALVES.items()} == {name: ["py", "python"] for name in LIBRARIES}
    for name, halves in HALVES.items():
        compile(halves["py"], name, "exec")


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_order_is_closed_when_its_time_comes_unless_it_was_paid(
    library: str, queue: VirtualQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(library, queue, monkeypatch)
    program.tell("placed", "7")
    program.tell("placed", "8")
    queue.clock.advance(DUE_S - 1)
    program.tell("paid", "8")
    assert program.shop.asked == []
    queue.clock.advance(1)
    assert (program.state("7"), program.state("8")) == ("done", "cancelled")
    queue.clock.advance("1d")
    assert program.shop.asked == [("7", DUE_S)]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_shop_that_is_down_is_tried_again_at_the_times_of_the_other_half_and_then_the_job_is_dead(
    library: str, queue: VirtualQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(library, queue, monkeypatch)
    program.shop.failures = 1000
    program.tell("placed", "7")
    queue.clock.advance("1d")
    assert program.shop.asked == [("7", DUE_S + wait) for wait in WAITS_S[library]]
    assert [job.id for job in queue.client.dead("orders.close")] == ["close-7"]


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_shop_that_comes_back_closes_the_order(
    library: str, queue: VirtualQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(library, queue, monkeypatch)
    program.shop.failures = 2
    program.tell("placed", "7")
    queue.clock.advance("1d")
    assert program.shop.asked == [("7", DUE_S + wait) for wait in WAITS_S[library][:3]]
