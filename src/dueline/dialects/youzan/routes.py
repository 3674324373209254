"""The whole surface on one page: the document names no path, so there are two."""

from __future__ import annotations

from ..http import Route
from .handlers import YouzanHandlers


def routes(h: YouzanHandlers) -> tuple[Route, ...]:
    return (
        Route("POST", "/", h.command, "youzan_command", parks=True),
        Route("GET", "/", h.browse, "youzan_browse", parks=True),
        Route("*", "/delay-queue", h.command, "youzan_command_named", parks=True),
    )
