"""The headers that a native job may carry. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from ...engine.errors import InvalidField
from ...engine.push_target import CARRIED_HEADERS


def own_headers(headers: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """Headers as written. Those by which the server itself says whom to call are not for others to set."""
    if not headers:
        return ()
    for name in headers:
        if name.lower() in CARRIED_HEADERS:
            raise InvalidField(f"{name} is the server's own", "headers")
    return tuple(headers.items())
