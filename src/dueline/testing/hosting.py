"""Runs workers inside a test's queue: on its event loop, in virtual time, with plain functions in the test's thread."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from ..api.reply import Reply
from ..client.calls import Call
from ..client.in_process import InProcessClient
from ..dialects.native.api import NativeApi
from ..dialects.native.wire import caller_of
from ..worker import CallNext, Context, Ending, Middleware, Queue, Retry, Verdict
from ..worker.client_queue import ClientQueue
from .local_client import UNJITTERED
from .recorder import HandledJob, Recorder
from .virtual_loop import VirtualLoop

T = TypeVar("T")

OUTCOMES = {Ending.DONE: "done", Ending.FAILED: "retry", Ending.SNOOZED: "snooze", Ending.DISCARDED: "discard"}


def patient_queue(api: NativeApi, namespace: str, longest_wait_ms: int) -> ClientQueue:
    """A queue whose waiting pulls never time out, because a virtual month of empty answers would only cost time."""

    async def ask(call: Call[Any]) -> Reply:
        if not call.wait_ms:
            return await api.answer(call.operation, namespace, call.params, call.request)
        request = msgspec.structs.replace(api.checked(call.operation, call.request), wait_ms=longest_wait_ms)
        return await api.handlers[call.operation](caller_of(namespace), request, *call.params)

    return ClientQueue(InProcessClient(ask, UNJITTERED), namespace=namespace)


class VirtualHost:
    """The `worker.host.Host` of a VirtualQueue. `running` counts the handlers that are running now."""

    def __init__(self, loop: VirtualLoop, queue: Queue, recorder: Recorder, now_ms: Callable[[], int]) -> None:
        self.queue: Queue = queue
        self.running = 0
        self._loop = loop
        self._recorder = recorder
        self._now_ms = now_ms

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        return (self._watch,)

    def do(self, ask: Callable[[Queue], Coroutine[Any, Any, T]]) -> T:
        return self._loop.settled(asyncio.run_coroutine_threadsafe(ask(self.queue), self._loop))

    async def ado(self, ask: Callable[[Queue], Coroutine[Any, Any, T]]) -> T:
        if self._loop.inside:
            return await ask(self.queue)
        asked = asyncio.run_coroutine_threadsafe(ask(self.queue), self._loop)
        return await asyncio.to_thread(self._loop.settled, asked)

    @property
    def here(self) -> bool:
        return self._loop.inside

    async def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.to_thread(self._loop.wait_for, asyncio.run_coroutine_threadsafe(work, self._loop))

    async def call(self, work: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(None, contextvars.copy_context().run, work)

    async def _watch(self, context: Context, call_next: CallNext) -> Verdict:
        """Record what a handler did."""
        at_ms = self._now_ms()
        self.running += 1
        try:
            verdict = await call_next(context)
        except asyncio.CancelledError:
            self._note(context, at_ms, "cancelled", None)
            raise
        finally:
            self.running -= 1
        failed = verdict.ending is Ending.FAILED and not isinstance(verdict.exception, Retry)
        self._note(context, at_ms, "failed" if failed else OUTCOMES[verdict.ending], verdict.exception)
        return verdict

    def _note(self, context: Context, at_ms: int, outcome: str, error: BaseException | None) -> None:
        job = context.job
        body = job.data if isinstance(job.body_base64, str) else job.json()
        self._recorder.note_handled(
            HandledJob(
                topic=job.topic,
                id=job.id,
                body=body,
                attempt=job.attempt,
                at_ms=at_ms,
                outcome=outcome,
                error=error,
            )
        )
