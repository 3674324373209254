"""Where a topic's jobs are pushed to, as data. No I/O.

A target is part of the topic's config, so every process that has read the config knows the target. Calls are made by
the push package; `courier` names the implementation.

Its concurrency and rate are divided among the topic's partitions, so the store enforces both exactly over all
processes (`limits_of`).
"""

from __future__ import annotations

import re

import msgspec

from .policy import DEFAULT_RETRY, Backoff, Retry, StoredRetry, stored_retry

PUSH_RETRY = Backoff(5_000, 3.0, 12 * 3_600_000, 0.2)
"""For pushed jobs if neither job, topic nor target sets a retry: 5 s, 15 s, 45 s ... 3 h, 9 h, 12 h, 12 h.
Slower than the default of pulled jobs, because every attempt is a call to somebody else's server."""

URL_HEADER, METHOD_HEADER = "Dueline-Url", "Dueline-Method"
CARRIED_HEADERS = frozenset({URL_HEADER.lower(), METHOD_HEADER.lower()})
"""Headers of a job that carries its own target (the courier "carried"), in any letter case. Users may not set them."""

_CREDENTIAL = re.compile(r"auth|cookie|key|password|secret|session|signature|token", re.IGNORECASE)


def is_credential(header: str) -> bool:
    """Whether a header may hold a credential, judged by its name. Such a header is never shown, nor sent to another
    address."""
    return _CREDENTIAL.search(header) is not None


class Breaker(msgspec.Struct, frozen=True):
    """After `failures` failed calls in a row, no calls are made for open_ms. Then each process makes one trial call."""

    failures: int = 10
    open_ms: int = 30_000


class PushTarget(msgspec.Struct, frozen=True):
    """A push target. The courier "http" needs exactly one of `url` and `service`; other couriers find the address
    themselves.

    `success`: the status codes that complete a job; empty = any 2xx. `retry`: for jobs sent from now on, if neither job
    nor topic sets one; None = PUSH_RETRY applies. `rate_per_s` 0 = no limit. `secrets`: newest first; each adds a
    signature. `timeout_ms`: for one call; None = as long as the connection lives.
    """

    url: str | None = None
    service: str | None = None
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    timeout_ms: int | None = 30_000
    concurrency: int = 16
    rate_per_s: float = 0.0
    success: tuple[int, ...] = ()
    retry: Retry | None = None
    breaker: Breaker | None = Breaker()
    secrets: tuple[str, ...] = ()
    paused: bool = False
    courier: str = "http"

    @property
    def address(self) -> tuple[str | None, str | None, str]:
        """What is called (a URL or a service), and by which courier. The log and the breaker belong to it."""
        return self.url, self.service, self.courier


class PushTopic(msgspec.Struct, frozen=True):
    """A topic that has a target. `version` is that of its config; if it changes, the target may have changed."""

    namespace: str
    topic: str
    version: int
    target: PushTarget


def retry_of(own: Retry | None, target: PushTarget | None) -> Retry:
    """The retry of a topic's jobs: from its policy, else from its target, else the default."""
    if own is not None:
        return own
    if target is None:
        return DEFAULT_RETRY
    return PUSH_RETRY if target.retry is None else target.retry


def limits_of(target: PushTarget | None, partitions: int) -> list[tuple[int, float]]:
    """The in-flight limit and the rate of each partition. They add up to the target's; without a target there are no
    limits."""
    if target is None:
        return [(0, 0.0)] * partitions
    share, rest = divmod(target.concurrency, partitions)
    return [(share + (place < rest), target.rate_per_s / partitions) for place in range(partitions)]


class StoredTarget(StoredRetry, frozen=True, omit_defaults=True):
    """The stored form of a target. `breaker` empty: none."""

    url: str | None = None
    service: str | None = None
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    timeout_ms: int | None = 30_000
    concurrency: int = 16
    rate_per_s: float = 0.0
    success: tuple[int, ...] = ()
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
        breaker=() if target.breaker is None else (target.breaker.failures, target.breaker.open_ms),
        secrets=target.secrets,
        paused=target.paused,
        courier=target.courier,
        **stored_retry(target.retry),
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
        retry=stored.retry,
        breaker=Breaker(*stored.breaker) if stored.breaker else None,
        secrets=stored.secrets,
        paused=stored.paused,
        courier=stored.courier,
    )
