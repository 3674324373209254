"""Retry policies and durations: data in, numbers out. No I/O.

A retry policy is stored as a list of waits (an exponential one is expanded). The store picks the wait itself, so a
release without a delay is one atomic call. `waits[n-1]` is the wait after attempt n; the last wait repeats.

Every job has a retry policy; "at once" is one of them (AT_ONCE, "none" on the wire). Only topics and push targets can
leave theirs unset (None). The first one that is set applies: the job's, the topic's, the push target's. Otherwise the
push default (push_target.PUSH_RETRY) applies if the topic has a target, else the server's default (DEFAULT_RETRY).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from ..bounds import MAX_WAITS
from ..durations import parse_duration
from .errors import InvalidField

TEN_YEARS_MS = 10 * 366 * 86_400_000
ON_DEAD_KEEP_MS = 86_400_000  # dead jobs that will be forwarded are kept at least this long


def duration_ms(text: str, field: str = "delay") -> int:
    """Whole milliseconds of "90s", "1h30m", at most ten years. Raises InvalidField."""
    try:
        ms = parse_duration(text)
    except ValueError as wrong:
        raise InvalidField(str(wrong), field) from None
    if ms > TEN_YEARS_MS:
        raise InvalidField("must be at most 10 years", field)
    return ms


class Ladder(msgspec.Struct, frozen=True):
    """Explicit waits. The job dies when they are used up, so 7 rungs mean 8 attempts."""

    waits_ms: tuple[int, ...]


class Backoff(msgspec.Struct, frozen=True):
    """base, base*factor, base*factor^2 ... up to max; each wait is drawn from [wait*(1-jitter), wait]."""

    base_ms: int
    factor: float = 2.0
    max_ms: int = 3_600_000
    jitter: float = 0.0


class AtOnce(msgspec.Struct, frozen=True):
    """No wait between attempts."""


AT_ONCE = AtOnce()
Retry = Ladder | Backoff | AtOnce

DEFAULT_RETRY = Backoff(1_000, 2.0, 3_600_000, 0.1)
DEFAULT_ATTEMPTS = 20
"""With DEFAULT_RETRY a job that keeps failing is dead after about 8 hours."""


class JobPolicy(msgspec.Struct, frozen=True, cache_hash=True):
    """The numbers the store needs to run one job. Equal policies are stored once per partition."""

    lease_ms: int | None = None  # None: the topic's at the time of the pull, else the server default
    max_attempts: int | None = DEFAULT_ATTEMPTS  # None: no limit
    retain_ms: int = 60_000
    dead_retain_ms: int = 30 * 86_400_000
    retry: Retry = DEFAULT_RETRY
    keep_body: bool = False  # done and cancelled jobs keep their body during their retention, as dead ones do

    @property
    def waits_ms(self) -> tuple[int, ...]:
        return waits_of(self.retry)


@lru_cache(1024)
def waits_of(retry: Retry) -> tuple[int, ...]:
    """The waits as stored; the last one repeats. Empty: no wait."""
    if isinstance(retry, AtOnce):
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
    """How many attempts a job has. A ladder limits them by its length, and max_attempts may limit them further."""
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


class StoredRetry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A retry policy that may be unset, in its stored form. Base class of the stored topic policy and push target."""

    ladder: tuple[int, ...] | None = None
    backoff: Backoff | None = None
    at_once: bool = False

    @property
    def retry(self) -> Retry | None:
        if self.ladder is not None:
            return Ladder(self.ladder)
        return AT_ONCE if self.at_once else self.backoff


def stored_retry(retry: Retry | None) -> dict[str, Any]:
    """The fields of a StoredRetry."""
    return {
        "ladder": retry.waits_ms if isinstance(retry, Ladder) else None,
        "backoff": retry if isinstance(retry, Backoff) else None,
        "at_once": isinstance(retry, AtOnce),
    }


class MergePolicy(msgspec.Struct, frozen=True):
    """A topic's settings for merge groups, used by sends without their own; None = the default."""

    quiet_ms: int | None = None
    max_wait_ms: int | None = None
    max_items: int | None = None
    update: str | None = None  # once | always


class OnDead(msgspec.Struct, frozen=True):
    """Where a job goes when it dies: to another topic of the namespace, or to a URL. Exactly one is set."""

    topic: str | None = None
    url: str | None = None


class TopicPolicy(msgspec.Struct, frozen=True):
    """A topic's settings for its jobs; None = unset: the server default applies. The policy is applied when a job is
    sent, and a stored job keeps it. Only `lease_ms` is read again at the pull, for jobs without their own.

    `by_worker`: names of the fields that a worker set. All other fields that are set were set by an operator."""

    lease_ms: int | None = None
    max_attempts: int | None = None
    ttl_ms: int | None = None
    retain_ms: int | None = None
    dead_retain_ms: int | None = None
    retry: Retry | None = None
    on_conflict: str | None = None
    spread_ms: int | None = None
    max_body_bytes: int | None = None
    merge: MergePolicy | None = None
    on_dead: OnDead | None = None
    by_worker: frozenset[str] = frozenset()


POLICY_FIELDS = tuple(name for name in TopicPolicy.__struct_fields__ if name != "by_worker")


def with_worker(policy: TopicPolicy, wanted: TopicPolicy) -> TopicPolicy:
    """The policy after a worker's request, which may change fields that are unset or were set by a worker. Fields set
    by an operator stay, and so do those that the worker leaves unset."""
    named = (name for name in POLICY_FIELDS if getattr(wanted, name) is not None)
    taken = {name for name in named if name in policy.by_worker or getattr(policy, name) is None}
    changes = {name: getattr(wanted, name) for name in taken}
    return msgspec.structs.replace(policy, **changes, by_worker=policy.by_worker | taken)
