"""Where a topic's jobs are pushed to, as data. No I/O.

A target is part of the topic's config: whoever knows the topic knows its target, in every process. How a call is made
is the business of the push package; `courier` names who there does it.
"""

from __future__ import annotations

import msgspec

from .policy import Retry

MAX_SECRETS = 2


class Breaker(msgspec.Struct, frozen=True):
    """After `failures` calls in a row that failed, nothing is called for open_ms; then one call decides."""

    failures: int = 10
    open_ms: int = 30_000


class PushTarget(msgspec.Struct, frozen=True):
    """A push target. Exactly one of `url` and `service` for the courier "http"; other couriers find it by themselves.

    `success`: the statuses that mean done; empty = every 2xx. `retry`: for jobs sent from now on whose own or topic's
    policy does not say. `rate_per_s` 0 = no limit. `secrets`: the newest first; all of them sign.
    """

    url: str | None = None
    service: str | None = None
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    timeout_ms: int = 30_000
    concurrency: int = 16
    rate_per_s: float = 0.0
    success: tuple[int, ...] = ()
    retry: Retry = None
    breaker: Breaker | None = Breaker()
    secrets: tuple[str, ...] = ()
    paused: bool = False
    courier: str = "http"
