"""Answers: an empty body, or a line of text."""

from __future__ import annotations

from ...engine.errors import (
    BadRequest,
    BodyTooLarge,
    Draining,
    DuelineError,
    EgressRefused,
    Loading,
    MethodNotAllowed,
    NoRoute,
    RateLimited,
)
from ..http import Response
from .decode import Refused, text_of

PLAIN = "text/plain; charset=utf-8"
STATUSES: tuple[tuple[type[DuelineError], int], ...] = (
    (NoRoute, 404),
    (MethodNotAllowed, 405),
    (BodyTooLarge, 413),
    (EgressRefused, 403),
    (RateLimited, 429),
    (Loading, 503),
    (Draining, 503),
    (BadRequest, 400),
)


def done() -> Response:
    return Response(200, b"", PLAIN)


def failed(error: DuelineError) -> Response:
    """A failure of the store is 500 with its text, as in the original. Clients check only for 2xx."""
    if isinstance(error, Refused):
        return _line(error.status, error.message)
    if isinstance(error, NoRoute):
        return _line(404, "404 page not found")
    status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
    return _line(status, text_of(error))


def _line(status: int, text: str) -> Response:
    return Response(status, f"{text}\n".encode(errors="replace"), PLAIN)
