"""How a protocol shows bodies that another one stored. String protocols show JSON as its text, bytes as base64, and the
items of a merge group as the text of one JSON array."""

from __future__ import annotations

import base64

from ..engine.items import items_json
from ..engine.job import BodyKind, Job, LeasedJob


def text_of(job: LeasedJob | Job) -> str:
    """The body of a job as a string protocol shows it; empty if the body is no longer stored."""
    if job.items is not None:
        return items_json(job.items).decode(errors="replace")
    body = job.body or b""
    if job.kind is BodyKind.BYTES:
        return base64.b64encode(body).decode()
    return body.decode(errors="replace")
