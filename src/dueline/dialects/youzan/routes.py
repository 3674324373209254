"""All routes of the dialect. The protocol defines neither path nor method, so there are two paths for any method."""

from __future__ import annotations

from ..http import Route
from .handlers import YouzanHandlers


def routes(h: YouzanHandlers) -> tuple[Route, ...]:
    return (
        Route("*", "/", h.command, "youzan_command", parks=True),
        Route("*", "/delay-queue", h.command, "youzan_command_named", parks=True),
    )
