"""What becomes of jobs in the hands of a worker, on the reference store."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from dueline.api.answers import Outcome
from dueline.client.errors import LeaseLost, Unavailable
from dueline.worker import CallNext, Context, Discard, Retry, Snooze, Verdict, Worker
from tests.kit.waiting import turns

from .kit import WITHIN_S, worker_kit


class Order(msgspec.Struct):
    order: int


async def test_a_job_is_handled_with_its_body_and_its_context_and_acked() -> None:
    async with worker_kit() as kit:
        seen: list[Any] = []

        @kit.worker.handles("t")
        async def handle(order: Order, context: Context) -> None:
            seen.append((order, context.id, context.topic, context.attempt, context.delivery, context.max_attempts))
            seen.append((dict(context.headers), context.tags, context.items, context.stopping))

        await kit.worker.start()
        sent = await handle.asend(Order(7), id="a", tags=["x"], headers={"k": "v"})
        assert (await kit.ended("a")).state == "done"
        assert sent.result == "created"
        assert seen == [(Order(7), "a", "t", 1, 1, 20), ({"k": "v"}, ("x",), None, False)]


async def test_a_failure_is_released_by_the_retry_policy_with_its_traceback_until_the_job_is_dead() -> None:
    async with worker_kit() as kit:
        attempts: list[int] = []

        @kit.worker.handles("t", retry=["1ms", "2ms"])
        async def handle(order: Order, context: Context) -> None:
            attempts.append(context.attempt)
            raise LookupError(f"no order {order.order}")

        await kit.worker.start()
        await handle.asend({"order": 7}, id="a")
        job = await kit.ended("a")
        assert (job.state, job.reason, job.attempts, attempts) == ("dead", "exhausted", 3, [1, 2, 3])
        assert job.last_error is not None
        first, second, third, *_ = job.last_error.splitlines()
        assert first.startswith(f"{__file__}:")
        assert first.endswith(" in handle")
        assert (second, third.split(",")[0]) == ("Traceback (most recent call last):", f'  File "{__file__}"')
        assert job.last_error.endswith("LookupError: no order 7")


DEEP = 100_000


@pytest.mark.parametrize("mode", ["async", "thread"])
@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({"order": "seven"}, "Expected `int`, got `str` - at `$.order`"),
        (b'{"order":7,"more":' + b"[" * DEEP, "maximum recursion depth exceeded while deserializing an object"),
    ],
)
async def test_a_body_that_does_not_fit_is_dead_at_its_first_attempt_and_says_why(
    mode: Any, body: Any, wrong: str
) -> None:
    async with worker_kit() as kit:

        def called(order: Order) -> None:
            raise AssertionError(order)

        async def awaited(order: Order) -> None:
            called(order)

        handle: Any = kit.worker.handles("t", mode=mode)(called if mode == "thread" else awaited)
        await kit.worker.start()
        await handle.asend(body, id="a")
        job = await kit.ended("a")
        assert (job.state, job.reason, job.attempts) == ("dead", "rejected", 1)
        assert job.last_error == f"the body is not what {handle.handler.name} asks for: {wrong}"


class Checked(msgspec.Struct):
    order: int

    def __post_init__(self) -> None:
        raise ConnectionError("the database of orders is away")


async def test_a_type_whose_own_check_breaks_is_a_failure_like_any_other() -> None:
    async with worker_kit() as kit:

        @kit.worker.handles("t", max_attempts=2)
        async def handle(order: Checked) -> None: ...

        await kit.worker.start()
        await handle.asend({"order": 7}, id="a")
        job = await kit.ended("a")
        assert (job.state, job.reason, job.attempts) == ("dead", "exhausted", 2)
        assert (job.last_error or "").endswith("ConnectionError: the database of orders is away")


@pytest.mark.parametrize("how", ["raise", "return"])
async def test_retry_snooze_and_discard_do_what_they_say(how: str) -> None:
    async with worker_kit() as kit:
        words: dict[str, Exception] = {
            "retry": Retry("bank is closed", delay="1h"),
            "snooze": Snooze("2h", "too early"),
            "discard": Discard("no such order"),
        }

        @kit.worker.handles("t")
        async def handle(word: str) -> Any:
            if how == "raise":
                raise words[word]
            return words[word]

        await kit.worker.start()
        for word in words:
            await handle.asend(word, id=word)
        found = {id: await kit.until(id, "scheduled", "dead") for id in words}
        assert {id: (job.state, job.reason, job.attempts, job.last_error) for id, job in found.items()} == {
            "retry": ("scheduled", None, 1, "bank is closed"),
            "snooze": ("scheduled", None, 0, "too early"),
            "discard": ("dead", "rejected", 1, "no such order"),
        }
        assert found["snooze"].due_at_ms - found["retry"].due_at_ms > 3_500_000


async def test_all_handlers_of_a_topic_run_also_after_one_that_failed_and_a_retry_runs_all_again() -> None:
    async with worker_kit() as kit:
        ran: list[str] = []

        @kit.worker.handles("t")
        async def first(order: Order, context: Context) -> None:
            ran.append("first")
            if context.attempt == 1:
                raise ValueError

        @kit.worker.handles("t")
        def second(order: Order) -> None:
            ran.append("second")

        await kit.worker.start()
        await first.asend({"order": 1}, id="a")
        assert (await kit.ended("a")).state == "done"
        assert ran == ["first", "second", "first", "second"]


async def test_a_plain_function_runs_in_a_thread_may_send_and_extend() -> None:
    async with worker_kit() as kit:
        seen: list[Any] = []

        @kit.worker.handles("t")
        def handle(order: Order, context: Context) -> None:
            before = context.lease_until_ms
            context.extend("10m")
            seen.append((threading.current_thread().name, context.lease_until_ms - before > 500_000))
            later.send({"order": 8}, id="b", delay="30m")
            later.reschedule("b", delay="1h")

        @kit.worker.handles("later")
        async def later(order: Order) -> None: ...

        await kit.worker.start()
        await handle.asend({"order": 7}, id="a")
        assert (await kit.ended("a")).state == "done"
        assert seen == [("dueline-handler", True)]
        job = await kit.queue.get("later", "b")
        assert job.due_at_ms - job.created_at_ms > 3_500_000
        assert (await later.acancel("b")).result == "cancelled"


async def test_a_handler_cannot_end_the_worker() -> None:
    async with worker_kit() as kit:

        @kit.worker.handles("t", max_attempts=1)
        async def in_the_loop(order: Order) -> None:
            raise SystemExit(3)

        @kit.worker.handles("u", max_attempts=1)
        def in_a_thread(order: Order) -> None:
            raise SystemExit(3)

        @kit.worker.handles("v", max_attempts=1)
        def stops(order: Order) -> None:
            raise StopIteration(3)

        @kit.worker.handles("w", max_attempts=1)
        async def cancels_itself(order: Order) -> None:
            raise asyncio.CancelledError

        await kit.worker.start()
        for topic, handle in (("t", in_the_loop), ("u", in_a_thread), ("v", stops), ("w", cancels_itself)):
            await handle.asend({"order": 1}, id="a")
            job = await kit.ended("a", topic)
            assert (job.state, job.reason) == ("dead", "exhausted"), topic
            assert "raised" in (job.last_error or "") or "cancelled from inside" in (job.last_error or "")


async def test_a_middleware_cannot_end_the_worker() -> None:
    async def exits(context: Context, call_next: CallNext) -> Verdict | None:
        await call_next(context)
        raise SystemExit(3)

    async with worker_kit(middleware=[exits]) as kit:

        @kit.worker.handles("t", max_attempts=1)
        async def handle(order: Order) -> None: ...

        await kit.worker.start()
        await handle.asend({"order": 1}, id="a")
        job = await kit.ended("a")
        assert (job.state, job.reason) == ("dead", "exhausted")
        assert (job.last_error or "").endswith("RuntimeError: a middleware raised SystemExit(3)")


async def test_a_blocking_send_in_a_coroutine_is_refused_and_names_the_other_one() -> None:
    async with worker_kit() as kit:

        @kit.worker.handles("t")
        async def handle(order: Order) -> None: ...

        with pytest.raises(RuntimeError, match="await asend"):
            handle.send({"order": 1})
        assert (await handle.asend({"order": 1})).result == "created", "before it runs its own queue is used"


async def test_a_timeout_fails_a_coroutine_and_a_thread_and_tells_so() -> None:
    async with worker_kit() as kit:
        cancelled = asyncio.Event()
        free = threading.Event()

        @kit.worker.handles("t", timeout="20ms", max_attempts=1)
        async def in_the_loop(order: Order) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        @kit.worker.handles("u", timeout="20ms", max_attempts=1)
        def in_a_thread(order: Order) -> None:
            free.wait(WITHIN_S)

        @kit.worker.handles("v", timeout="10s", max_attempts=1)
        async def own_timeout(order: Order) -> None:
            raise TimeoutError("the bank did not answer")

        await kit.worker.start()
        for handle in (in_the_loop, in_a_thread, own_timeout):
            await handle.asend({"order": 1}, id="a")
        errors = {topic: (await kit.ended("a", topic)).last_error or "" for topic in ("t", "u", "v")}
        assert cancelled.is_set()
        assert errors["t"].endswith("in_the_loop did not end within 0.02 s")
        assert errors["u"].endswith("in_a_thread did not end within 0.02 s")
        assert errors["v"].endswith("TimeoutError: the bank did not answer")
        free.set()


async def test_the_lease_is_extended_while_a_handler_runs() -> None:
    async with worker_kit(lease="1s") as kit:
        enough = asyncio.Event()

        @kit.worker.handles("t")
        async def handle(order: Order, context: Context) -> None:
            first = context.lease_until_ms
            while context.lease_until_ms < first + 1_200:
                await kit.queue.changed()
            enough.set()

        await kit.worker.start()
        await handle.asend({"order": 1}, id="a")
        async with asyncio.timeout(WITHIN_S):
            await enough.wait()
        job = await kit.ended("a")
        assert (job.state, job.attempts) == ("done", 1)
        assert kit.queue.extended >= 2


async def test_a_cancelled_job_cancels_its_coroutine_and_its_outcome_is_dropped() -> None:
    async with worker_kit(lease="1s") as kit:
        running, ended = asyncio.Event(), asyncio.Event()

        @kit.worker.handles("t")
        async def handle(order: Order) -> None:
            running.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        await kit.worker.start()
        await handle.asend({"order": 1}, id="a")
        async with asyncio.timeout(WITHIN_S):
            await running.wait()
            await handle.acancel("a")
            await ended.wait()
        assert (await kit.queue.get("t", "a")).state == "cancelled"


async def test_extending_a_lost_lease_by_hand_says_so() -> None:
    async with worker_kit() as kit:
        answers: list[str] = []

        @kit.worker.handles("t")
        async def handle(order: Order, context: Context) -> None:
            await handle.acancel("a")
            try:
                await context.aextend("1m")
            except LeaseLost as lost:
                answers.append(lost.code)

        await kit.worker.start()
        await handle.asend({"order": 1}, id="a")
        await kit.until("a", "cancelled")
        async with asyncio.timeout(WITHIN_S):
            while not answers:
                await kit.queue.changed()
        assert answers == ["lease_lost"]


async def test_a_stop_lets_handlers_end_within_the_grace_and_pulls_no_more() -> None:
    async with worker_kit() as kit:
        running, free = asyncio.Event(), asyncio.Event()
        stopping: list[bool] = []

        @kit.worker.handles("t", concurrency=1)
        async def handle(order: Order, context: Context) -> None:
            running.set()
            await free.wait()
            stopping.append(context.stopping)

        await kit.worker.start()
        await handle.asend({"order": 1}, id="a")
        await handle.asend({"order": 2}, id="b")
        async with asyncio.timeout(WITHIN_S):
            await running.wait()
        stop = asyncio.create_task(kit.worker.stop("1m"))
        await turns()
        free.set()
        await stop
        assert stopping == [True]
        assert {id: (await kit.queue.get("t", id)).state for id in "ab"} == {"a": "done", "b": "ready"}


async def test_what_does_not_end_within_the_grace_is_given_back_without_costing_an_attempt() -> None:
    async with worker_kit() as kit:
        running = asyncio.Semaphore(0)
        free = threading.Event()

        @kit.worker.handles("t", max_attempts=1)
        async def in_the_loop(order: Order) -> None:
            running.release()
            await asyncio.Event().wait()

        @kit.worker.handles("u", max_attempts=1)
        def in_a_thread(order: Order, context: Context) -> None:
            asyncio.run_coroutine_threadsafe(report(), loop)
            free.wait(WITHIN_S)

        async def report() -> None:
            running.release()

        loop = asyncio.get_running_loop()
        await kit.worker.start()
        await in_the_loop.asend({"order": 1}, id="a")
        await in_a_thread.asend({"order": 1}, id="a")
        async with asyncio.timeout(WITHIN_S):
            await running.acquire()
            await running.acquire()
        await kit.worker.stop(0)
        found = {topic: await kit.queue.get(topic, "a") for topic in "tu"}
        assert {topic: (job.state, job.attempts) for topic, job in found.items()} == {
            "t": ("ready", 0),
            "u": ("ready", 0),
        }
        free.set()


async def test_a_coroutine_that_finishes_while_it_is_cancelled_is_done() -> None:
    async with worker_kit() as kit:
        running = asyncio.Event()

        @kit.worker.handles("t")
        async def handle(order: Order) -> None:
            running.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return  # it had nothing left to do

        await kit.worker.start()
        await handle.asend({"order": 1}, id="a")
        async with asyncio.timeout(WITHIN_S):
            await running.wait()
        await kit.worker.stop(0)
        assert (await kit.queue.get("t", "a")).state == "done"


async def test_a_worker_that_starts_again_gets_what_became_due_meanwhile() -> None:
    async with worker_kit() as kit:
        seen: list[int] = []

        @kit.worker.handles("t")
        async def handle(order: Order) -> None:
            seen.append(order.order)

        await kit.worker.start()
        await kit.worker.stop()
        await kit.worker.stop()
        for n in range(5):
            await handle.asend({"order": n}, id=f"a{n}")
        await kit.worker.start()
        for n in range(5):
            await kit.ended(f"a{n}")
        assert sorted(seen) == [0, 1, 2, 3, 4]


async def test_no_more_handlers_run_than_there_are_places() -> None:
    async with worker_kit() as kit:
        now, most = [0], [0]

        @kit.worker.handles("t", concurrency=3)
        async def handle(order: Order) -> None:
            now[0] += 1
            most[0] = max(most[0], now[0])
            await turns()
            now[0] -= 1

        for n in range(40):
            await handle.asend({"order": n}, id=f"a{n}")
        await kit.worker.start()
        for n in range(40):
            assert (await kit.ended(f"a{n}")).state == "done"
        assert most == [3]


async def test_topics_that_share_places_take_turns_at_being_first() -> None:
    async with worker_kit(concurrency=1) as kit:

        @kit.worker.handles("a")
        async def a(order: Order) -> None: ...

        @kit.worker.handles("b")
        async def b(order: Order) -> None: ...

        for n in range(4):
            await a.asend({"order": n}, id=f"a{n}")
            await b.asend({"order": n}, id=f"b{n}")
        await kit.worker.start()
        for n in range(4):
            await kit.ended(f"a{n}", "a")
            await kit.ended(f"b{n}", "b")
        assert set(kit.queue.pulls) == {("a", "b"), ("b", "a")}


async def test_middleware_sees_every_verdict_may_change_it_and_wraps_from_the_first_inwards() -> None:
    order: list[str] = []

    async def outer(context: Context, call_next: CallNext) -> Verdict:
        order.append("outer")
        verdict = await call_next(context)
        order.append(verdict.ending.name)
        return verdict

    async def inner(context: Context, call_next: CallNext) -> None:
        order.append("inner")
        verdict = await call_next(context)
        assert isinstance(verdict.exception, ValueError)
        raise Discard("the middleware has seen enough")

    async with worker_kit(middleware=[outer, inner]) as kit:

        @kit.worker.handles("t")
        async def handle(n: int) -> None:
            order.append("handler")
            raise ValueError

        await kit.worker.start()
        await handle.asend(1, id="a")
        job = await kit.ended("a")
        assert (job.state, job.reason, job.last_error) == ("dead", "rejected", "the middleware has seen enough")
        assert order == ["outer", "inner", "handler", "DISCARDED"]


async def test_a_middleware_that_says_nothing_changes_nothing_and_one_that_skips_all_is_a_failure() -> None:
    async def silent(context: Context, call_next: CallNext) -> None:
        if context.topic == "t":
            await call_next(context)

    async with worker_kit(middleware=[silent]) as kit:

        @kit.worker.handles("t", max_attempts=1)
        async def fails(n: int) -> None:
            raise ValueError("as before")

        @kit.worker.handles("u", max_attempts=1)
        async def never(n: int) -> None: ...

        await kit.worker.start()
        await fails.asend(1, id="a")
        await never.asend(1, id="a")
        assert ((await kit.ended("a")).last_error or "").endswith("as before")
        assert "neither called" in ((await kit.ended("a", "u")).last_error or "")


async def test_what_a_job_became_is_said_again_until_the_queue_has_heard_it() -> None:
    async with worker_kit() as kit:
        heard = kit.queue.ack
        away = [Unavailable("store_down", "away"), Unavailable("store_down", "still away")]

        async def deaf(jobs: Any) -> list[Outcome]:
            if away:
                raise away.pop()
            return await heard(jobs)

        kit.queue.ack = deaf  # type: ignore[method-assign]

        @kit.worker.handles("t")
        async def handle(n: int) -> None: ...

        await kit.worker.start()
        await handle.asend(1, id="a")
        assert (await kit.ended("a")).attempts == 1
        assert away == []


async def test_acks_that_come_together_travel_together() -> None:
    async with worker_kit() as kit:
        gate = asyncio.Event()

        @kit.worker.handles("t")
        async def handle(n: int) -> None:
            await gate.wait()

        for n in range(50):
            await handle.asend(n, id=f"a{n}")
        await kit.worker.start()
        async with asyncio.timeout(WITHIN_S):
            while (await kit.engine.topic("default", "t")).leased < 50:
                await kit.queue.changed()
        gate.set()
        for n in range(50):
            assert (await kit.ended(f"a{n}")).state == "done"
        assert sum(kit.queue.acks) == 50
        assert len(kit.queue.acks) <= 3


async def test_a_queue_that_is_away_when_pulled_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async with worker_kit() as kit:
        asked = kit.queue.pull
        away = [Unavailable("store_down", "away")]

        async def deaf(*args: Any) -> Any:
            if away:
                raise away.pop()
            return await asked(*args)

        kit.queue.pull = deaf  # type: ignore[method-assign]

        @kit.worker.handles("t")
        async def handle(n: int) -> None: ...

        await handle.asend(1, id="a")
        await kit.worker.start()
        assert (await kit.ended("a")).state == "done"
        assert "cannot pull ('t',): away" in caplog.text


async def test_the_policy_of_the_decorator_is_that_of_its_topic_unless_a_send_says_otherwise() -> None:
    async with worker_kit() as kit:

        @kit.worker.handles("t", max_attempts=3, retry=["1m", "5m"], lease="1m", ttl="1d")
        async def handle(n: int) -> None: ...

        await handle.asend(1, id="a", delay="1h")
        await handle.asend(1, id="b", delay="1h", max_attempts=2, lease="2m")
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        await handle.aat(tomorrow, 1, id="c")
        found = {id: await kit.queue.get("t", id) for id in "abc"}
        assert {id: (job.max_attempts, job.lease_ms, job.retry) for id, job in found.items()} == {
            "a": (3, None, {"ladder": ["1m", "5m"]}),
            "b": (2, 120_000, {"ladder": ["1m", "5m"]}),
            "c": (3, None, {"ladder": ["1m", "5m"]}),
        }
        assert (await kit.engine.topic("default", "t")).policy.lease_ms == 60_000
        assert 0 <= found["c"].due_at_ms - tomorrow.timestamp() * 1000 < 1.01
        assert found["a"].expires_at_ms == found["a"].due_at_ms + 86_400_000


async def test_a_merge_group_comes_as_one_list() -> None:
    async with worker_kit() as kit:
        seen: list[Any] = []

        @kit.worker.handles("t")
        async def digest(orders: list[Order], context: Context) -> None:
            seen.append((orders, context.items, context.merge_key))

        sent = await digest.asend({"order": 1}, merge={"key": "ann", "max_items": 2}, delay="1h")
        await digest.asend({"order": 2}, merge={"key": "ann", "max_items": 2})
        await kit.worker.start()
        assert (await kit.ended(sent.id)).state == "done"
        assert seen == [([Order(1), Order(2)], [{"order": 1}, {"order": 2}], "ann")]


async def test_a_worker_without_handlers_does_not_start_and_one_that_runs_takes_no_more() -> None:
    async with worker_kit() as kit:
        with pytest.raises(ValueError, match="handles nothing"):
            await kit.worker.start()

        @kit.worker.handles("t")
        async def handle(n: int) -> None: ...

        await kit.worker.start()
        await kit.worker.start()
        with pytest.raises(RuntimeError, match="the worker is running"):
            kit.worker.handles("u")(handle)


@pytest.mark.parametrize(
    "options", [{"concurrency": 0}, {"threads": 0}, {"processes": -1}, {"lease": "10ms"}, {"grace": "soon"}]
)
def test_options_that_cannot_be_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=r"concurrency|lease|grace"):
        Worker(**options)


async def test_retry_3_is_three_retries_after_the_first_attempt_and_a_send_may_say_otherwise() -> None:
    async with worker_kit() as kit:

        @kit.worker.handles("t", retry=3)
        async def handle(order: int) -> None: ...

        for id, options in {"a": {}, "b": {"retry": 1}, "c": {"max_attempts": 9}}.items():
            await handle.asend(1, id=id, delay="1h", **options)
        assert [(await kit.queue.get("t", id)).max_attempts for id in "abc"] == [4, 2, 9]


async def test_the_history_of_a_job_names_the_worker_that_had_it() -> None:
    async with worker_kit(name="press") as kit:

        @kit.worker.handles("t")
        async def handler(body: object) -> None: ...

        await kit.queue.send("t", 1, id="a")
        await kit.worker.start()
        await kit.ended("a")
        history = await kit.engine.history("default", "t", "a")
    assert [entry.what for entry in history.entries] == ["sent", "delivered", "acked"]
    assert (history.entries[1].by or "").startswith("press:")
