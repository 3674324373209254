"""The whole surface on one page. The path is matched after it was percent-decoded, so it is split by the handler:
{merge_key}/{method}/{service}, where the service is the rest and may hold slashes."""

from __future__ import annotations

from ..http import Route
from .handlers import ExfeHandlers

SPACE = "/v3/queue"


def routes(h: ExfeHandlers) -> tuple[Route, ...]:
    return (
        Route("POST", f"{SPACE}/{{place*}}", h.push, "exfe_push"),
        Route("DELETE", f"{SPACE}/{{place*}}", h.drop, "exfe_drop"),
    )
