"""All routes of the dialect. The original matches the decoded path, so the handler splits it after decoding:
{merge_key}/{method}/{service}, where the service is the rest and may contain slashes."""

from __future__ import annotations

from ..http import Route
from .handlers import ExfeHandlers

SPACE = "/v3/queue"


def routes(h: ExfeHandlers) -> tuple[Route, ...]:
    return (
        Route("POST", f"{SPACE}/{{place*}}", h.push, "exfe_push"),
        Route("DELETE", f"{SPACE}/{{place*}}", h.drop, "exfe_drop"),
    )
