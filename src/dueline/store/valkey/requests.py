"""Encodes the numbers and blob of each operation on existing jobs, as its script's header describes."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.limits import MAX_ERROR_BYTES
from ...engine.store import Edit, Extend, Ref, Release
from .codec import REASON_NUMBER, checksum, pack_id, pack_numbers, pack_policy, pack_tags, token_bytes

Encoded = tuple[bytes, bytes]


def refs(items: Sequence[Ref]) -> Encoded:
    """ack.lua"""
    numbers: list[int] = []
    pieces: list[bytes] = []
    for item in items:
        id, token = pack_id(item.id), token_bytes(item.token)
        numbers += (len(id), len(token))
        pieces += (id, token)
    return pack_numbers(numbers), b"".join(pieces)


def releases(items: Sequence[Release]) -> Encoded:
    """release.lua"""
    numbers: list[float] = []
    pieces: list[bytes] = []
    errors: list[bytes] = []
    for item in items:
        id, token, error = pack_id(item.id), token_bytes(item.token), _error(item.error)
        delay = -1 if item.delay_ms is None else item.delay_ms
        numbers += (len(id), len(token), delay, int(item.count), REASON_NUMBER[item.dead], item.jitter_draw, len(error))
        pieces += (id, token)
        errors.append(error)
    return pack_numbers(numbers), b"".join(pieces + errors)


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


def edits(items: Sequence[Edit]) -> Encoded:
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
    return pack_numbers(numbers), b"".join(ids + pieces)


def _when(item: Edit) -> tuple[int, int]:
    if item.delay_ms is not None:
        return 1, item.delay_ms
    return (0, 0) if item.at_ms is None else (2, item.at_ms)


def _size(text: bytes | None) -> int:
    return -1 if text is None else len(text)


def _error(error: str | None) -> bytes:
    """At most 1 KiB, cut between characters."""
    return (error or "").encode(errors="replace")[:MAX_ERROR_BYTES].decode(errors="ignore").encode()
