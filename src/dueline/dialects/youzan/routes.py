"""All routes of the dialect. The protocol defines neither path nor method, so there are two paths for any method."""

from __future__ import annotations

from ..http import Route, TokenPlace
from .handlers import RIGHTS, YouzanHandlers

AUDITED = {"delete": "youzan_delete"}  # by command


def routes(h: YouzanHandlers) -> tuple[Route, ...]:
    token = TokenPlace.ANYWHERE
    return (
        Route("*", "/", h.command, "youzan_command", RIGHTS, token, parks=True, audited=AUDITED),
        Route("*", "/delay-queue", h.command, "youzan_command_named", RIGHTS, token, parks=True, audited=AUDITED),
    )
