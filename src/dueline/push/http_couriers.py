"""The couriers "http" and "carried", which deliver a job as an HTTP call.

    http      to the target's URL, or to the instances of its service in turn
    carried   to the URL that the job itself carries, with the method that it carries

The body is the job's body, with the content type of its kind. A merge group is sent as one JSON array of its items in
order. For "carried" the items are put into the array verbatim, whatever their kind. The headers are:

    Dueline-Topic  Dueline-Job-Id  Dueline-Attempt  Dueline-Delivery  Dueline-Due-At-Ms     identify the job
    webhook-id  webhook-timestamp  webhook-signature (when the target has secrets)          push.signing
    the target's own headers, and those of the job that may be forwarded                    push.header_rules

Topic names and ids that are not plain ASCII are sent as percent-encoded UTF-8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote

from ..engine.headers import unpack_headers
from ..engine.items import items_json
from ..engine.job import BodyKind, LeasedJob
from ..engine.push_target import METHOD_HEADER, URL_HEADER, PushTopic
from .call import Call, Response
from .courier import Undeliverable, Verdict
from .discovery import SETTINGS, Resolver
from .header_rules import Headers, forwarded
from .signing import signed, webhook_id
from .verdict import judged

_CONTENT_TYPES = {
    BodyKind.JSON: "application/json",
    BodyKind.TEXT: "text/plain; charset=utf-8",
    BodyKind.BYTES: "application/octet-stream",
}
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


class HttpCourier:
    """Calls the target's URL or service. `now_ms` is the store's clock, for the time in the signature."""

    many_targets = False

    def __init__(self, resolver: Resolver, now_ms: Callable[[], int]) -> None:
        self._resolver = resolver
        self._now_ms = now_ms

    async def has_instance(self, push_topic: PushTopic) -> bool:
        return push_topic.target.service is None or bool(await self._instances(push_topic.target.service))

    async def calls(self, push_topic: PushTopic, job: LeasedJob) -> Sequence[Call]:
        target = push_topic.target
        urls = [target.url] if target.url else await self._instances(target.service or "")
        if not urls:
            return ()
        body, content_type = body_of(job)
        headers = headers_of(push_topic, job, content_type, body, self._now_ms())
        return [Call(target.method, url, headers, body, target.timeout_ms) for url in urls]

    def why_unavailable(self, push_topic: PushTopic) -> str:
        return f"no instance of the service {push_topic.target.service} is known ({SETTINGS})"

    def judge(self, push_topic: PushTopic, answer: Response, now_ms: int) -> Verdict:
        return judged(push_topic.target.success, answer, now_ms)

    async def _instances(self, service: str) -> list[str]:
        """The URLs of the service's instances. If the cache has none, they are looked up again."""
        found = await self._resolver.instances(service) or await self._resolver.instances(service, fresh=True)
        return [instance.url for instance in found]


class CarriedCourier:
    """Calls the URL that the job carries. The topic is reserved for the server, so no client can set those headers."""

    many_targets = True

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms

    async def has_instance(self, push_topic: PushTopic) -> bool:
        return True

    async def calls(self, push_topic: PushTopic, job: LeasedJob) -> Sequence[Call]:
        job_headers = {name.lower(): value for name, value in unpack_headers(job.headers)}
        url = job_headers.get(URL_HEADER.lower())
        if not url:
            raise Undeliverable("the job carries no URL")
        body, content_type = body_of(job, verbatim=True)
        headers = headers_of(push_topic, job, content_type, body, self._now_ms())
        method = job_headers.get(METHOD_HEADER.lower()) or push_topic.target.method
        return [Call(method, url, headers, body, push_topic.target.timeout_ms)]

    def why_unavailable(self, push_topic: PushTopic) -> str:
        return "the job carries no URL"

    def judge(self, push_topic: PushTopic, answer: Response, now_ms: int) -> Verdict:
        return judged(push_topic.target.success, answer, now_ms)


def body_of(job: LeasedJob, verbatim: bool = False) -> tuple[bytes, str]:
    """The body to send for a job, and its content type. With `verbatim`, the items of a group are sent unchanged."""
    if job.items is None:
        return job.body, _CONTENT_TYPES[job.kind]
    items = b"[" + b",".join(item.body for item in job.items) + b"]" if verbatim else items_json(job.items)
    return items, _CONTENT_TYPES[BodyKind.JSON]


def headers_of(push_topic: PushTopic, job: LeasedJob, content_type: str, body: bytes, now_ms: int) -> Headers:
    """The headers of a call for this job."""
    travelling = forwarded(unpack_headers(job.headers), push_topic.target.headers)
    typed = any(name.lower() == "content-type" for name, _ in travelling)
    name = webhook_id(push_topic.namespace, push_topic.topic, job.id, job.created_at_ms)
    return (
        *travelling,
        *(() if typed else (("Content-Type", content_type),)),
        ("Dueline-Topic", _plain(push_topic.topic)),
        ("Dueline-Job-Id", _plain(job.id)),
        ("Dueline-Attempt", str(job.attempt)),
        ("Dueline-Delivery", str(job.delivery)),
        ("Dueline-Due-At-Ms", str(job.due_at_ms)),
        *signed(push_topic.target.secrets, name, now_ms // 1000, body),
    )


def _plain(name: str) -> str:
    return quote(name, safe=_PLAIN)
