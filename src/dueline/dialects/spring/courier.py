"""The courier "spring": it delivers a job to an instance of the application that handles its type, with the Spring
queue's own call (`POST {instance}/hf/delay_queue/work`).

A topic is a group of one application and one type, both encoded in its name (`groups.parts_of`). The headers of a job
never decide whom to call: whoever may send to a topic may not reach the application of another one. Only instances that
name exactly this type in their metadata are called. 200 is a success. After any other answer the next instance is
called, then the retry policy applies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ...engine.headers import unpack_headers
from ...engine.job import LeasedJob
from ...engine.push_target import PushTopic
from ...push.call import Call, Response
from ...push.courier import Outcome, Verdict
from ...push.discovery import SETTINGS, Instance, Resolver
from ...push.verdict import ABORT, GONE, judged
from ..body import text_of
from .groups import parts_of
from .job_format import NO_PARAMS, PARAMS, TIME, task_id_of

PATH = "/hf/delay_queue/work"
CONTENT_TYPE = "application/json;charset=UTF-8"
_TIME = re.compile(r"-?[0-9]{1,19}", re.ASCII)


class Work(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request to an application. Field names and order are the Spring queue's; None is left out."""

    taskId: str
    taskType: str
    delayTime: int
    params: str | None = None
    appName: str | None = None


class SpringCourier:
    """Finds instances with `resolver` and calls them one after the other."""

    many_targets = False

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    async def has_instance(self, push_topic: PushTopic) -> bool:
        parts = parts_of(push_topic.topic)
        return parts is not None and bool(await self._workers(*parts))

    async def calls(self, push_topic: PushTopic, job: LeasedJob) -> Sequence[Call]:
        job_headers = dict(unpack_headers(job.headers))
        parts = parts_of(push_topic.topic)
        workers = await self._workers(*parts) if parts is not None else ()
        if parts is None or not workers:
            return ()
        body = msgspec.json.encode(work_of(job, job_headers, *parts))
        headers = (("Content-Type", CONTENT_TYPE),)
        timeout_ms = push_topic.target.timeout_ms
        return [Call("POST", one.url + PATH, headers, body, timeout_ms) for one in workers]

    def why_unavailable(self, push_topic: PushTopic) -> str:
        app, type = parts_of(push_topic.topic) or ("", push_topic.topic)
        return f'no instance of the application "{app}" names the task type "{type}" in its metadata ({SETTINGS})'

    def judge(self, push_topic: PushTopic, answer: Response, now_ms: int) -> Verdict:
        """A 410 counts only for the instance that sent it, because the next one may have the path."""
        verdict = judged(push_topic.target.success or (200,), answer, now_ms)
        if answer.status == GONE and ABORT not in answer.headers:
            return Verdict(Outcome.RETRY, verdict.error)
        return verdict

    async def _workers(self, app: str, type: str) -> list[Instance]:
        """The instances that handle this type. If the cache has none, they are looked up again."""
        found = workers_of(await self._resolver.instances(app), type)
        return found or workers_of(await self._resolver.instances(app, fresh=True), type)


def workers_of(instances: Sequence[Instance], type: str) -> list[Instance]:
    return [one for one in instances if one.tasks is not None and type in one.tasks]


def work_of(job: LeasedJob, job_headers: dict[str, str], app: str, type: str) -> Work:
    """The job in the Spring queue's format: as it was added there, or converted if another protocol sent it."""
    time = job_headers.get(TIME, "")
    if not _TIME.fullmatch(time):
        return Work(job.id, type, job.due_at_ms, text_of(job), app)
    params = None if job_headers.get(PARAMS) == NO_PARAMS else text_of(job)
    return Work(task_id_of(job.id), type, int(time), params, app)
