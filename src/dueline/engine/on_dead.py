"""Where dead jobs go: checks `on_dead` of a topic's policy and makes the forwarded job. No I/O.

A dead job is forwarded as a new job whose id is derived from the death. A second attempt, by another process or after a
crash, finds that id taken, so the job arrives once. Body, kind, tags and headers stay the same; added headers say where
and why it died. A job for a URL goes through the internal topic ON_DEAD_TOPIC and carries the URL (engine.forwarder).

Chains are allowed. A job counts how often it was forwarded and stops after MAX_HOPS, so a loop ends.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from msgspec.structs import replace

from .commands import Send
from .errors import InvalidField
from .headers import unpack_headers
from .items import items_json
from .job import BodyKind, Job, Reason
from .limits import Limits, check_name
from .policy import ON_DEAD_KEEP_MS, Ladder, OnDead, TopicPolicy
from .push_checks import check_url
from .push_target import CARRIED_HEADERS, METHOD_HEADER, URL_HEADER, PushTarget
from .store import OnConflict

ON_DEAD_TOPIC = "dueline.on-dead"
ON_DEAD_TARGET = PushTarget(
    courier="carried", retry=Ladder((10_000, 60_000, 600_000, 3_600_000, 6 * 3_600_000, 15 * 3_600_000))
)

MAX_HOPS = 5
REMEMBER_MS = 3_600_000  # how long the id of a forwarded job stays taken after its end
MAX_BODY_BYTES = 8 << 20  # of a forwarded job, if its topic sets no limit: any stored job can be forwarded
MAX_ERROR_CHARS = 400

_TOPIC, _ID, _REASON, _ERROR = "Dueline-Dead-Topic", "Dueline-Dead-Id", "Dueline-Dead-Reason", "Dueline-Dead-Error"
_FIRST_TOPIC, _FIRST_ID, _HOPS = "Dueline-Dead-First-Topic", "Dueline-Dead-First-Id", "Dueline-Dead-Hops"
_OURS = frozenset(map(str.lower, (_TOPIC, _ID, _REASON, _ERROR, _FIRST_TOPIC, _FIRST_ID, _HOPS))) | CARRIED_HEADERS
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


def check_on_dead(topic: str, policy: TopicPolicy) -> None:
    """Raise if the dead jobs of this topic cannot go where the policy sends them."""
    on_dead = policy.on_dead
    if on_dead is None:
        return
    if (on_dead.topic is None) == (on_dead.url is None):
        raise InvalidField("give exactly one of topic and url", "on_dead")
    if on_dead.topic is not None:
        check_name(on_dead.topic, "on_dead.topic")
        if on_dead.topic == topic:
            raise InvalidField("must not be the topic itself", "on_dead.topic")
        if on_dead.topic == ON_DEAD_TOPIC:
            raise InvalidField("is reserved: name another topic, or give a url", "on_dead.topic")
    if on_dead.url is not None:
        check_url(on_dead.url, "on_dead.url")
    if policy.dead_retain_ms is not None and policy.dead_retain_ms < ON_DEAD_KEEP_MS:
        raise InvalidField(
            f"must be at least {ON_DEAD_KEEP_MS} with on_dead: dead jobs are kept until they are forwarded",
            "dead_retain_ms",
        )


def forwarding_limits(limits: Limits) -> Limits:
    """Limits that allow every stored job to be forwarded, with the headers that forwarding adds."""
    return replace(limits, max_headers=limits.max_headers + 16, max_headers_bytes=limits.max_headers_bytes + 8192)


def can_forward(job: Job) -> bool:
    """Whether to forward a job: not if its body is damaged or if it was forwarded too often."""
    kept = job.body is not None or job.items is not None
    return job.intact and job.reason is not Reason.CORRUPT and kept and hops(job) < MAX_HOPS


def hops(job: Job) -> int:
    """How often a job was forwarded."""
    return _hops(_lowered(job))


def _lowered(job: Job) -> dict[str, str]:
    return {name.lower(): value for name, value in unpack_headers(job.headers)}


def _hops(lowered: dict[str, str]) -> int:
    text = lowered.get(_HOPS.lower(), "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0


def forwarded(namespace: str, job: Job, on_dead: OnDead) -> Send:
    """The job to send in place of a dead one."""
    if job.items is None:
        body, kind = job.body or b"", job.kind
    else:
        body, kind = items_json(job.items), BodyKind.JSON
    return Send(
        id=id_of(namespace, job),
        body=body,
        kind=kind,
        on_conflict=OnConflict.KEEP,
        on_ended=OnConflict.KEEP,
        tags=job.tags,
        headers=_headers(job, on_dead),
        retain_ms=REMEMBER_MS,
        max_body_bytes=MAX_BODY_BYTES,
    )


def id_of(namespace: str, job: Job) -> str:
    """The id derived from a death: the same in every process, but another one if the same job dies again."""
    text = "\0".join((namespace, job.topic, job.id, str(job.created_at_ms), str(job.ended_at_ms), str(job.deliveries)))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _headers(job: Job, on_dead: OnDead) -> tuple[tuple[str, str], ...]:
    """The job's own headers, then ours. After several deaths they describe the last one and the job's first topic."""
    before = _lowered(job)
    headers = {name: value for name, value in unpack_headers(job.headers) if name.lower() not in _OURS}
    if _hops(before):
        headers[_FIRST_TOPIC] = before.get(_FIRST_TOPIC.lower()) or before.get(_TOPIC.lower(), job.topic)
        headers[_FIRST_ID] = before.get(_FIRST_ID.lower()) or before.get(_ID.lower(), job.id)
    headers |= {_TOPIC: job.topic, _ID: job.id, _HOPS: str(_hops(before) + 1)}
    if job.reason is not None:
        headers[_REASON] = job.reason.value
    if job.last_error:
        headers[_ERROR] = _CONTROL.sub(" ", job.last_error)[:MAX_ERROR_CHARS]
    if on_dead.url is not None:
        headers |= {URL_HEADER: on_dead.url, METHOD_HEADER: "POST"}
    return tuple(headers.items())
