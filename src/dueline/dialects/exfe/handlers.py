"""The two operations: decode, call the engine, encode.

All jobs are in one topic and carry their own method and URL (courier "carried"). Pushes under one key form a merge
group. Pushes under a `-` key are separate jobs, with the key as a tag so that a DELETE finds them.
"""

from __future__ import annotations

from msgspec import UNSET

from ...engine.commands import Filter, MergeInto, Send
from ...engine.dialect_targets import DialectTarget
from ...engine.engine import Engine
from ...engine.job import BodyKind
from ...engine.limits import LAST_MS
from ...engine.policy import AT_ONCE
from ...engine.push_target import METHOD_HEADER, URL_HEADER, PushTarget
from ..contract import CheckUrl
from ..http import Request, Response
from . import decode, encode
from .settings import ExfeSettings

TOPIC = "exfe.queue"


class ExfeHandlers:
    """One method per HTTP method."""

    def __init__(self, engine: Engine, settings: ExfeSettings, check_url: CheckUrl) -> None:
        self._engine = engine
        self._namespace = settings.namespace
        self._retry = settings.ladder()
        self._check_url = check_url
        target = PushTarget(
            courier="carried",
            headers=(("Content-Type", "application/json"),),
            timeout_ms=settings.timeout_ms,
            concurrency=settings.concurrency,
        )
        self._target = DialectTarget(engine, settings.namespace, target, sole=True)

    async def push(self, request: Request) -> Response:
        request.check_topic(TOPIC)
        parsed = decode.push(
            request.params[0], request.query, lambda url: self._check_url(url, self._namespace, request.grant)
        )
        command = self._command(parsed, request.body)
        await self._target.serve(TOPIC)
        await self._engine.send(self._namespace, TOPIC, command, request.grant)
        return encode.done()

    async def drop(self, request: Request) -> Response:
        request.describe(TOPIC)
        request.check_topic(TOPIC)
        group = decode.drop(request.params[0])
        request.describe(merge_key=group.key)
        changed = 0
        where = self._namespace, TOPIC
        complete = False
        while not complete:
            if group.merges:
                done = await self._engine.cancel_groups(*where, group.merge_key)
            else:
                done = await self._engine.cancel_matching(*where, Filter(tag=group.tag), False)
            complete = done.complete
            changed += done.changed
        request.describe(changed=changed)
        return encode.done()

    def _command(self, parsed: decode.ParsedRequest, body: bytes) -> Send:
        group, retry = parsed.group, self._retry
        return Send(
            id=None,
            body=body,
            kind=BodyKind.BYTES,
            at_ms=None if parsed.at_s is None else min(parsed.at_s * 1000, LAST_MS),
            max_attempts=1 if retry is None else UNSET,
            retry=AT_ONCE if retry is None else retry,
            merge=MergeInto(group.merge_key, None, None, update=parsed.update) if group.merges else None,
            tags=() if group.merges else (group.tag,),
            headers=((URL_HEADER, group.url), (METHOD_HEADER, group.method)),
            retain_ms=0,
            dead_retain_ms=0 if retry is None else None,
            any_delay=True,
        )
