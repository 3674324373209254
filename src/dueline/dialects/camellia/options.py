"""What a camellia server can be told, in our units. The names of the original's own keys are in the docs."""

from __future__ import annotations

import msgspec

MAX_FORM_BYTES = 2 << 20  # what its servlet container reads of a form


class CamelliaOptions(msgspec.Struct, frozen=True):
    """Defaults for requests that do not say, and how long ended messages stay readable."""

    namespace: str = "camellia"
    ttl_ms: int = 3_600_000
    max_retry: int = 10
    ack_timeout_ms: int = 30_000
    long_poll_ms: int = 10_000
    retain_ms: int = 300_000
    monitor_window_ms: int = 60_000
