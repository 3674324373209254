"""Reschedule and edit: turns a patch command into a store edit. No I/O."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from .commands import Patch
from .headers import pack_headers
from .policy import JobPolicy, Ladder, attempts_allowed
from .sending import same_policy
from .store import Edit


def changes_policy(patch: Patch) -> bool:
    """Whether the patch changes the job's policy, so that the job must be read first."""
    return patch.lease_ms is not UNSET or patch.max_attempts is not UNSET or patch.retry is not UNSET


def patched_policy(patch: Patch, old: JobPolicy, default: JobPolicy) -> JobPolicy:
    """The whole new policy. A ladder sets the number of attempts, unless the job has its own."""
    retry = old.retry if patch.retry is UNSET else default.retry if patch.retry is None else patch.retry
    if patch.max_attempts is not UNSET:
        attempts = attempts_allowed(retry, patch.max_attempts, asked_is_default=False)
    elif patch.retry is UNSET:
        attempts = old.max_attempts
    else:
        by_ladder = isinstance(old.retry, Ladder) and old.max_attempts == len(old.retry.waits_ms) + 1
        is_default = by_ladder or old.max_attempts == default.max_attempts
        asked = default.max_attempts if is_default else old.max_attempts
        attempts = attempts_allowed(retry, asked, is_default)
    lease_ms = old.lease_ms if patch.lease_ms is UNSET else patch.lease_ms
    return same_policy(replace(old, lease_ms=lease_ms, max_attempts=attempts, retry=retry))


def edit_of(patch: Patch, policy: JobPolicy | None, version: int | None) -> Edit:
    """The store edit for a patch. `version` is that of the job from which `policy` was computed."""
    return Edit(
        id=patch.id,
        version=version,
        delay_ms=patch.delay_ms,
        at_ms=patch.at_ms,
        body=patch.body,
        kind=patch.kind,
        headers=None if patch.headers is UNSET else pack_headers(patch.headers),
        tags=None if patch.tags is UNSET else patch.tags,
        ttl_ms=None if patch.ttl_ms is UNSET else patch.ttl_ms or 0,
        policy=policy,
    )
