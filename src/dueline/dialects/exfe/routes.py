"""All routes of the dialect. The original matches the decoded path, so the handler splits it after decoding:
{merge_key}/{method}/{service}, where the service is the rest and may contain slashes."""

from __future__ import annotations

from ...rights import Right
from ..http import Route, TokenPlace
from .handlers import ExfeHandlers

SPACE = "/v3/queue"


def routes(h: ExfeHandlers) -> tuple[Route, ...]:
    token = TokenPlace.ANYWHERE
    return (
        Route("POST", f"{SPACE}/{{place*}}", h.push, "exfe_push", Right.PUSH, token),
        Route("DELETE", f"{SPACE}/{{place*}}", h.drop, "exfe_drop", Right.MANAGE, token, audited=True),
    )
