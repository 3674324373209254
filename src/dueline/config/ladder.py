"""A retry ladder as one text of the configuration: "5s, 30s, 2m", or "off" for one try. No I/O."""

from __future__ import annotations

from ..engine.policy import Ladder, duration_ms

LADDER_PATTERN = r"^(off|\s*\d{1,9}(\.\d{1,3})?(ms|s|m|h|d)\s*(,\s*\d{1,9}(\.\d{1,3})?(ms|s|m|h|d)\s*){0,31})$"


def ladder_of(text: str) -> Ladder | None:
    """The waits between tries; None: there is one try only."""
    if text == "off":
        return None
    return Ladder(tuple(duration_ms(part.strip(), "retry") for part in text.split(",")))
