"""The headers that a native job may carry. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from ...engine.errors import InvalidField
from ...engine.push_target import CARRIED_HEADERS


def own_headers(headers: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """The headers of a send. Refuses those in which the server stores the URL of a call."""
    if not headers:
        return ()
    for name in headers:
        if name.lower() in CARRIED_HEADERS:
            raise InvalidField(f"{name} is reserved for the server", "headers")
    return tuple(headers.items())
