"""All routes of the dialect. The protocol defines neither path nor method, so there are two paths for any method."""

from __future__ import annotations

from ..http import Route, TokenPlace
from .handlers import RIGHTS, YouzanHandlers


def routes(h: YouzanHandlers) -> tuple[Route, ...]:
    token = TokenPlace.ANYWHERE
    return (
        Route("*", "/", h.command, "youzan_command", RIGHTS, token, parks=True),
        Route("*", "/delay-queue", h.command, "youzan_command_named", RIGHTS, token, parks=True),
    )
