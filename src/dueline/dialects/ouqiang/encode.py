"""Answers as Go writes them: code, message, data in this order; <, > and & escaped; always HTTP 200. No I/O."""

from __future__ import annotations

from html import escape
from typing import Any

import msgspec

from ...engine.errors import BodyTooLarge, DuelineError, NoRoute
from ...engine.job import Job, LeasedJob
from ...engine.topics import DEFAULT_LEASE_MS
from ..body import text_of
from ..http import Request, Response

ADDED, DONE = "添加成功", "操作成功"
UNREAD = "读取request body失败"
_ESCAPES = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def answer(code: int, message: str, data: Any = None) -> Response:
    body = msgspec.json.encode({"code": code, "message": message, "data": data})
    for plain, escaped in _ESCAPES:
        body = body.replace(plain, escaped)
    return Response(200, body, "application/json; charset=utf-8")


PUSHED, OK = answer(0, ADDED), answer(0, DONE)


def leased(job: LeasedJob) -> Response:
    return answer(0, DONE, {"id": job.id, "body": text_of(job)})


def found(job: Job) -> Response:
    """`delay` is the due time in whole seconds, `ttr` the lease in seconds (rounded up if another protocol set it)."""
    ttr_s = -(-(job.policy.lease_ms or DEFAULT_LEASE_MS) // 1000)
    body = text_of(job)
    data = {"topic": job.topic, "id": job.id, "delay": job.first_due_at_ms // 1000, "ttr": ttr_s, "body": body}
    return answer(0, DONE, data)


def moved(request: Request, path: str) -> Response:
    """Go's redirect to the clean path. Only the answer to a GET has a body."""
    location = path.replace("\\", "%5C")  # browsers read "\" as "/", and "//name" as another server
    if request.query:
        location += "?" + request.query
    headers = (("location", location),)
    if request.method not in ("GET", "HEAD"):
        return Response(301, b"", "", headers)
    page = f'<a href="{escape(location)}">Moved Permanently</a>.\n\n'
    return Response(301, page.encode("latin-1"), "text/html; charset=utf-8", headers)


def failed(error: DuelineError) -> Response:
    """Code 1 is the only error code. Where the original has no error text, ours names the field."""
    if isinstance(error, NoRoute):
        text = b"404 page not found\n"
        return Response(404, text, "text/plain; charset=utf-8", headers=(("x-content-type-options", "nosniff"),))
    if isinstance(error, BodyTooLarge) and error.field is None:
        return answer(1, UNREAD)  # the whole request is too large, and nothing of it was read
    return answer(1, f"{error.field}: {error.message}" if error.field else error.message)
