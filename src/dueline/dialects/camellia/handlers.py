"""The six operations: decode, call the engine, encode.

Acks carry no token. ack=true ends a message in any live state, whoever holds its lease; ack=false gives back only a
message that is being consumed. Both always answer success. The original has no limits for names: a send refuses a name
that we cannot store, and all other operations treat it as unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from ...engine.commands import Pull, Sent
from ...engine.completion import PendingCall, leave
from ...engine.engine import Engine
from ...engine.errors import Draining, NotFound, Unavailable
from ...engine.job import LeasedJob, Reason, State
from ...engine.limits import LAST_MS, Limits, is_name
from ...engine.store import Code, Ref, Release, Spare
from ...rights import Grant
from ..http import Answer, Request, Response
from . import decode, encode
from .monitor import Monitor
from .settings import CamelliaSettings

CALM_S = 1.0  # delay of a failed long poll's answer, because the SDK retries without a pause
SEND_TRIES = 4


class CamelliaHandlers:
    """Each method is named after its route. Sends, pulls and acks are lines (dialects.http)."""

    def __init__(self, engine: Engine, limits: Limits, settings: CamelliaSettings, monitor: Monitor) -> None:
        self._engine = engine
        self._limits = limits
        self._settings = settings
        self._namespace = settings.namespace
        self._monitor = monitor

    def send_msg(self, request: Request, answer: Answer) -> None:
        parsed = decode.send_msg(request, self._settings, self._limits, self._engine.store.now_ms)
        request.check_topic(parsed.topic)
        if parsed.command.id is not None:
            request.check_own_id(self._engine.has_namespace_ids(self._namespace))
        on_reply = partial(self._sent, parsed, request.grant, answer)
        self._engine.post_send(self._namespace, parsed.topic, parsed.command, request.grant, on_reply)

    def _sent(self, parsed: decode.SendMsg, grant: Grant, answer: Answer, done: Sent | BaseException) -> None:
        if isinstance(done, BaseException):
            answer(done)
        elif done.result != "kept" and done.due_at_ms < LAST_MS:
            self._monitor.of(parsed.topic).send_msg += 1
            answer(encode.sent(parsed, done))
        else:
            leave(self._shown(parsed, grant, done), answer)

    def pull_msg(self, request: Request, answer: Answer) -> PendingCall:
        command = decode.pull_msg(request, self._settings, self._limits, waits=False)
        return self._pull(request, command, encode.JSON, answer)

    def long_polling_msg(self, request: Request, answer: Answer) -> PendingCall:
        command = decode.pull_msg(request, self._settings, self._limits, waits=True)

        def on_reply(result: Response | BaseException) -> None:
            if isinstance(result, Unavailable) and not isinstance(result, Draining):
                leave(_calmly(result, command.wait_ms), answer)
            else:
                answer(result)

        return self._pull(request, command, encode.string_type(request), on_reply)

    def ack_msg(self, request: Request, answer: Answer) -> None:
        ref = decode.msg_ref(request, "ack", default=True)
        request.check_topic(ref.topic)
        if not ref.can_be():
            answer(encode.OK)
        elif ref.flag:
            on_reply = partial(self._acked, ref, answer)
            self._engine.post_ack(self._namespace, ref.topic, [Ref(ref.msg_id, None)], on_reply)
        else:
            leave(self._release(ref), answer)

    def _acked(self, ref: decode.MsgRef, answer: Answer, done: object) -> None:
        if isinstance(done, BaseException):
            answer(done)
        else:
            self._monitor.of(ref.topic).ack_msg += 1
            answer(encode.OK)

    async def _release(self, ref: decode.MsgRef) -> Response:
        [done] = await self._engine.release(self._namespace, ref.topic, [Release(ref.msg_id, None, delay_ms=0)])
        if done.code is Code.DEAD and done.reason is Reason.EXHAUSTED:
            self._monitor.rejected(ref.topic)
        self._monitor.of(ref.topic).ack_msg += 1
        return encode.OK

    async def delete_msg(self, request: Request) -> Response:
        ref = decode.msg_ref(request, "release")
        request.describe(ref.topic, [ref.msg_id])
        request.check_topic(ref.topic)
        _check_possible(ref)
        job = await self._engine.get(self._namespace, ref.topic, ref.msg_id)
        [done] = await self._engine.cancel(
            self._namespace, ref.topic, [ref.msg_id], forget=ref.flag, spare=Spare.OVERDUE
        )
        if done.code is not Code.OK or job.state is State.CANCELLED:
            raise NotFound("there is no message with this id that can be deleted")
        self._monitor.of(ref.topic).delete_msg += 1
        return encode.OK

    async def get_msg(self, request: Request) -> Response:
        ref = decode.msg_ref(request)
        request.check_topic(ref.topic)
        _check_possible(ref)
        job = await self._engine.get(self._namespace, ref.topic, ref.msg_id)
        self._monitor.of(ref.topic).get_msg += 1
        return encode.one(encode.job_msg(job, self._engine.store.now_ms()))

    async def _shown(self, parsed: decode.SendMsg, grant: Grant, done: Sent) -> Response:
        """The live message that already has this id, or the one that was just stored, if its delay reaches past the
        latest possible time."""
        for _ in range(SEND_TRIES):
            try:
                job = await self._engine.get(self._namespace, parsed.topic, done.id)
                msg = encode.job_msg(job, self._engine.store.now_ms())
                if msg.status not in encode.ENDED:
                    self._monitor.of(parsed.topic).send_msg += 1
                    return encode.one(msg)
            except NotFound:
                pass
            # It has ended since, so the id is free now.
            done = await self._engine.send(self._namespace, parsed.topic, parsed.command, grant)
            if done.result != "kept" and done.due_at_ms < LAST_MS:
                self._monitor.of(parsed.topic).send_msg += 1
                return encode.sent(parsed, done)
        raise Unavailable("other callers keep changing the message with this id; nothing was done")

    def _pull(self, request: Request, command: Pull, content_type: str, answer: Answer) -> PendingCall:
        topic = command.topics[0]
        request.check_topic(topic)
        if not is_name(topic):
            return leave(self._idle(command.wait_ms, content_type), answer)
        return self._engine.post_pull(command, partial(self._on_reply, topic, content_type, answer))

    async def _idle(self, wait_ms: int, content_type: str) -> Response:
        await self._engine.idle(wait_ms)
        return encode.pulled([], content_type)

    def _on_reply(self, topic: str, content_type: str, answer: Answer, jobs: list[LeasedJob] | BaseException) -> None:
        answer(jobs if isinstance(jobs, BaseException) else self._pulled(topic, jobs, content_type))

    def _pulled(self, topic: str, jobs: Sequence[LeasedJob], content_type: str) -> Response:
        response = encode.pulled(jobs, content_type)
        if jobs:
            counts = self._monitor.of(topic)
            counts.pulled(jobs, self._monitor.last_use_ms)
            response.undelivered = partial(self._engine.undelivered, self._namespace, jobs)
        return response


async def _calmly(error: Unavailable, wait_ms: int) -> Response:
    await asyncio.sleep(min(CALM_S, wait_ms / 1000))
    raise error


def _check_possible(ref: decode.MsgRef) -> None:
    if not ref.can_be():
        raise NotFound("there is no such message")
