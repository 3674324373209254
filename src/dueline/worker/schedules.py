"""The schedules that a worker declares, and how its queue gets them.

    @worker.schedule(cron="0 9 * * MON-FRI", tz="Europe/Madrid")
    @worker.handles("reports.daily")
    async def daily_report() -> None: ...

They are written when the worker starts, and only if they differ from what the queue has: writing a schedule forgets the
occurrences that were missed, so a restart must not do it. A schedule that an operator has paused stays paused.

If the queue refuses them (no permission to manage schedules, or an older server), the worker runs anyway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, UnsetType

from ..api.answers import Schedule
from ..api.schedule_requests import PutSchedule
from ..client.errors import DuelineApiError, NotFound, Unavailable, VersionMismatch
from ..client.schedule_api import DeclaredOptions, ScheduleOptions, put_request
from ..client.times import duration_ms
from .queue import Queue
from .topic_policies import is_shown

T = TypeVar("T")

NOT_DECLARED = ScheduleOptions.__annotations__.keys() - DeclaredOptions.__annotations__.keys()
REST_S = 5.0  # between tries while the queue is unavailable

log = logging.getLogger("dueline.worker")


class WorkerSchedules:
    """The schedules of one worker, by name. `owner`: the worker's name; with `prune`, schedules that carry it and are
    not declared here are deleted."""

    def __init__(self, owner: str | None = None) -> None:
        self.owner = owner
        self.prune = False
        self._wanted: dict[str, PutSchedule] = {}

    def add(self, name: str, topic: str, body: Any, options: Mapping[str, Any]) -> None:
        """Declare a schedule. Raises ValueError or TypeError."""
        if foreign := options.keys() & NOT_DECLARED:
            raise TypeError(f"a schedule of a worker has no option {', '.join(sorted(foreign))}")
        if name in self._wanted:
            raise ValueError(f'there are two schedules with the name "{name}": give one of them another name')
        if (options.get("cron") is None) == (options.get("every") is None):
            raise ValueError(f"the schedule {name} needs cron or every, and not both")
        self._wanted[name] = put_request(topic, body, {**options, "owner": self.owner})

    async def write_all(self, queue: Queue) -> None:
        """Write all schedules, and delete those that left the code, retrying until the queue has answered."""
        for name, request in self._wanted.items():
            await _until_answered(lambda name=name, request=request: write(queue, name, request), name)
        if self.prune and self.owner is not None:
            await _until_answered(lambda owner=self.owner: self._prune(queue, owner), "the deletion of old schedules")

    async def _prune(self, queue: Queue, owner: str) -> None:
        for name in [one.name for one in await queue.schedules() if one.owner == owner]:
            if name not in self._wanted:
                try:
                    await queue.delete_schedule(name)
                except NotFound:  # another worker was faster
                    continue
                log.info("deleted the schedule %s, which is no longer in the code", name)


async def write(queue: Queue, name: str, request: PutSchedule) -> None:
    """Write a schedule if the queue has another one or none. Raises DuelineApiError."""
    while True:
        try:
            shown = await queue.schedule(name)
        except NotFound:
            shown = None
        if shown is not None and is_same(request, shown):
            return
        changed = msgspec.structs.replace(
            request, paused=shown is not None and shown.paused, version=0 if shown is None else shown.version
        )
        try:
            await queue.put_schedule(name, changed)
        except VersionMismatch:  # another worker writes it at the same time
            continue
        log.info("%s the schedule %s", "made" if shown is None else "changed", name)
        return


def is_same(request: PutSchedule, shown: Schedule) -> bool:
    """Whether the queue has the schedule as it is written in the code. A pause is an operator's, so it is left out."""
    same_retry = is_shown(given(request.job.retry), given(shown.job.retry))
    return same_retry and _meaning(request) == _meaning(shown)


def _meaning(one: PutSchedule | Schedule) -> dict[str, Any]:
    """A schedule with its defaults filled in and its durations in milliseconds, without the retry policy."""
    job = one.job
    return {
        "topic": one.topic,
        "cron": one.cron,
        "tz": None if one.cron is None else one.tz or "UTC",
        "every_ms": None if one.every is None else duration_ms(one.every, "every"),
        "starts_at_ms": one.starts_at_ms,
        "ends_at_ms": one.ends_at_ms,
        "jitter_ms": one.jitter_ms or 0,
        "misfire": one.misfire or "latest",
        "overlap": one.overlap or "allow",
        "owner": one.owner,
        "body": bytes(job.body) if isinstance(job.body, Raw) else None,
        "body_base64": given(job.body_base64),
        "lease_ms": job.lease_ms,
        "ttl_ms": job.ttl_ms,
        "max_attempts": job.max_attempts,
        "tags": tuple(job.tags or ()),
        "headers": dict(job.headers or {}),
    }


def given(value: T | UnsetType | None) -> T | None:
    return None if isinstance(value, UnsetType) else value


async def _until_answered(ask: Callable[[], Awaitable[None]], what: str) -> None:
    """Ask until the queue has answered. A refusal is logged."""
    while True:
        try:
            await ask()
            return
        except Unavailable:  # the pulls already log that the queue is unavailable
            await asyncio.sleep(REST_S)
        except DuelineApiError as refused:
            log.warning("%s was refused by the queue: %s", what, refused)
            return
