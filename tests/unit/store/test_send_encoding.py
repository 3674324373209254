"""The numbers and the blob of send.lua: what jobs have in common is sent once."""

from __future__ import annotations

from typing import Any

from dueline.engine.fence import Occurrence
from dueline.engine.job import BodyKind
from dueline.engine.policy import JobPolicy
from dueline.engine.store import OnConflict, SendItem
from dueline.store.valkey.codec import encode_send, pack_policy, pack_sums, unpack_numbers

POLICY = JobPolicy()
RULES = OnConflict.REJECT + 4 * OnConflict.KEEP + 16 * OnConflict.REJECT
SIZE = len(pack_sums(0, 0)) + 2


def item(id: str, delay_ms: int = 5, **options: Any) -> SendItem:
    rules = (OnConflict.REJECT, OnConflict.KEEP)
    return SendItem(id, b"{}", BodyKind.JSON, delay_ms, None, POLICY, None, *rules, 7, **options)


def encoded(items: list[SendItem]) -> list[int]:
    numbers, blob = encode_send(items, 3, None)
    assert blob.startswith(pack_policy(POLICY) + b"".join(item.id.encode() for item in items))
    return unpack_numbers(numbers)


def test_jobs_that_are_alike_are_one_run() -> None:
    assert encoded([item("a"), item("b"), item("c", delay_ms=0), item("d")]) == [
        *(3, 1, len(pack_policy(POLICY)), 4),
        *(2, 1, 0, 1, 5, 0, RULES),
        *(1, 1, 0, 1, 0, 0, RULES),
        *(1, 1, 0, 1, 5, 0, RULES),
        *(SIZE, SIZE, SIZE, SIZE),
    ]


def test_an_occurrence_and_a_job_that_must_be_new_are_named_by_their_place() -> None:
    assert encoded([item("a"), item("b", replaces=0)])[-5:] == [SIZE, 2, 0, 0, -1]
    items = [item("a"), item("b", replaces=0), item("c", occurrence=Occurrence("daily", 2, 9)), item("d")]
    assert encoded(items)[-8:] == [2, 0, 0, -1, 3, 2, 9, 5]
