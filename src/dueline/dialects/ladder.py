"""A retry ladder as a setting: "5s, 30s, 2m", or "off" for a single attempt. No I/O."""

from __future__ import annotations

from ..engine.errors import InvalidField
from ..engine.policy import MAX_WAITS, Ladder, duration_ms
from .settings import ForeignSettings


class RetrySettings(ForeignSettings, frozen=True, forbid_unknown_fields=True):
    """A dialect that makes outgoing calls. It redefines `retry` with its default and its meaning."""

    retry: str = "off"

    def check(self) -> None:
        super().check()
        self.ladder()

    def ladder(self) -> Ladder | None:
        """The waits between attempts; None: a single attempt. Raises InvalidField."""
        if self.retry == "off":
            return None
        waits = self.retry.split(",")
        if len(waits) > MAX_WAITS:
            raise InvalidField(f"must have at most {MAX_WAITS} waits", "retry")
        return Ladder(tuple(duration_ms(wait.strip(), "retry") for wait in waits))
