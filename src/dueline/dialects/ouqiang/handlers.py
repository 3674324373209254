"""The five operations: decode, ask the engine, encode. Nothing is decided here.

Ids are unique over all topics and calls carry no token, so finish and delete end a job wherever it is, whoever holds it.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ...engine.commands import Pull, Send
from ...engine.engine import Engine
from ...engine.errors import NotFound, Unavailable
from ...engine.job import BodyKind
from ...engine.store import OnConflict
from ..http import Request, Response
from . import decode, encode
from .options import OuqiangOptions

CALM_S = 1.0  # before a pop is told of a failure: the PHP worker asks again without a pause


class OuqiangHandlers:
    """A method has the name of its path."""

    def __init__(self, engine: Engine, options: OuqiangOptions) -> None:
        self._engine = engine
        self._namespace = options.namespace
        self._hold_ms = options.hold_ms

    async def push(self, request: Request) -> Response:
        asked = decode.push(request.body)
        command = Send(
            id=asked.id,
            body=asked.body.encode(),
            kind=BodyKind.TEXT,
            delay_ms=asked.delay_s * 1000,
            lease_ms=asked.ttr_s * 1000,
            ttl_ms=None,
            max_attempts=None,
            retry=None,
            on_conflict=OnConflict.REPLACE,
            retain_ms=0,
            any_delay=True,
        )
        await self._engine.send(self._namespace, asked.topic, command)
        return encode.answer(0, encode.ADDED)

    async def pop(self, request: Request) -> Response:
        topics = decode.pop(request.body)
        if not topics:
            await asyncio.sleep(self._hold_ms / 1000)  # only commas: no topic that a job could stand in
            return encode.answer(0, encode.DONE)
        try:
            jobs = await self._engine.pull(Pull(self._namespace, topics, 1, None, self._hold_ms))
        except Unavailable:
            await asyncio.sleep(CALM_S)
            raise
        if not jobs:
            return encode.answer(0, encode.DONE)
        response = encode.held(jobs[0])
        response.undelivered = partial(self._engine.undelivered, self._namespace, jobs)
        return response

    async def finish(self, request: Request) -> Response:
        """Finish and delete are one: the record goes, whatever the job's state; an unknown id is fine."""
        await self._engine.cancel_by_id(self._namespace, [decode.job_id(request.body)], forget=True)
        return encode.answer(0, encode.DONE)

    async def get(self, request: Request) -> Response:
        try:
            job = await self._engine.get_by_id(self._namespace, decode.job_id(request.body))
        except NotFound:
            return encode.answer(0, encode.DONE)
        return encode.answer(0, encode.DONE) if job.ended_at_ms is not None else encode.found(job)
