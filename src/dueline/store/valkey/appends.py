"""Merging sends: encodes the arguments of append.lua and decodes its reply."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from ...engine.policy import JobPolicy
from ...engine.store import Code, Merge, SendItem, SendOutcome
from . import codec
from .items import pack_item, sized

_GROUP, _TTL, _HEADERS, _TAGS, _TOPIC = 3, 4, 8, 16, 128
_WIDTH = 6
_WAITS = 0x8000  # flag in `max items`: a full group keeps its due time


def encode_append(
    sends: Sequence[tuple[SendItem, Merge]], policy_version: int, topic: bytes | None
) -> tuple[bytes, bytes]:
    """`topic` is given in namespaces with `namespace_ids`, where a record must name its topic."""
    policies: dict[JobPolicy, int] = {}
    per_item: list[int] = []
    pieces: list[bytes] = []
    for item, merge in sends:
        index = policies.setdefault(item.policy, len(policies) + 1)
        id, key, ttl = codec.pack_id(item.id), merge.key.encode(), item.ttl_ms or 0
        flags, rest = _record_rest(item, key, topic)
        stored = pack_item(item.body, item.kind, merge.item_id)
        pieces += (id, rest, key, stored)
        when = item.delay_ms if item.at_ms is None else -max(item.at_ms, 1)
        quiet = -1 if merge.quiet_ms is None else merge.quiet_ms
        longest = -1 if merge.max_wait_ms is None else merge.max_wait_ms
        item_id_size = len(stored) - 7 - len(item.body)
        per_item += (len(id), len(rest), len(key), item_id_size, len(item.body), flags, index, when, ttl, quiet)
        max_items = merge.max_items + (_WAITS if merge.waits_when_full else 0)
        per_item += (longest, max_items, merge.max_bytes, int(merge.update))
    texts = [codec.pack_policy(policy) for policy in policies]
    numbers = [policy_version, len(texts), *map(len, texts), len(sends), *per_item]
    return codec.pack_numbers(numbers), b"".join(texts + pieces)


def _record_rest(item: SendItem, key: bytes, topic: bytes | None) -> tuple[int, bytes]:
    """What a send that opens a group carries: the flags, and the record from its checksum up to the body."""
    flags, rest = _GROUP, codec.pack_sums(zlib.crc32(key), item.fingerprint)
    if topic is not None:
        flags |= _TOPIC
        rest += sized(topic)
    if item.ttl_ms:
        flags |= _TTL
        rest += item.ttl_ms.to_bytes(6, "big")
    if item.headers:
        flags |= _HEADERS
        rest += sized(item.headers)
    if item.tags:
        flags |= _TAGS
        rest += sized(codec.pack_tags(item.tags))
    return flags, rest


def decode_appended(numbers: Sequence[int], blob: bytes) -> list[tuple[SendOutcome, bool]]:
    """The outcomes. False: the new group's id is used in another topic, and nothing was decided yet."""
    results: list[tuple[SendOutcome, bool]] = []
    at = 0
    for i in range(0, len(numbers), _WIDTH):
        code, state, due, version, count, size = numbers[i : i + _WIDTH]
        name = blob[at : at + size]
        at += size
        shown = codec.state_of(state)
        if code == Code.ELSEWHERE:
            results.append((SendOutcome(Code.ELSEWHERE, shown, 0, 0, name.decode()), state != 0))
        else:
            group = codec.unpack_id(name) if name else None
            results.append((SendOutcome(codec.CODES[code], shown, due, version, None, group, count), True))
    return results
