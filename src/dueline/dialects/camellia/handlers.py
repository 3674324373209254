"""The six operations: decode, call the engine, encode.

Acks carry no token. ack=true ends a message in any live state, whoever holds its lease; ack=false gives back only a
message that is being consumed. Both always answer success. The original has no limits for names: a send refuses a name
that we cannot store, and all other operations treat it as unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from ...engine.commands import Pull
from ...engine.engine import Engine
from ...engine.errors import Draining, NotFound, Unavailable
from ...engine.job import LeasedJob, Reason, State
from ...engine.limits import LAST_MS, Limits, is_name
from ...engine.store import Code, Ref, Release, Spare
from ...rights import Grant
from ..http import Request, Response
from . import decode, encode
from .monitor import Monitor
from .settings import CamelliaSettings

CALM_S = 1.0  # delay of a failed long poll's answer, because the SDK retries without a pause
SEND_TRIES = 4


class CamelliaHandlers:
    """Each method is named after its route."""

    def __init__(self, engine: Engine, limits: Limits, settings: CamelliaSettings, monitor: Monitor) -> None:
        self._engine = engine
        self._limits = limits
        self._settings = settings
        self._namespace = settings.namespace
        self._monitor = monitor

    async def send_msg(self, request: Request) -> Response:
        parsed = decode.send_msg(request, self._settings, self._limits, self._engine.store.now_ms())
        request.check_topic(parsed.topic)
        if parsed.command.id is not None:
            request.check_own_id(self._engine.has_namespace_ids(self._namespace))
        response = await self._send(parsed, request.grant)
        self._monitor.of(parsed.topic).send_msg += 1
        return response

    async def pull_msg(self, request: Request) -> Response:
        command = decode.pull_msg(request, self._settings, self._limits, waits=False)
        request.check_topic(command.topics[0])
        return await self._pull(command, encode.JSON)

    async def long_polling_msg(self, request: Request) -> Response:
        command = decode.pull_msg(request, self._settings, self._limits, waits=True)
        request.check_topic(command.topics[0])
        try:
            return await self._pull(command, encode.string_type(request))
        except Unavailable as error:
            if not isinstance(error, Draining):
                await asyncio.sleep(min(CALM_S, command.wait_ms / 1000))
            raise

    async def ack_msg(self, request: Request) -> Response:
        ref = decode.msg_ref(request, "ack", default=True)
        request.check_topic(ref.topic)
        if not ref.can_be():
            return encode.OK
        if ref.flag:
            await self._engine.ack(self._namespace, ref.topic, [Ref(ref.msg_id, None)])
        else:
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

    async def _send(self, parsed: decode.SendMsg, grant: Grant) -> Response:
        """Store the message, or return the live message that already has this id. If the delay reaches past the latest
        possible time, the answer shows the message as stored, too."""
        for _ in range(SEND_TRIES):
            done = await self._engine.send(self._namespace, parsed.topic, parsed.command, grant)
            if done.result != "kept" and done.due_at_ms < LAST_MS:
                return encode.sent(parsed, done)
            try:
                job = await self._engine.get(self._namespace, parsed.topic, done.id)
            except NotFound:
                continue  # it ended and was removed between the two calls, so the id is free now
            msg = encode.job_msg(job, self._engine.store.now_ms())
            if msg.status not in encode.ENDED:  # else it ended between the two calls: try again
                return encode.one(msg)
        raise Unavailable("other callers keep changing the message with this id; nothing was done")

    async def _pull(self, command: Pull, content_type: str) -> Response:
        topic = command.topics[0]
        if not is_name(topic):
            await self._engine.idle(command.wait_ms)
            return encode.pulled([], content_type)
        return self._pulled(topic, await self._engine.pull(command), content_type)

    def _pulled(self, topic: str, jobs: Sequence[LeasedJob], content_type: str) -> Response:
        response = encode.pulled(jobs, content_type)
        if jobs:
            self._monitor.of(topic).pulled(jobs, self._engine.store.now_ms())
            response.undelivered = partial(self._engine.undelivered, self._namespace, jobs)
        return response


def _check_possible(ref: decode.MsgRef) -> None:
    if not ref.can_be():
        raise NotFound("there is no such message")
