"""Encodes the numbers and blob of each operation on existing jobs, as its script's header describes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from ...engine.fence import Fence
from ...engine.history import cut_name
from ...engine.job import Partition
from ...engine.limits import MAX_ERROR_BYTES, PULL_BYTES
from ...engine.store import Control, Credit, Edit, Extend, Outcome, Pull, Query, Ref, Release, SendItem
from .codec import (
    CODES,
    REASON_NUMBER,
    STATE_NUMBER,
    checksum,
    pack_id,
    pack_numbers,
    pack_policy,
    pack_tags,
    unpack_id,
)
from .lease_tokens import token_bytes

Encoded = tuple[bytes, bytes]
READ_FENCES = pack_numbers([2])  # fence.lua
id_of: Callable[[Any], str] = attrgetter("id")
_kind_of: Callable[[Credit], tuple[int | None, str | None]] = attrgetter("lease_ms", "by")


def body_size(item: SendItem | Edit) -> int:
    return len(item.body or b"")


def pull(which: Pull, base: bytes, history_bytes: int) -> Encoded:
    """pull.lua"""
    numbers = [which.default_lease_ms, which.wait_ms, PULL_BYTES, history_bytes]
    by: list[str | None] = []
    for (lease_ms, name), alike in groupby(which.credits, _kind_of):
        # Jobs are handed out in order, so these are one larger credit.
        numbers += (sum([credit.max for credit in alike]), lease_ms or 0)
        by.append(name)
    if any(by):
        names = [cut_name(name) for name in by]
        return pack_numbers(numbers), base + b"".join(len(name).to_bytes() + name for name in names)
    return pack_numbers(numbers), base


def refs(items: Sequence[Ref]) -> Encoded:
    """ack.lua"""
    pieces = [piece for item in items for piece in (pack_id(item.id), token_bytes(item.token))]
    sizes = list(map(len, pieces))
    numbers: list[int] = []
    for (id_size, token_size), alike in groupby(zip(sizes[::2], sizes[1::2], strict=True)):
        numbers += (len(list(alike)), id_size, token_size)
    return pack_numbers(numbers), b"".join(pieces)


def releases(items: Sequence[Release], history_bytes: int) -> Encoded:
    """release.lua"""
    numbers: list[float] = []
    pieces: list[bytes] = []
    texts: list[bytes] = []
    for item in items:
        id, token, error = pack_id(item.id), token_bytes(item.token), _error(item.error)
        delay = -1 if item.delay_ms is None else item.delay_ms
        if item.at_ms is not None:
            delay = -max(item.at_ms, 2)
        numbers += (len(id), len(token), delay, int(item.count), REASON_NUMBER[item.dead], item.jitter_draw)
        numbers += (len(error), _size(item.progress))
        pieces += (id, token)
        texts += (error, item.progress or b"")
    numbers.append(history_bytes)
    return pack_numbers(numbers), b"".join(pieces + texts)


def extends(items: Sequence[Extend]) -> Encoded:
    """extend.lua"""
    numbers: list[int] = []
    pieces: list[bytes] = []
    for item in items:
        id, token = pack_id(item.id), token_bytes(item.token)
        numbers += (len(id), len(token), item.lease_ms)
        pieces += (id, token)
    return pack_numbers(numbers), b"".join(pieces)


def cancels(items: Sequence[Ref], what: int) -> Encoded:
    """cancel.lua"""
    ids = [pack_id(item.id) for item in items]
    return pack_numbers([n for id in ids for n in (len(id), 0, what)]), b"".join(ids)


def edits(items: Sequence[Edit], history_bytes: int) -> Encoded:
    """edit.lua"""
    numbers: list[int] = []
    ids: list[bytes] = []
    pieces: list[bytes] = []
    for item in items:
        id, body = pack_id(item.id), item.body or b""
        kind = -1 if item.body is None else int(item.kind or 0)
        tags = None if item.tags is None else pack_tags(item.tags)
        policy = b"" if item.policy is None else pack_policy(item.policy)
        ttl = -1 if item.ttl_ms is None else item.ttl_ms
        ids.append(id)
        pieces += (body, item.headers or b"", tags or b"", policy)
        numbers += (len(id), 0, item.version or 0, *_when(item), ttl, kind, checksum(body), len(body))
        numbers += (_size(item.headers), _size(tags), len(policy))
    numbers.append(history_bytes)
    return pack_numbers(numbers), b"".join(ids + pieces)


def query(which: Query) -> Encoded:
    """list.lua"""
    tag, key = (which.tag or "").encode(), (which.merge_key or "").encode()
    key_size = -1 if which.merge_key is None else len(key)
    state = 0 if which.state is None else STATE_NUMBER[which.state]
    after = -1 if which.due_after_ms is None else which.due_after_ms
    before = -1 if which.due_before_ms is None else which.due_before_ms
    sizes = (len(tag), key_size, len(which.cursor))
    numbers = [state, which.limit, int(which.body), after, before, *sizes, int(which.newest)]
    return pack_numbers(numbers), tag + key + which.cursor


def dead(what: int, ids: Sequence[str], limit: int, delay_ms: int, max_attempts: int, history_bytes: int) -> Encoded:
    """dead.lua"""
    packed = [pack_id(id) for id in ids]
    return pack_numbers([what, limit, delay_ms, max_attempts, history_bytes, *map(len, packed)]), b"".join(packed)


def dead_outcomes(n: Sequence[int], blob: bytes) -> list[tuple[str, Outcome]]:
    """The reply of dead.lua."""
    outcomes: list[tuple[str, Outcome]] = []
    at = 0
    for i in range(0, len(n), 4):
        id = unpack_id(blob[at : at + n[i]])
        at += n[i]
        outcomes.append((id, Outcome(CODES[n[i + 1]], n[i + 2], version=n[i + 3])))
    return outcomes


def fences(items: Sequence[Fence]) -> Encoded:
    """fence.lua"""
    schedules = [item.schedule.encode() for item in items]
    numbers = [1]
    for item, schedule in zip(items, schedules, strict=True):
        numbers += (len(schedule), item.version, item.at_ms, int(item.gone))
    return pack_numbers(numbers), b"".join(schedules)


def fences_now(items: Sequence[Fence], n: Sequence[int]) -> list[Fence]:
    """The reply of fence.lua to a write."""
    return [Fence(item.schedule, n[3 * i], n[3 * i + 1], bool(n[3 * i + 2])) for i, item in enumerate(items)]


def fences_page(n: Sequence[int], blob: bytes) -> tuple[list[Fence], bytes | None]:
    """The reply of fence.lua to a read."""
    page: list[Fence] = []
    at = n[0]
    for i in range(1, len(n), 4):
        size, version, at_ms, gone = n[i : i + 4]
        page.append(Fence(blob[at : at + size].decode(), version, at_ms, bool(gone)))
        at += size
    return page, blob[: n[0]] or None


def _when(item: Edit) -> tuple[int, int]:
    if item.delay_ms is not None:
        return 1, item.delay_ms
    return (0, 0) if item.at_ms is None else (2, item.at_ms)


def _size(text: bytes | None) -> int:
    return -1 if text is None else len(text)


def _error(error: str | None) -> bytes:
    """At most 1 KiB, cut between characters."""
    return (error or "").encode(errors="replace")[:MAX_ERROR_BYTES].decode(errors="ignore").encode()


def edges(edges_ms: Sequence[int], from_now: bool) -> bytes:
    """The numbers of stats.lua: the edges between its bands, as times or, with `from_now`, as delays."""
    return pack_numbers([int(from_now), *edges_ms] if edges_ms else [])


def control(partition: Partition, control: Control) -> list[float]:
    """The numbers of control.lua for new settings."""
    if partition.namespace_ids and not partition.topic:
        return [6, control.policy_version or 0, int(bool(control.closed))]
    closed = None if control.closed is None else int(control.closed)
    values = (control.pause_until_ms, control.max_in_flight, control.policy_version, control.rate_per_s, closed)
    return [1, *(-1 if value is None else value for value in values)]
