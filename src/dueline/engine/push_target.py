"""Where a topic's jobs are pushed to, as data. No I/O.

A target is part of the topic's config: whoever knows the topic knows its target, in every process. How a call is made
is the business of the push package; `courier` names who there does it.

Its concurrency and rate are told to the topic's lines, split over them, so that the store enforces both exactly over
all processes (`limits_of`).
"""

from __future__ import annotations

import re

import msgspec

from .policy import Backoff, Ladder, Retry

MAX_SECRETS = 2
DEFAULT_RETRY = Backoff(5_000, 3.0, 12 * 3_600_000, 0.2)
"""For jobs that nobody gave a retry: 5 s, 15 s, 45 s ... 3 h, 9 h. A target that fails is not asked again at once: ten
attempts would be over before it is back."""

URL_HEADER, METHOD_HEADER = "Dueline-Url", "Dueline-Method"
CARRIED_HEADERS = frozenset({URL_HEADER.lower(), METHOD_HEADER.lower()})
"""Of a job that carries its own target (the courier "carried"), in any case; nobody outside may set them."""

_CREDENTIAL = re.compile(r"auth|cookie|key|password|secret|session|signature|token", re.IGNORECASE)


def is_credential(header: str) -> bool:
    """Whether a header may prove an identity, by its name: it is then not shown, and not given to another address."""
    return _CREDENTIAL.search(header) is not None


class Breaker(msgspec.Struct, frozen=True):
    """After `failures` calls in a row that failed, nothing is called for open_ms; then one call decides."""

    failures: int = 10
    open_ms: int = 30_000


class PushTarget(msgspec.Struct, frozen=True):
    """A push target. Exactly one of `url` and `service` for the courier "http"; other couriers find it by themselves.

    `success`: the statuses that mean done; empty = every 2xx. `retry`: for jobs sent from now on whose own or topic's
    policy does not say; None = DEFAULT_RETRY. `rate_per_s` 0 = no limit. `secrets`: the newest first; all of them sign.
    `timeout_ms` of one call; None: it may take as long as its connection lives.
    """

    url: str | None = None
    service: str | None = None
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    timeout_ms: int | None = 30_000
    concurrency: int = 16
    rate_per_s: float = 0.0
    success: tuple[int, ...] = ()
    retry: Retry = None
    breaker: Breaker | None = Breaker()
    secrets: tuple[str, ...] = ()
    paused: bool = False
    courier: str = "http"


class Pushing(msgspec.Struct, frozen=True):
    """A topic that has a target. `version` is that of its config: another one, maybe another target."""

    namespace: str
    topic: str
    version: int
    target: PushTarget


def retry_of(own: Retry, target: PushTarget | None) -> Retry:
    """The retry of a topic's jobs: what its policy says, else its target's."""
    return own if own is not None or target is None else target.retry or DEFAULT_RETRY


def limits_of(target: PushTarget | None, partitions: int) -> list[tuple[int, float]]:
    """What each line may have in flight, and its rate: together exactly the target's. Without a target no limits."""
    if target is None:
        return [(0, 0.0)] * partitions
    share, rest = divmod(target.concurrency, partitions)
    return [(share + (place < rest), target.rate_per_s / partitions) for place in range(partitions)]


class StoredTarget(msgspec.Struct, frozen=True, omit_defaults=True):
    """A target as the directory keeps it. `breaker` empty: none."""

    url: str | None = None
    service: str | None = None
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    timeout_ms: int | None = 30_000
    concurrency: int = 16
    rate_per_s: float = 0.0
    success: tuple[int, ...] = ()
    ladder: tuple[int, ...] | None = None
    backoff: Backoff | None = None
    breaker: tuple[int, ...] = ()
    secrets: tuple[str, ...] = ()
    paused: bool = False
    courier: str = "http"


def stored_target(target: PushTarget) -> StoredTarget:
    return StoredTarget(
        url=target.url,
        service=target.service,
        method=target.method,
        headers=target.headers,
        timeout_ms=target.timeout_ms,
        concurrency=target.concurrency,
        rate_per_s=target.rate_per_s,
        success=target.success,
        ladder=target.retry.waits_ms if isinstance(target.retry, Ladder) else None,
        backoff=target.retry if isinstance(target.retry, Backoff) else None,
        breaker=() if target.breaker is None else (target.breaker.failures, target.breaker.open_ms),
        secrets=target.secrets,
        paused=target.paused,
        courier=target.courier,
    )


def loaded_target(stored: StoredTarget) -> PushTarget:
    return PushTarget(
        url=stored.url,
        service=stored.service,
        method=stored.method,
        headers=stored.headers,
        timeout_ms=stored.timeout_ms,
        concurrency=stored.concurrency,
        rate_per_s=stored.rate_per_s,
        success=stored.success,
        retry=Ladder(stored.ladder) if stored.ladder is not None else stored.backoff,
        breaker=Breaker(*stored.breaker) if stored.breaker else None,
        secrets=stored.secrets,
        paused=stored.paused,
        courier=stored.courier,
    )
