"""What the audit log says about a call of the native API: from its request struct and its reply. No I/O.

Of most requests only the names of the given fields are noted, because values may hold secrets (a URL, a header).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from ...api import answers as a
from ...api import push_requests as pr
from ...api import requests as r
from ...api import schedule_requests as sr
from ...api import token_requests as tr
from ...api.reply import Reply
from ...engine.audit import AuditNote

WITH_VALUES = (r.CancelJobs, r.ReviveJobs, r.PurgeJobs, r.PauseTopic, tr.CreateToken, tr.RotateToken)
"""Requests whose values are noted, too."""


def note_request(note: AuditNote, request: Any) -> None:
    """Note what a request asks for."""
    if not isinstance(request, r.Request):
        return
    given = {
        field.name: getattr(request, field.name)
        for field in msgspec.structs.fields(request)
        if getattr(request, field.name) not in (None, UNSET)
    }
    if isinstance(request, WITH_VALUES):
        note.name_jobs(given.pop("ids", ())) if "ids" in given else None
        note.details |= msgspec.to_builtins(given)
    elif given:
        note.details["fields"] = list(given)
    if isinstance(request, sr.PutSchedule):
        note.topic = request.topic
    if isinstance(request, pr.PutPush):
        note.details |= _target(request)


def note_reply(note: AuditNote, reply: Reply) -> None:
    """Note what the call did."""
    value = reply.value
    if reply.error is not None:
        note.code = reply.error.code
    if isinstance(value, a.Bulk):
        note.details |= {"matched": value.matched, "changed": value.changed}
        if not value.complete:
            note.details["complete"] = False
    elif isinstance(value, a.Outcomes):
        note.details["changed"] = sum(one.error is None for one in value.results)
    elif isinstance(id := getattr(value, "id", None), str):
        note.name_jobs([id])


def _target(request: pr.PutPush) -> dict[str, str]:
    """Which server is called. The rest of a URL may be secret."""
    if request.service is not None:
        return {"service": request.service}
    try:
        parts = urlsplit(request.url or "")
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return {}
    return {"origin": f"{parts.scheme}://{parts.hostname}{port}"} if parts.hostname else {}
