"""The settings of the camellia dialect, in our units. docs/dialects/camellia.md lists the keys of the original."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ...engine.policy import TEN_YEARS_MS
from ..settings import ForeignSettings, Namespace

MAX_FORM_BYTES = 2 << 20  # the limit of the original's servlet container


class CamelliaSettings(ForeignSettings, frozen=True, forbid_unknown_fields=True):
    """Defaults for request parameters, and how long ended messages stay readable."""

    namespace: Namespace = "camellia"
    ttl_ms: Annotated[
        int,
        Meta(
            ge=1,
            le=TEN_YEARS_MS,
            description="How long after its due time a job can be consumed, unless the send sets it.",
        ),
    ] = 3_600_000
    max_retry: Annotated[
        int, Meta(ge=0, le=9_999, description="Deliveries after the first one, unless the send sets it.")
    ] = 10
    ack_timeout_ms: Annotated[int, Meta(ge=1, description="Time for the ack, unless the pull sets it.")] = 30_000
    long_poll_ms: Annotated[
        int, Meta(ge=1, le=3_600_000, description="How long a long poll is held, unless the poll sets it.")
    ] = 10_000
    retain_ms: Annotated[int, Meta(ge=0, le=TEN_YEARS_MS, description="How long an ended job can still be read.")] = (
        300_000
    )
    monitor_window_ms: Annotated[
        int, Meta(ge=100, le=86_400_000, description="Length of a window of getMonitorData and of its metrics.")
    ] = 60_000
