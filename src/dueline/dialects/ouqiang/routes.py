"""All routes of the dialect. The original ignores the HTTP method."""

from __future__ import annotations

from ..http import Route
from .handlers import OuqiangHandlers


def routes(h: OuqiangHandlers) -> tuple[Route, ...]:
    return (
        Route("*", "/push", h.push, "ouqiang_push"),
        Route("*", "/pop", h.pop, "ouqiang_pop", parks=True),
        Route("*", "/finish", h.finish, "ouqiang_finish"),
        Route("*", "/delete", h.delete, "ouqiang_delete"),
        Route("*", "/get", h.get, "ouqiang_get"),
    )
