"""One handler for all commands: decode, call the engine, encode.

Ids are unique across all topics and calls carry no token: finish and delete end a job in any topic, whoever holds its
lease. `add` refuses a name that we cannot store; all other commands treat it as unknown.
"""

from __future__ import annotations

from functools import partial

from ...engine.checks import HARD_BODY_BYTES
from ...engine.commands import Pull, Send
from ...engine.engine import Engine
from ...engine.errors import DuelineError
from ...engine.job import BodyKind
from ...engine.limits import is_name
from ...engine.policy import AT_ONCE
from ...engine.store import Code, OnConflict
from ...rights import Grant, Right
from ..http import Request, Response
from . import decode, encode
from .settings import YouzanSettings

RIGHTS = {"add": Right.SEND, "pop": Right.PULL, "finish": Right.PULL, "delete": Right.MANAGE}  # by command


class YouzanHandlers:
    """The commands of the protocol."""

    def __init__(self, engine: Engine, settings: YouzanSettings) -> None:
        self._engine = engine
        self._limits = engine.limits
        self._settings = settings
        self._namespace = settings.namespace

    async def command(self, request: Request) -> Response:
        parsed = decode.parse(request.body)
        if parsed.command == "delete":
            request.describe(ids=[parsed.id], command=parsed.command)
        right = RIGHTS[parsed.command]
        request.check_right(right)
        if right is not Right.PULL:
            request.hold_jobs(1)
        if parsed.command in ("add", "pop"):
            request.check_topic(parsed.topic)
        else:
            request.check_all_topics()
        if parsed.command == "add":
            request.check_own_id(self._engine.has_namespace_ids(self._namespace))
        try:
            if parsed.command == "add":
                return await self._add(parsed, request.grant)
            if parsed.command == "pop":
                return await self._pop(parsed)
            return await self._end(request, parsed)
        except DuelineError as error:  # every error answer names the job
            raise decode.Refused(encode.reason_of(error), parsed.id, error.code) from None

    async def _add(self, parsed: decode.ParsedRequest, grant: Grant) -> Response:
        ttr_ms = parsed.ttr_ms or min(self._settings.ttr_ms, self._limits.max_lease_ms)
        if ttr_ms > self._limits.max_lease_ms:  # a shortened ttr would redeliver the job too early
            raise decode.Refused("ttr invalid", parsed.id)
        command = Send(
            id=parsed.id,
            body=parsed.body.encode(),
            kind=BodyKind.TEXT,
            delay_ms=parsed.delay_ms,
            lease_ms=ttr_ms,
            ttl_ms=None,
            max_attempts=None,
            retry=AT_ONCE,
            on_conflict=OnConflict.REPLACE,
            retain_ms=0,
            max_body_bytes=HARD_BODY_BYTES,
            any_delay=True,
        )
        await self._engine.send(self._namespace, parsed.topic, command, grant)
        return encode.done(parsed.id)

    async def _pop(self, parsed: decode.ParsedRequest) -> Response:
        wait_ms = min(parsed.wait_ms, self._limits.max_wait_ms)
        if not is_name(parsed.topic):
            await self._engine.idle(wait_ms)
            return encode.nothing(self._settings.empty_pop_success)
        jobs = await self._engine.pull(Pull(self._namespace, (parsed.topic,), 1, None, wait_ms))
        if not jobs:
            return encode.nothing(self._settings.empty_pop_success)
        response = encode.leased(jobs[0])
        response.undelivered = partial(self._engine.undelivered, self._namespace, jobs)
        return response

    async def _end(self, request: Request, parsed: decode.ParsedRequest) -> Response:
        """finish acks the job, delete cancels it, in any state. An unknown id is a success."""
        end = self._engine.ack_by_id if parsed.command == "finish" else self._engine.cancel_by_id
        done = await end(self._namespace, [parsed.id]) if is_name(parsed.id) else []
        request.describe(changed=sum(one.code is Code.OK for one in done))
        return encode.done(parsed.id)
