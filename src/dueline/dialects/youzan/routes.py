"""All routes of the dialect. The protocol defines neither path nor method, so there are two paths for any method."""

from __future__ import annotations

from ...rights import Right
from ..http import Route, TokenPlace
from .handlers import YouzanHandlers

RIGHTS = {"add": Right.SEND, "pop": Right.PULL, "finish": Right.PULL, "delete": Right.MANAGE}  # by command


def routes(h: YouzanHandlers) -> tuple[Route, ...]:
    token = TokenPlace.ANYWHERE
    return (
        Route("*", "/", h.command, "youzan_command", RIGHTS, token, parks=True),
        Route("*", "/delay-queue", h.command, "youzan_command_named", RIGHTS, token, parks=True),
    )
