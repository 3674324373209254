"""Retry policies and durations: data in, numbers out. No I/O.

A retry policy is stored as a list of waits that the store can index (an exponential one is expanded), so
that a release without a delay is one atomic call. `waits[n-1]` is the wait after attempt n.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from ..durations import parse_duration
from .errors import InvalidField

MAX_WAITS = 32
TEN_YEARS_MS = 10 * 366 * 86_400_000
ON_DEAD_KEEP_MS = 86_400_000  # how long dead jobs are kept at least where they have somewhere to go


def duration_ms(text: str, field: str = "delay") -> int:
    """Whole milliseconds of "90s", "1h30m", at most ten years. Raises InvalidField."""
    try:
        ms = parse_duration(text)
    except ValueError as wrong:
        raise InvalidField(str(wrong), field) from None
    if ms > TEN_YEARS_MS:
        raise InvalidField("longer than 10 years", field)
    return ms


class Ladder(msgspec.Struct, frozen=True):
    """Explicit waits; when they are used up the job is dead, so 7 rungs are 8 attempts."""

    waits_ms: tuple[int, ...]


class Backoff(msgspec.Struct, frozen=True):
    """base, base*factor, base*factor^2 ... up to max; each wait is drawn from [wait*(1-jitter), wait]."""

    base_ms: int
    factor: float = 2.0
    max_ms: int = 3_600_000
    jitter: float = 0.0


Retry = Ladder | Backoff | None


class JobPolicy(msgspec.Struct, frozen=True, cache_hash=True):
    """The numbers the store needs to run one job. Equal policies are stored once per partition."""

    lease_ms: int | None = None  # None: the topic's at the pull, else the server default
    max_attempts: int | None = 10  # None: no limit
    retain_ms: int = 60_000
    dead_retain_ms: int = 30 * 86_400_000
    retry: Retry = None
    keep_body: bool = False  # ended jobs that are not dead keep their body too, for their retention

    @property
    def waits_ms(self) -> tuple[int, ...]:
        return waits_of(self.retry)


@lru_cache(1024)
def waits_of(retry: Retry) -> tuple[int, ...]:
    """The waits that the store indexes; the last one repeats. Without a policy: none, which means at once."""
    if retry is None:
        return ()
    if isinstance(retry, Ladder):
        return retry.waits_ms
    waits: list[int] = []
    wait = float(retry.base_ms)
    while len(waits) < MAX_WAITS:
        waits.append(int(min(wait, retry.max_ms)))
        if wait >= retry.max_ms:
            break
        wait *= retry.factor
        if retry.factor == 1.0:
            break
    return tuple(waits)


def attempts_allowed(retry: Retry, asked: int | None, asked_is_default: bool) -> int | None:
    """How many attempts a job has: a ladder ends the job by itself, max_attempts may end it sooner."""
    if not isinstance(retry, Ladder):
        return asked
    rungs = len(retry.waits_ms) + 1
    return rungs if asked is None or asked_is_default else min(rungs, asked)


def wait_after(policy: JobPolicy, attempts: int, jitter_draw: float) -> int:
    """The wait after the given number of attempts. `jitter_draw` is 0..1, chosen by the caller."""
    waits = policy.waits_ms
    if not waits:
        return 0
    wait = waits[min(max(attempts, 1), len(waits)) - 1]
    jitter = policy.retry.jitter if isinstance(policy.retry, Backoff) else 0.0
    return int(wait * (1.0 - jitter * jitter_draw))


class MergePolicy(msgspec.Struct, frozen=True):
    """What a topic says about its merge groups, for sends that do not say; None = the default."""

    quiet_ms: int | None = None
    max_wait_ms: int | None = None
    max_items: int | None = None
    update: str | None = None  # once | always


class OnDead(msgspec.Struct, frozen=True):
    """Where a job goes when it dies: to another topic of the namespace, or by a call to a URL. Exactly one is given."""

    topic: str | None = None
    url: str | None = None


class TopicPolicy(msgspec.Struct, frozen=True):
    """What a topic says about its jobs; None = the server default. Applied when a job is sent: a stored job
    keeps the policy it was sent with. Only `lease_ms` is also looked up at the pull, for jobs without their own."""

    lease_ms: int | None = None
    max_attempts: int | None = None
    ttl_ms: int | None = None
    retain_ms: int | None = None
    dead_retain_ms: int | None = None
    retry: Retry = None
    on_conflict: str | None = None
    spread_ms: int | None = None
    max_body_bytes: int | None = None
    merge: MergePolicy | None = None
    on_dead: OnDead | None = None
