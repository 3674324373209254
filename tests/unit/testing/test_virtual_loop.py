"""The event loop of a test's queue: time that passes only when somebody lets it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from dueline.testing.virtual_loop import NothingWillHappen, VirtualLoop

DAY_S = 86_400.0


@pytest.fixture
def grace_s() -> float:
    return 0.05


@pytest.fixture
def loop(grace_s: float) -> Iterator[VirtualLoop]:
    loop = VirtualLoop(grace_s)
    loop.start()
    yield loop
    loop.end()


def begin(loop: VirtualLoop, work: Coroutine[Any, Any, Any]) -> Future[Any]:
    return asyncio.run_coroutine_threadsafe(work, loop)


def test_time_stands_still_until_somebody_lets_it_pass(loop: VirtualLoop) -> None:
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((name, loop.time()))

    for name, seconds in (("late", 3.0), ("soon", 1.0), ("next year", 366 * DAY_S)):
        begin(loop, sleeper(name, seconds))
    loop.pass_time(0)
    assert (seen, loop.time()) == ([], 0.0)
    loop.pass_time(2.0)
    assert (seen, loop.time()) == ([("soon", 1.0)], 2.0)
    loop.pass_time(400 * DAY_S)
    assert seen == [("soon", 1.0), ("late", 3.0), ("next year", 366 * DAY_S)]
    assert loop.time() == 2.0 + 400 * DAY_S


def test_a_timer_that_is_due_now_fires_after_any_number_of_days(loop: VirtualLoop) -> None:
    """The sum of a large time and a nanosecond is the large time: asyncio's own resolution is lost there."""

    async def steps() -> int:
        for step in range(200):
            await asyncio.sleep(0.1 + step * 7919.7)
        return 200

    loop.pass_time(1000 * DAY_S + 0.1)
    assert loop.wait_for(begin(loop, steps())) == 200


def test_waiting_for_a_result_lets_as_much_time_pass_as_it_needs(loop: VirtualLoop) -> None:
    assert loop.wait_for(begin(loop, asyncio.sleep(15 * DAY_S, "done"))) == "done"
    assert loop.time() == 15 * DAY_S
    with pytest.raises(TimeoutError):
        loop.wait_for(begin(loop, asyncio.wait_for(asyncio.Event().wait(), 60)))
    assert loop.time() == 15 * DAY_S + 60


def test_plain_functions_run_in_the_thread_that_waits_and_no_time_passes_meanwhile(loop: VirtualLoop) -> None:
    async def work() -> tuple[threading.Thread, float]:
        await asyncio.sleep(5)
        return await asyncio.to_thread(lambda: (threading.current_thread(), loop.time()))

    begin(loop, asyncio.sleep(6))
    assert loop.wait_for(begin(loop, work())) == (threading.current_thread(), 5.0)
    assert loop.time() == 5.0


def test_a_plain_function_may_itself_wait_for_the_loop(loop: VirtualLoop) -> None:
    def ask() -> str:
        return loop.wait_for(begin(loop, asyncio.sleep(10, "answer")))

    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(5)
        done.append(await asyncio.to_thread(ask))

    begin(loop, work())
    loop.pass_time(6)
    assert (done, loop.time()) == (["answer"], 15.0)


def test_what_a_plain_function_raises_belongs_to_who_awaits_it(loop: VirtualLoop) -> None:
    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(ZeroDivisionError):
        loop.wait_for(begin(loop, asyncio.to_thread(fail, ZeroDivisionError())))
    with pytest.raises(RuntimeError, match="StopIteration"):
        loop.wait_for(begin(loop, asyncio.to_thread(fail, StopIteration(1))))
    with pytest.raises(pytest.fail.Exception, match="the test ends here"):
        loop.wait_for(begin(loop, asyncio.to_thread(lambda: pytest.fail("the test ends here"))))
    loop.pass_time(1)
    assert loop.time() == 1.0


def test_waiting_for_what_will_never_happen_is_an_error(loop: VirtualLoop) -> None:
    never = begin(loop, asyncio.Event().wait())
    with pytest.raises(NothingWillHappen):
        loop.wait_for(never)
    never.cancel()


def test_the_loop_cannot_wait_for_itself(loop: VirtualLoop) -> None:
    async def wrong() -> None:
        loop.pass_time(1)

    with pytest.raises(RuntimeError, match="cannot wait for itself"):
        loop.wait_for(begin(loop, wrong()))


@pytest.mark.parametrize("grace_s", [20.0], ids=[""])
def test_real_sockets_are_answered_before_time_passes(loop: VirtualLoop) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    idle = threading.Event()
    loop.attentive = lambda: idle.set() is None  # asked when nothing is left to do but to let time pass

    async def ask() -> tuple[bytes, float]:
        async with asyncio.timeout(1):
            await loop.sock_sendall(near, b"?")
            return await loop.sock_recv(near, 1), loop.time()

    def answer() -> None:
        idle.wait(5)
        far.recv(1)
        far.sendall(b"!")

    with near, far:
        other = threading.Thread(target=answer)
        other.start()
        assert loop.wait_for(begin(loop, ask())) == (b"!", 0.0)
        other.join()


async def test_threads_and_other_loops_may_wait_at_the_same_time(loop: VirtualLoop) -> None:
    async def one(seconds: float) -> float:
        work = begin(loop, asyncio.sleep(seconds, seconds))
        return await asyncio.to_thread(loop.wait_for, work)

    assert await asyncio.gather(*(one(seconds) for seconds in (3, 1, 2))) == [3, 1, 2]
    assert loop.time() >= 3


def test_it_may_be_ended_twice_and_before_it_was_started() -> None:
    loop = VirtualLoop()
    loop.end()
    loop.end()
    assert loop.is_closed()


def test_what_is_left_at_the_end_is_cancelled_and_cleans_up_in_virtual_time() -> None:
    seen: list[str] = []

    async def tidy() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(5)
            seen.append("tidied up")

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("not me")

    loop = VirtualLoop()
    loop.start()
    begin(loop, tidy())
    begin(loop, stubborn())
    loop.pass_time(1)
    loop.end()
    assert sorted(seen) == ["not me", "tidied up"]
    assert loop.time() == 61.0
