"""One handler for all commands: decode, ask the engine, encode. Nothing is decided here.

Ids are unique over all topics and calls carry no token, so finish and delete end a job wherever it is, whoever holds it.
"""

from __future__ import annotations

from functools import partial

from ...engine.commands import Pull, Send
from ...engine.engine import Engine
from ...engine.errors import BadRequest, DuelineError
from ...engine.job import BodyKind
from ...engine.limits import Limits
from ...engine.store import OnConflict
from ..http import Request, Response
from . import decode, encode
from .options import YouzanOptions


class YouzanHandlers:
    def __init__(self, engine: Engine, limits: Limits, options: YouzanOptions) -> None:
        self._engine = engine
        self._limits = limits
        self._options = options
        self._namespace = options.namespace

    async def command(self, request: Request) -> Response:
        asked = decode.asked(request.body)
        try:
            if asked.command == "add":
                return await self._add(asked)
            if asked.command == "pop":
                return await self._pop(asked)
            await self._engine.cancel_by_id(self._namespace, [asked.id], forget=True)
            return encode.done(asked.id)
        except BadRequest as error:
            raise decode.Refused(
                error.message if error.field is None else f"{error.field} {error.message}", asked.id or None
            ) from None

    async def browse(self, request: Request) -> Response:
        """A browser that opens the address: GET without a body. With one it is a command like any other."""
        if request.body:
            return await self.command(request)
        return Response(302, b"", "text/plain; charset=utf-8", headers=(("Location", "/ui/"),))

    async def _add(self, asked: decode.Asked) -> Response:
        ttr_ms = self._options.ttr_ms if asked.ttr_ms is None else asked.ttr_ms
        command = Send(
            id=asked.id,
            body=asked.body.encode(),
            kind=BodyKind.TEXT,
            delay_ms=asked.delay_ms,
            lease_ms=min(ttr_ms, self._limits.max_lease_ms),
            ttl_ms=None,
            max_attempts=None,
            retry=None,
            on_conflict=OnConflict.REPLACE,
            retain_ms=0,
            any_delay=True,
        )
        try:
            await self._engine.send(self._namespace, asked.topic, command)
        except DuelineError as error:
            raise _named(error, asked.id) from None
        return encode.done(asked.id)

    async def _pop(self, asked: decode.Asked) -> Response:
        wait_ms = max(0, min(asked.wait_ms, self._limits.max_wait_ms))
        jobs = await self._engine.pull(Pull(self._namespace, (asked.topic,), 1, None, wait_ms))
        if not jobs:
            return encode.nothing(self._options.empty_pop_success)
        response = encode.held(jobs[0])
        response.undelivered = partial(self._engine.undelivered, self._namespace, jobs)
        return response


def _named(error: DuelineError, id: str) -> decode.Refused:
    """Any refusal of an add tells which job it was."""
    return decode.Refused(error.message if error.field is None else f"{error.field} {error.message}", id)
