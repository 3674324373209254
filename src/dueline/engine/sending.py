"""Turns a send command into a store item. No I/O.

The policy is resolved in the order job, topic, push target, server default. Equal policies are one object, so the store
can compare them by identity. A send without options uses the topic's prepared policy: this is the hot path.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from .checks import Checks
from .commands import Send
from .headers import pack_headers
from .limits import LAST_MS, check_name
from .merging import merge_of
from .policy import DEFAULT_ATTEMPTS, ON_DEAD_KEEP_MS, AtOnce, Backoff, JobPolicy, Ladder, Retry, attempts_allowed
from .store import SendItem
from .topics import Topic

T = TypeVar("T")
_head = struct.Struct(">BqqI").pack
_unpack64 = struct.Struct(">Q").unpack
_hash64 = blake2b(digest_size=8)
_TOO_LATE_MS = LAST_MS + 1
_ALL_UNSET = 0b1111
_OF_A_TRACE = frozenset({"traceparent", "tracestate"})  # a request that is repeated in another trace is the same one


class _Fingerprint(msgspec.Struct, array_like=True):
    """The options of a request as given, for its fingerprint. "At once" is encoded as None, so that fingerprints of
    already stored jobs stay valid; `unset` distinguishes it from an option that was not given."""

    lease_ms: int | None
    ttl_ms: int | None
    max_attempts: int | None
    retry: Ladder | Backoff | None
    unset: int
    retain_ms: int | None
    dead_retain_ms: int | None
    keep_body: bool
    tags: tuple[str, ...]
    headers: tuple[tuple[str, str], ...]


@lru_cache(4096)
def same_policy(policy: JobPolicy) -> JobPolicy:
    """The shared object for this policy."""
    return policy


@lru_cache(4096)
def _own_policy(
    checks: Checks,
    base: JobPolicy,
    of_topic: int | None,
    forwards: bool,
    lease_ms: int | UnsetType | None,
    ttl_ms: int | UnsetType | None,
    max_attempts: int | UnsetType | None,
    retry: Retry | UnsetType,
    retain_ms: int | None,
    dead_retain_ms: int | None,
    keep_body: bool,
) -> JobPolicy:
    """Check a job's own options, and make its policy: each option is the job's, else that of the topic (`base`), else
    the default. `of_topic`: the attempts that the topic's policy sets. `forwards`: dead jobs are forwarded, so they are
    kept at least as long as that takes. Jobs mostly come with the same options, so this is rarely called."""
    checks.own_numbers(lease_ms, ttl_ms, max_attempts, retry)
    checks.retention(retain_ms, dead_retain_ms)
    now_retry = base.retry if retry is UNSET else retry
    if max_attempts is not UNSET:
        attempts = attempts_allowed(now_retry, max_attempts, asked_is_default=False)
    elif retry is UNSET:
        attempts = base.max_attempts
    else:
        attempts = attempts_allowed(now_retry, DEFAULT_ATTEMPTS if of_topic is None else of_topic, of_topic is None)
    if dead_retain_ms is None:
        dead_retain_ms = base.dead_retain_ms
    elif forwards:
        dead_retain_ms = max(dead_retain_ms, ON_DEAD_KEEP_MS)
    return same_policy(
        JobPolicy(
            lease_ms=None if lease_ms is UNSET else lease_ms,
            max_attempts=attempts,
            retain_ms=base.retain_ms if retain_ms is None else retain_ms,
            dead_retain_ms=dead_retain_ms,
            retry=now_retry,
            keep_body=keep_body,
        )
    )


def _known(value: T | UnsetType) -> T | None:
    return None if isinstance(value, UnsetType) else value


def _written(command: Send) -> bytes:
    retry = _known(command.retry)
    unset = (
        (command.lease_ms is UNSET)
        | (command.ttl_ms is UNSET) << 1
        | (command.max_attempts is UNSET) << 2
        | (command.retry is UNSET) << 3
    )
    headers = command.headers and tuple(one for one in command.headers if one[0].lower() not in _OF_A_TRACE)
    rest = command.retain_ms is None and command.dead_retain_ms is None and not command.keep_body
    if unset == _ALL_UNSET and rest and not command.tags and not headers:
        return b""
    return msgspec.msgpack.encode(
        _Fingerprint(
            _known(command.lease_ms),
            _known(command.ttl_ms),
            _known(command.max_attempts),
            None if isinstance(retry, AtOnce) else retry,
            unset,
            command.retain_ms,
            command.dead_retain_ms,
            command.keep_body,
            command.tags,
            headers,
        )
    )


def _fingerprint(command: Send, options: bytes) -> int:
    """64 bits over the request as given: body, kind, time and options, without the id and the conflict rules."""
    delay_ms, at_ms = command.delay_ms, command.at_ms
    hashed = _hash64.copy()
    hashed.update(
        _head(
            command.kind,
            -1 if delay_ms is None else delay_ms if delay_ms < _TOO_LATE_MS else _TOO_LATE_MS,
            -1 if at_ms is None else at_ms if at_ms < _TOO_LATE_MS else _TOO_LATE_MS,
            len(options),
        )
        + options
        + command.body
    )
    return _unpack64(hashed.digest())[0]


def send_item(command: Send, id: str, topic: Topic, checks: Checks, now_ms: Callable[[], int]) -> SendItem:
    """Check a command against the limits and the topic, and make its item. `id` is the command's or a new one."""
    if not command.plain_id and command.id is not None:
        check_name(id, "id")
    if len(command.body) > topic.max_body_bytes:
        own_bytes = command.max_body_bytes if topic.config.policy.max_body_bytes is None else None
        checks.body(command.body, topic.max_body_bytes if own_bytes is None else own_bytes)
    merge = None if command.merge is None else merge_of(command, command.merge, topic, checks)
    delay_ms, at_ms = command.delay_ms, command.at_ms
    if at_ms is not None or (delay_ms is not None and not 0 <= delay_ms <= checks.limits.max_delay_ms):
        if command.any_delay:
            delay_ms = None if delay_ms is None else min(delay_ms, LAST_MS)
            at_ms = None if at_ms is None else min(at_ms, LAST_MS)
            checks.times(delay_ms, at_ms, now_ms, LAST_MS)
        else:
            checks.times(delay_ms, at_ms, now_ms)
    config = topic.config.policy
    ttl_ms = config.ttl_ms
    tags, headers = command.tags, command.headers
    if (
        command.lease_ms is UNSET
        and command.ttl_ms is UNSET
        and command.max_attempts is UNSET
        and command.retry is UNSET
        and command.retain_ms is None
        and command.dead_retain_ms is None
        and not tags
        and not headers
        and not command.keep_body
    ):
        policy = topic.job_policy
        fingerprint = _fingerprint(command, b"")
    else:
        policy = _own_policy(
            checks,
            topic.job_policy,
            config.max_attempts,
            config.on_dead is not None,
            command.lease_ms,
            command.ttl_ms,
            command.max_attempts,
            command.retry,
            command.retain_ms,
            command.dead_retain_ms,
            command.keep_body,
        )
        checks.labels(tags, headers)
        fingerprint = _fingerprint(command, _written(command))
        if command.ttl_ms is not UNSET:
            ttl_ms = command.ttl_ms
    if config.spread_ms:  # only fixed times are spread, not quiet ones
        share_ms = random.randint(0, config.spread_ms)
        if at_ms is None:
            delay_ms = (delay_ms or 0) + share_ms
        else:
            at_ms = max(at_ms, now_ms()) + share_ms
    on_live = topic.on_conflict if command.on_conflict is None else command.on_conflict
    on_ended = on_live if command.on_ended is None else command.on_ended
    return SendItem(
        id,
        command.body,
        command.kind,
        delay_ms or 0,
        at_ms,
        policy,
        ttl_ms,
        on_live,
        on_ended,
        fingerprint,
        tags,
        pack_headers(headers) if headers else b"",
        merge,
        command.on_overdue,
        command.occurrence,
    )
