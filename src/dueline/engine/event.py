"""Events: what happened to a job or a topic, as listeners get it, and how a batch of them is stored. No I/O here.

Events say what a process did. Do not count with them: after a gap, a listener reads again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from .event_stream import MAX_ENTRY_BYTES
from .job import Reason, State

MAX_ERROR_CHARS = 200
_BATCH = 200  # events that are packed at once; cut smaller if they are too large for one entry


class Event(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that happened. `id` None: to the topic itself. `what`, for a job: sent replaced appended delivered
    acked released dead cancelled edited fired revived purged; for a topic: created paused resumed policy push
    deleted."""

    namespace: str
    topic: str
    what: str
    at_ms: int
    id: str | None = None
    attempt: int | None = None
    state: State | None = None
    reason: Reason | None = None
    error: str | None = None
    by: str | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Event]).decode


def pack_events(events: Sequence[Event]) -> list[tuple[int, bytes]]:
    """The events as entries of the stream: how many are in each, and its data."""
    packed: list[tuple[int, bytes]] = []
    for start in range(0, len(events), _BATCH):
        packed += _packed(events[start : start + _BATCH])
    return packed


def unpack_events(data: bytes) -> list[Event]:
    """The events of an entry. Raises msgspec.DecodeError."""
    return _decode(data)


def _packed(events: Sequence[Event]) -> list[tuple[int, bytes]]:
    data = _encode(events)
    if len(data) <= MAX_ENTRY_BYTES or len(events) == 1:
        return [(len(events), data)]
    half = len(events) // 2
    return _packed(events[:half]) + _packed(events[half:])
