"""All routes of the dialect."""

from __future__ import annotations

from ...rights import Right
from ..http import Route, TokenPlace
from .handlers import SpringHandlers


def routes(h: SpringHandlers) -> tuple[Route, ...]:
    token = TokenPlace.ANYWHERE
    return (
        Route("POST", "/job/add", h.add, "spring_add", Right.PUSH, token),
        Route("GET", "/task/type/list", h.types, "spring_types", Right.READ, token),
        Route("GET", "/discovery/service_info", h.service_info, "spring_service_info", Right.READ, token),
    )
