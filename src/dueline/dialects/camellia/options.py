"""The options of the camellia dialect, in our units. The docs list the corresponding keys of the original."""

from __future__ import annotations

import msgspec

MAX_FORM_BYTES = 2 << 20  # the limit of the original's servlet container


class CamelliaOptions(msgspec.Struct, frozen=True):
    """Defaults for request parameters, and how long ended messages stay readable."""

    namespace: str = "camellia"
    ttl_ms: int = 3_600_000
    max_retry: int = 10
    ack_timeout_ms: int = 30_000
    long_poll_ms: int = 10_000
    retain_ms: int = 300_000
    monitor_window_ms: int = 60_000
