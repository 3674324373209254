"""An event loop in virtual time: time stands still until a thread lets it pass, then jumps from timer to timer.

Everything on it uses virtual time: `asyncio.sleep`, timeouts, the engine, workers and their handlers. It runs in its
own thread. Other threads (of a test, or of its own event loops) submit work and wait in `wait_for`:

    the loop is idle           nothing is ready to run, and it waits for no function in another thread
    idle, a thread waits       time jumps to the next timer, but not past the waiter's limit
    idle, no thread waits      time stands still

`run_in_executor` runs functions in the waiting thread, one after the other. So a test and the plain functions of its
workers share one thread, and with it database connections and transactions. No time passes while such a function runs.

This relies on two documented features of asyncio, a loop's own selector and its method `time`, and on one private
attribute.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

GRACE_S = 0.2
RESOLUTION_S = 1e-6
CLEAN_UP_S = 60.0  # virtual time for tasks that are left at the end


class NothingWillHappen(RuntimeError):
    """The wait can never end: no timer is left that could make it happen."""


class Wait:
    """A thread that lets time pass: until `until_s`, or until `over` returns True. `reached` is set in the loop's
    thread. `nested` is set if it waits inside a plain function that the loop runs in its thread."""

    def __init__(self, until_s: float, over: Callable[[], bool]) -> None:
        self.until_s = until_s
        self.over = over
        self.nested = False
        self.reached: Future[None] = Future()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Create it in any thread, then call `start`. `attentive` means that something on the loop may wait for real
    sockets or threads: before time passes, they get `grace_s` real seconds to answer."""

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._now_s = 0.0
        self._waits: list[Wait] = []
        self._outside = 0  # calls of run_in_executor that have not returned
        self._errands: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()  # notified about new errands and finished waits
        self._here = threading.local()  # .busy: this thread is running an errand
        self._grace_s = grace_s
        self._owner = threading.current_thread()
        self._thread: threading.Thread | None = None
        self._known_threads: set[threading.Thread] = set()
        self.attentive: Callable[[], bool] = lambda: False
        super().__init__(_IdleSelector(self._idle))
        # asyncio's private attribute: timers closer than this are due. Its default is a nanosecond, which is lost to
        # rounding after 97 days; a timer that is due now would then never fire.
        self._clock_resolution = RESOLUTION_S

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now_s

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._turn, name="dueline-virtual-loop", daemon=True)
            self._thread.start()
            self._known_threads = {*threading.enumerate()}

    def end(self) -> None:
        """Cancel all tasks, stop and close. May be called twice and before `start`, but not from the loop itself."""
        if self.is_closed():
            return
        if self._thread is not None:
            self.call_soon_threadsafe(self.stop)
            self._thread.join()
        self.close()

    @property
    def inside(self) -> bool:
        """Whether this is the loop's own thread, which must not block on itself."""
        return self._thread is threading.current_thread()

    # -- from other threads

    def wait_for(self, work: Future[T], errands: bool = True) -> T:
        """Let as much time pass as `work` needs, and return its result. With `errands`, this thread runs plain
        functions for the loop meanwhile."""
        wait = Wait(math.inf, work.done)
        # The loop checks `over` only when it is idle, so wake it if `work` is completed from outside.
        work.add_done_callback(lambda _: None if self.is_closed() else self.call_soon_threadsafe(_nothing))
        self._wait(lambda: wait, errands)
        return work.result()

    def settled(self, work: Future[T], may_wait: bool = False) -> T:
        """The result of `work`. In the thread that made the loop, its immediate consequences have happened too.

        Other threads run no errands while they wait for an immediate answer: plain functions belong in that first
        thread."""
        if self._owner is not threading.current_thread():
            return self.wait_for(work, errands=may_wait)
        try:
            return self.wait_for(work)
        finally:
            if not getattr(self._here, "busy", False):
                self.pass_time(0)

    def pass_time(self, by_s: float) -> None:
        """Let time pass, and return when everything that follows from it has happened. 0 runs what is due now."""
        self._wait(lambda: Wait(self._now_s + by_s, _never), errands=True)

    def _wait(self, make: Callable[[], Wait], errands: bool) -> None:
        """Wait, and meanwhile run the loop's errands in this thread. While a plain function waits here, the loop does
        not wait for that function."""
        if self.inside:
            raise RuntimeError(
                "this thread is the event loop and cannot wait for itself: use the async form, and await it"
            )
        nested = getattr(self._here, "busy", False)
        reached: Future[None] = Future()
        reached.add_done_callback(self._tell)

        def begin() -> None:
            wait = make()
            wait.reached, wait.nested = reached, nested
            self._outside -= nested
            self._waits.append(wait)

        self.call_soon_threadsafe(begin)
        try:
            while errand := self._next_errand(reached, errands):
                errand()
        finally:
            self.call_soon_threadsafe(self._went_on, reached)
        reached.result()

    def _next_errand(self, reached: Future[None], errands: bool) -> Callable[[], None] | None:
        with self._changed:
            self._changed.wait_for(lambda: reached.done() or (errands and self._errands))
            return None if reached.done() else self._errands.popleft()

    def _tell(self, _: object = None) -> None:
        with self._changed:
            self._changed.notify_all()

    def _went_on(self, reached: Future[None]) -> None:
        """A thread has stopped waiting. If its wait is still listed, an exception ended it: clean up."""
        for wait in [wait for wait in self._waits if wait.reached is reached]:
            self._leave(wait)

    def _leave(self, wait: Wait) -> None:
        """A wait is over. The function that waited counts as running again, even before its thread resumes."""
        self._waits.remove(wait)
        self._outside += wait.nested

    # -- on the loop

    def run_in_executor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run the function in the thread that waits for this loop; `executor` is ignored."""
        result: asyncio.Future[T] = self.create_future()
        self._outside += 1

        def errand() -> None:
            value: T | None = None
            error: BaseException | None = None
            before, self._here.busy = getattr(self._here, "busy", False), True
            try:
                value = func(*args)
            except Exception as raised:
                error = raised
            except BaseException as raised:  # the end of the test: Ctrl-C, pytest.fail(), sys.exit()
                error = RuntimeError(f"a function ended with {type(raised).__name__}")
                raise
            finally:
                self._here.busy = before
                self.call_soon_threadsafe(come_back, value, error)

        def come_back(value: Any, error: BaseException | None) -> None:
            self._outside -= 1
            if result.cancelled():
                return
            if error is None:
                result.set_result(value)
            elif isinstance(error, StopIteration):  # the only exception that a future does not accept
                result.set_exception(RuntimeError(f"a function raised {error!r}"))
            else:
                result.set_exception(error)

        def drop(_: object) -> None:
            """Remove a call that was cancelled before it started."""
            with self._changed:
                if errand in self._errands:
                    self._errands.remove(errand)
                    self._outside -= 1

        result.add_done_callback(drop)
        with self._changed:
            self._errands.append(errand)
            self._changed.notify_all()
        return result

    def _turn(self) -> None:
        asyncio.set_event_loop(self)
        self.run_forever()
        left = asyncio.all_tasks(self)
        if left:
            self._outside, self._waits = 0, []
            self.run_until_complete(self._cancelled(left))

    async def _cancelled(self, tasks: set[asyncio.Task[Any]]) -> None:
        """Cancel the remaining tasks, and let them clean up in virtual time."""
        for task in tasks:
            task.cancel()
        ending = asyncio.ensure_future(asyncio.wait(tasks, timeout=CLEAN_UP_S))
        self._waits.append(Wait(math.inf, ending.done))
        await ending

    def _idle(self, timeout_s: float | None, real: selectors.BaseSelector) -> list[_Ready]:
        """Called when nothing is ready. The next timer is `timeout_s` away (None: there is none)."""
        if self._reached(lambda wait: wait.over()):
            return []
        if self._outside or not self._waits:
            return real.select(None)
        if self._expects(real) and (events := real.select(self._grace_s)):
            return events
        # Nested waits go first, because the outer waits cannot end before them.
        deciding = [wait for wait in self._waits if wait.nested] or self._waits
        if deciding is self._waits and self._reached(lambda wait: wait.until_s <= self._now_s):
            return []
        next_s = math.inf if timeout_s is None else self._now_s + timeout_s
        next_s = min(next_s, *(wait.until_s for wait in deciding))
        if next_s < math.inf:
            self._now_s = next_s
            return []
        return self._stuck(real)

    def _expects(self, real: selectors.BaseSelector) -> bool:
        """Whether an answer from outside may be pending: a socket is open, or a thread was started since."""
        if not self.attentive():
            return False
        return len(real.get_map()) > 1 or not self._known_threads.issuperset(threading.enumerate())

    def _reached(self, ends: Callable[[Wait], bool]) -> bool:
        """Wake the threads whose waits are over. True if there were any."""
        ended = [wait for wait in self._waits if ends(wait)]
        for wait in ended:
            self._leave(wait)
            wait.reached.set_result(None)
        return bool(ended)

    def _stuck(self, real: selectors.BaseSelector) -> list[_Ready]:
        """No timer is left, and no wait has an end. Allow a moment for something from outside, then fail the waits."""
        if events := real.select(self._grace_s):
            return events
        for wait in [*self._waits]:
            self._leave(wait)
            wait.reached.set_exception(NothingWillHappen("this waits for something that will never happen"))
        return []


_Ready = tuple[selectors.SelectorKey, int]


class _IdleSelector(selectors.BaseSelector):
    """The real selector, which calls the loop before it sleeps."""

    def __init__(self, idle: Callable[[float | None, selectors.BaseSelector], list[_Ready]]) -> None:
        self._real = selectors.DefaultSelector()
        self._idle = idle

    def select(self, timeout: float | None = None) -> list[_Ready]:
        events = self._real.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        return self._idle(timeout, self._real)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


def _never() -> bool:
    return False


def _nothing() -> None:
    """Wakes the loop up."""
