"""Threads that cannot be ended, and how many of them there may be."""

from __future__ import annotations

import asyncio
import threading

import pytest

from .kit import WITHIN_S, WorkerKit, worker_kit


class Hung:
    """A handler that does not end before it is let go, and how many threads are inside it."""

    def __init__(self) -> None:
        self.begun = 0
        self.inside = 0
        self.most = 0
        self._lock = threading.Condition()
        self._free = threading.Event()

    def __call__(self, n: int) -> None:
        with self._lock:
            self.begun += 1
            self.inside += 1
            self.most = max(self.most, self.inside)
        self._free.wait(WITHIN_S)
        with self._lock:
            self.inside -= 1
            self._lock.notify_all()

    def let_go(self) -> None:
        self._free.set()

    async def left(self) -> bool:
        """Whether all threads left in time."""
        return await asyncio.to_thread(self._wait)

    def _wait(self) -> bool:
        with self._lock:
            return self._lock.wait_for(lambda: not self.inside, WITHIN_S)


async def turned(kit: WorkerKit) -> None:
    """The loop has turned for as long as a job takes: whoever could pull has pulled."""
    for n in range(3):
        await kit.queue.send("other", n, id=(id := f"turn{n}"))
        await kit.ended(id, "other")


@pytest.mark.parametrize("options", [{}, {"concurrency": 2}])
async def test_threads_that_hang_give_their_places_away_until_there_are_as_many_of_them_as_places(
    options: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    async with worker_kit(threads=2) as kit:
        hung = Hung()

        @kit.worker.handles("t", timeout="1s", max_attempts=1, **options)
        def handle(n: int) -> None:
            hung(n)

        @kit.worker.handles("other")
        async def other(n: int) -> None: ...

        await kit.worker.start()
        for n in range(12):
            await handle.asend(n, id=f"a{n}")
        for n in range(4):
            job = await kit.ended(f"a{n}")
            assert (job.state, (job.last_error or "").endswith("did not end within 1 s")) == ("dead", True)
        await turned(kit)
        states = [(await kit.queue.get("t", f"a{n}")).state for n in range(12)]
        assert (states, hung.begun, hung.inside) == (["dead"] * 4 + ["ready"] * 8, 4, 4)
        assert "4 threads hang in handlers of t and count towards its concurrency" in caplog.text
        hung.let_go()
        for n in range(4, 12):
            assert (await kit.ended(f"a{n}")).state == "done"
        assert (await hung.left(), hung.begun, hung.most) == (True, 12, 4)


async def test_several_functions_of_a_topic_that_hang_are_bounded_too() -> None:
    async with worker_kit() as kit:
        hung = Hung()

        @kit.worker.handles("t", timeout="1s", max_attempts=1, concurrency=1)
        def first(n: int) -> None:
            hung(n)

        @kit.worker.handles("t", timeout="1s")
        def second(n: int) -> None:
            hung(n)

        @kit.worker.handles("other")
        async def other(n: int) -> None: ...

        await kit.worker.start()
        for n in range(8):
            await first.asend(n, id=f"a{n}")
        await kit.ended("a0")
        await turned(kit)
        assert (hung.begun, hung.inside) == (2, 2)
        assert (await kit.queue.get("t", "a1")).state == "ready"
        hung.let_go()
        for n in range(1, 8):
            assert (await kit.ended(f"a{n}")).state == "done"


async def test_a_thread_that_comes_back_gives_its_place_back() -> None:
    async with worker_kit() as kit:
        gates = [threading.Semaphore(0) for _ in range(3)]

        @kit.worker.handles("t", timeout="1s", max_attempts=1, concurrency=1)
        def handle(n: int) -> None:
            gates[n].acquire(timeout=WITHIN_S)

        await kit.worker.start()
        for n in range(3):
            await handle.asend(n, id=f"a{n}")
        for n in range(2):
            assert (await kit.ended(f"a{n}")).state == "dead"
        assert (await kit.queue.get("t", "a2")).state == "ready"
        gates[0].release()
        assert (await kit.ended("a2")).state == "dead", "it was begun, and it hangs as well"
        for gate in gates[1:]:
            gate.release()
        gates[0].release()
        await handle.asend(0, id="a3")
        assert (await kit.ended("a3")).state == "done"
