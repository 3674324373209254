"""The three operations: decode, call the engine, encode.

A job is added to the topic of its group (`groups`), with the fields that its delivery must repeat (`job_format`; read
by `courier`). So it can be read, rescheduled, cancelled and pulled like any other job.
"""

from __future__ import annotations

from msgspec import UNSET

from ...engine.checks import HARD_BODY_BYTES
from ...engine.commands import Send
from ...engine.engine import Engine
from ...engine.errors import InvalidField
from ...engine.job import BodyKind
from ...engine.limits import check_name
from ...engine.policy import AT_ONCE
from ...engine.store import OnConflict
from ...push.discovery import Resolver
from ..contract import PushRules
from ..http import Request, Response
from . import decode, encode
from .groups import Groups, group_of
from .job_format import APP, NO_PARAMS, PARAMS, TIME, TYPE, stored_id
from .settings import SpringSettings


class SpringHandlers:
    """One method per path."""

    def __init__(self, engine: Engine, settings: SpringSettings, resolver: Resolver, rules: PushRules) -> None:
        self._engine = engine
        self._namespace = settings.namespace
        self._retry = settings.ladder()
        self._ttl_ms = settings.no_instance_limit_ms or None
        self._resolver = resolver
        self._rules = rules
        self._groups = Groups(engine, settings)

    async def add(self, request: Request) -> Response:
        decode.check_content_type(request.headers)
        job = decode.parse(request.body)
        group = group_of(job.app_name, job.task_type)
        request.check_topic(group)
        request.check_own_id(self._engine.has_namespace_ids(self._namespace))
        if job.app_name is not None:
            self._rules.service(job.app_name, request.grant)
        command = self._command(job)
        _check_names(job, group)
        await self._groups.serve(group, nowhere=job.app_name is None)
        await self._engine.send(self._namespace, group, command, request.grant)
        return encode.added()

    async def types(self, request: Request) -> Response:
        request.check_all_topics()
        return encode.types(await self._groups.list())

    async def service_info(self, request: Request) -> Response:
        request.check_all_topics()
        return encode.services(await self._resolver.services())

    def _command(self, job: decode.ParsedRequest) -> Send:
        headers = [(TYPE, job.task_type), (TIME, str(job.delay_time))]
        if job.app_name is not None:
            headers.append((APP, job.app_name))
        if job.params is None:
            headers.append((PARAMS, NO_PARAMS))
        retry = self._retry
        return Send(
            id=stored_id(job.task_id),
            body=(job.params or "").encode(),
            kind=BodyKind.TEXT,
            at_ms=max(0, job.delay_time),
            ttl_ms=self._ttl_ms,
            max_attempts=1 if retry is None else UNSET,
            retry=AT_ONCE if retry is None else retry,
            on_conflict=OnConflict.REPLACE,
            headers=tuple(headers),
            retain_ms=0,
            max_body_bytes=HARD_BODY_BYTES,
            any_delay=True,
        )


def _check_names(job: decode.ParsedRequest, group: str) -> None:
    """The original has no limits for names. Refuse one that we cannot store, with the original's field name."""
    for value, field in ((stored_id(job.task_id), "taskId"), (job.task_type, "taskType"), (job.app_name, "appName")):
        if value:
            check_name(value, field)
    try:
        check_name(group, "taskType")
    except InvalidField as error:
        raise InvalidField(
            f"appName and taskType together make an invalid topic name: {error.message}", "taskType"
        ) from None
