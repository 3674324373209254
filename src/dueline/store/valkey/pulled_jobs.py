"""Decodes the jobs in an answer of pull.lua, which describes its form."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from ...engine.job import LeasedJob
from .codec import read_record, unpack_id
from .lease_tokens import token_text

_HEAD = struct.Struct(">xxIIxHIIHIIddd")
_ID, _RECORD = 5, 6  # where it has their sizes
_COUNT = 6  # where the numbers have the count of jobs; behind it are the progresses


def decode(
    numbers: Sequence[int], blob: bytes, topic: str, base: bytes, now_ms: int
) -> tuple[list[LeasedJob], list[LeasedJob]]:
    """(intact jobs, jobs with a damaged body)."""
    good: list[LeasedJob] = []
    corrupt: list[LeasedJob] = []
    heads, at, end = _layout(numbers, blob)
    progresses: dict[int, bytes] = {}
    for place, size in zip(numbers[_COUNT + 1 :: 2], numbers[_COUNT + 2 :: 2], strict=True):
        progresses[place] = blob[end : end + size]
        end += size
    id_at = 0
    for deliveries, uncounted, deadline_high, deadline, most, id_size, size, place, due, since, expires in heads:
        id_at += _HEAD.size
        id = unpack_id(blob[id_at : id_at + id_size])
        id_at += id_size
        record = read_record(blob[at : at + size])
        at += size
        leased = LeasedJob(  # in the order of its fields: names would cost half as much again
            id,
            topic if record.topic is None else record.topic,
            record.body,
            record.kind,
            record.headers,
            record.tags,
            deliveries - uncounted,
            deliveries,
            most or None,
            token_text(base + place.to_bytes(4, "big")),
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
    """What is behind the jobs."""
    return blob[_layout(numbers, blob)[2] + sum(numbers[_COUNT + 2 :: 2]) :]


def _layout(numbers: Sequence[int], blob: bytes) -> tuple[list[tuple[int, ...]], int, int]:
    """The heads of the jobs, each with its id behind it, and where the records and the progresses begin."""
    heads: list[tuple[int, ...]] = []
    at = end = 0
    for _ in range(numbers[_COUNT]):
        head = _HEAD.unpack_from(blob, at)
        heads.append(head)
        at += _HEAD.size + head[_ID]
        end += head[_RECORD]
    return heads, at, at + end
