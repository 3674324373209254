"""A retry ladder as a configuration value: "5s, 30s, 2m", or "off" for a single attempt. No I/O."""

from __future__ import annotations

from ..bounds import MAX_WAITS
from ..engine.errors import InvalidField
from ..engine.policy import Ladder, duration_ms


def ladder_of(text: str) -> Ladder | None:
    """The waits between attempts; None: a single attempt. Raises InvalidField."""
    if text == "off":
        return None
    waits = text.split(",")
    if len(waits) > MAX_WAITS:
        raise InvalidField(f"at most {MAX_WAITS} waits", "retry")
    return Ladder(tuple(duration_ms(wait.strip(), "retry") for wait in waits))
