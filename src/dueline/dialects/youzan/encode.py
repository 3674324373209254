"""Answers: always HTTP 200, always with all four fields. No I/O."""

from __future__ import annotations

import msgspec

from ...engine.errors import BodyTooLarge, DuelineError
from ...engine.job import LeasedJob
from ..body import text_of
from ..http import Response
from .decode import Refused


def done(id: str) -> Response:
    return _answer(True, "", id, "")


def leased(job: LeasedJob) -> Response:
    return _answer(True, "", job.id, text_of(job))


def nothing(success: bool) -> Response:
    return _answer(success, "" if success else "no job ready", None, None)


def failed(error: DuelineError) -> Response:
    id = error.id if isinstance(error, Refused) else None
    return _answer(False, reason_of(error), id, None)


def reason_of(error: DuelineError) -> str:
    """A stable error text; it names the field if a value exceeds a limit."""
    if isinstance(error, BodyTooLarge):
        return "body too large"
    return f"{error.field}: {error.message}" if error.field else error.message


def _answer(success: bool, error: str, id: str | None, value: str | None) -> Response:
    body = msgspec.json.encode({"success": success, "error": error, "id": id, "value": value})
    return Response(200, body, "application/json; charset=utf-8")
