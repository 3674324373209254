"""Answers: always HTTP 200 and always all four fields. No I/O."""

from __future__ import annotations

import msgspec

from ...engine.errors import BodyTooLarge, DuelineError, MethodNotAllowed, NoRoute
from ...engine.job import Held
from ..body import text_of
from ..http import Response, plain_error
from .decode import Refused, id_of

_JSON = "application/json; charset=utf-8"


def done(id: str) -> Response:
    return _answer(True, "", id, "")


def held(job: Held) -> Response:
    return _answer(True, "", job.id, text_of(job.body, job.kind))


def nothing(success: bool) -> Response:
    return _answer(success, "" if success else "no job ready", None, None)


def failed(error: DuelineError) -> Response:
    if isinstance(error, NoRoute):
        return plain_error(404, error.code, error.message)
    if isinstance(error, MethodNotAllowed):
        return plain_error(405, error.code, error.message)
    text = (
        error.message
        if isinstance(error, Refused)
        else "body too large"
        if isinstance(error, BodyTooLarge)
        else _reason(error)
    )
    return _answer(False, text, id_of(error), None)


def _reason(error: DuelineError) -> str:
    return f"{error.field}: {error.message}" if error.field else error.message


def _answer(success: bool, error: str, id: str | None, value: str | None) -> Response:
    body = msgspec.json.encode({"success": success, "error": error, "id": id, "value": value})
    return Response(200, body, _JSON)
