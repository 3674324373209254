"""Decodes the jobs in an answer of pull.lua, which describes its form."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from ...engine.job import LeasedJob
from .codec import read_record, unpack_id
from .lease_tokens import token_texts

_HEAD = struct.Struct(">xxIIxHIIHI4sddd")
_read_head, _HEAD_BYTES = _HEAD.unpack_from, _HEAD.size
_ID, _RECORD, _PLACE = 5, 6, 7  # where it has their sizes, and the job's number in the token
_COUNT = 6  # where the numbers have the count of jobs; the progresses follow it


def decode(
    numbers: Sequence[int], blob: bytes, topic: str, base: bytes, now_ms: int
) -> tuple[list[LeasedJob], list[LeasedJob]]:
    """(intact jobs, jobs with a damaged body)."""
    good: list[LeasedJob] = []
    corrupt: list[LeasedJob] = []
    heads, at, end = _layout(numbers, blob)
    progresses: dict[bytes, bytes] = {}
    for number, size in zip(numbers[_COUNT + 1 :: 2], numbers[_COUNT + 2 :: 2], strict=True):
        progresses[number.to_bytes(4, "big")] = blob[end : end + size]
        end += size
    tokens = token_texts([base + head[_PLACE] for head, _ in heads])
    for (head, id), token in zip(heads, tokens, strict=True):
        deliveries, uncounted, deadline_high, deadline, most, _, size, place, due, since, expires = head
        record = read_record(blob[at : at + size])
        at += size
        leased = LeasedJob(  # in the order of its fields: names would cost half as much again
            unpack_id(id),
            topic if record.topic is None else record.topic,
            record.body,
            record.kind,
            record.headers,
            record.tags,
            deliveries - uncounted,
            deliveries,
            most or None,
            token,
            deadline_high << 32 | deadline,
            int(due),
            record.created_at_ms,
            now_ms - int(since),
            record.merge_key,
            record.items,
            int(expires) or None,
            record.ttl_ms,
            record.version,
            progresses.get(place, b"") if progresses else b"",
        )
        (good if record.intact else corrupt).append(leased)
    return good, corrupt


def deaths_in(numbers: Sequence[int], blob: bytes) -> bytes:
    """The bytes that follow the jobs."""
    return blob[_layout(numbers, blob)[2] + sum(numbers[_COUNT + 2 :: 2]) :]


def _layout(numbers: Sequence[int], blob: bytes) -> tuple[list[tuple[tuple[Any, ...], bytes]], int, int]:
    """The heads of the jobs with their ids, and where the records and the progresses begin."""
    heads: list[tuple[tuple[Any, ...], bytes]] = []
    at = end = 0
    for _ in range(numbers[_COUNT]):
        head = _read_head(blob, at)
        id_at = at + _HEAD_BYTES
        at = id_at + head[_ID]
        heads.append((head, blob[id_at:at]))
        end += head[_RECORD]
    return heads, at, at + end
