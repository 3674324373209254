"""All routes of the dialect. The original ignores the HTTP method."""

from __future__ import annotations

from ...rights import Right
from ..http import Route, TokenPlace
from .handlers import OuqiangHandlers


def routes(h: OuqiangHandlers) -> tuple[Route, ...]:
    token = TokenPlace.ANYWHERE
    return (
        Route("*", "/push", h.push, "ouqiang_push", Right.SEND, token),
        Route("*", "/pop", h.pop, "ouqiang_pop", Right.PULL, token, parks=True),
        Route("*", "/finish", h.finish, "ouqiang_finish", Right.PULL, token),
        Route("*", "/delete", h.delete, "ouqiang_delete", Right.MANAGE, token, audited=True),
        Route("*", "/get", h.get, "ouqiang_get", Right.READ, token),
    )
