"""All routes of the dialect. The original ignores the HTTP method."""

from __future__ import annotations

from ...rights import Right
from ..http import Route, TokenPlace, line_route
from .handlers import OuqiangHandlers


def routes(h: OuqiangHandlers) -> tuple[Route, ...]:
    token = TokenPlace.ANYWHERE
    return (
        line_route("*", "/push", h.push, "ouqiang_push", Right.SEND, token),
        line_route("*", "/pop", h.pop, "ouqiang_pop", Right.PULL, token, parks=True),
        line_route("*", "/finish", h.finish, "ouqiang_finish", Right.PULL, token),
        Route("*", "/delete", h.delete, "ouqiang_delete", Right.MANAGE, token, audited=True),
        Route("*", "/get", h.get, "ouqiang_get", Right.READ, token),
    )
