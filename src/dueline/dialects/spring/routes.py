"""All routes of the dialect."""

from __future__ import annotations

from ..http import Route
from .handlers import SpringHandlers


def routes(h: SpringHandlers) -> tuple[Route, ...]:
    return (
        Route("POST", "/job/add", h.add, "spring_add"),
        Route("GET", "/task/type/list", h.types, "spring_types"),
        Route("GET", "/discovery/service_info", h.service_info, "spring_service_info"),
    )
