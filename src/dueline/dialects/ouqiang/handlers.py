"""The five operations: decode, call the engine, encode.

Ids are unique across all topics and calls carry no token: finish and delete end a job in any topic, whoever holds its
lease. The original has no limits for names: a push refuses a name that we cannot store, and all other operations treat
it as unknown.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ...engine.checks import HARD_BODY_BYTES
from ...engine.commands import Pull, Send
from ...engine.completion import PendingCall, leave
from ...engine.engine import Engine
from ...engine.errors import Draining, DuelineError, NotFound
from ...engine.job import ENDED, BodyKind, LeasedJob
from ...engine.limits import is_name
from ...engine.policy import AT_ONCE
from ...engine.store import Code, OnConflict
from ..http import Answer, Request, Response
from . import decode, encode
from .settings import OuqiangSettings

CALM_S = 0.9  # minimum time before a pop reports a failure, because the PHP worker retries without a pause


class OuqiangHandlers:
    """Each method is named after its path."""

    def __init__(self, engine: Engine, settings: OuqiangSettings) -> None:
        self._engine = engine
        self._namespace = settings.namespace
        self._hold_ms = min(settings.hold_ms, engine.limits.max_wait_ms)

    def push(self, request: Request, answer: Answer) -> None:
        parsed = decode.push(request.body)
        request.check_topic(parsed.topic)
        request.check_own_id(self._engine.has_namespace_ids(self._namespace))
        command = Send(
            id=parsed.id,
            body=parsed.body.encode(),
            kind=BodyKind.TEXT,
            delay_ms=parsed.delay_s * 1000,
            lease_ms=parsed.ttr_s * 1000,
            ttl_ms=None,
            max_attempts=None,
            retry=AT_ONCE,
            on_conflict=OnConflict.REPLACE,
            retain_ms=0,
            max_body_bytes=HARD_BODY_BYTES,
            any_delay=True,
        )
        on_reply = partial(_answered, answer, encode.PUSHED)
        self._engine.post_send(self._namespace, parsed.topic, command, request.grant, on_reply)

    def pop(self, request: Request, answer: Answer) -> PendingCall:
        named = decode.pop(request.body)
        for name in named:
            request.check_topic(name)
        topics = tuple(name for name in named if is_name(name))
        on_reply = partial(self._popped, asyncio.get_running_loop().time(), answer)
        if not topics:  # only commas, for example: no job can be there
            return leave(self._idle(), on_reply)
        try:
            return self._engine.post_pull(
                Pull(self._namespace, topics, 1, None, self._hold_ms, fails_fast=True), on_reply
            )
        except DuelineError as error:
            return leave(self._calmly(asyncio.get_running_loop().time(), error), answer)

    def _popped(self, begun_s: float, answer: Answer, jobs: list[LeasedJob] | BaseException) -> None:
        if isinstance(jobs, DuelineError):
            leave(self._calmly(begun_s, jobs), answer)
        elif isinstance(jobs, BaseException):
            answer(jobs)
        elif not jobs:
            answer(encode.OK)
        else:
            response = encode.leased(jobs[0])
            response.undelivered = partial(self._engine.undelivered, self._namespace, jobs)
            answer(response)

    async def _idle(self) -> list[LeasedJob]:
        await self._engine.idle(self._hold_ms)
        return []

    async def _calmly(self, begun_s: float, error: DuelineError) -> Response:
        if not isinstance(error, Draining):
            spent_s = asyncio.get_running_loop().time() - begun_s
            await asyncio.sleep(max(0.0, min(CALM_S, self._hold_ms / 1000) - spent_s))
        raise error

    def finish(self, request: Request, answer: Answer) -> None:
        """Finish the job, whatever its state. An unknown id is a success."""
        id = decode.job_id(request.body)
        request.check_all_topics()
        if is_name(id):
            self._engine.post_ack_by_id(self._namespace, [id], partial(_answered, answer, encode.OK))
        else:
            answer(encode.OK)

    async def delete(self, request: Request) -> Response:
        """The same as finish for the client. The engine records a cancelled job, not a done one."""
        id = decode.job_id(request.body)
        request.describe(ids=[id])
        request.check_all_topics()
        done = await self._engine.cancel_by_id(self._namespace, [id]) if is_name(id) else []
        request.describe(changed=sum(one.code is Code.OK for one in done))
        return encode.answer(0, encode.DONE)

    async def get(self, request: Request) -> Response:
        id = decode.job_id(request.body)
        request.check_all_topics()
        try:
            job = await self._engine.get_by_id(self._namespace, id) if is_name(id) else None
        except NotFound:
            job = None
        return encode.answer(0, encode.DONE) if job is None or job.state in ENDED else encode.found(job)


def _answered(answer: Answer, response: Response, done: object) -> None:
    answer(done if isinstance(done, BaseException) else response)
