"""Counts the jobs of a partition by looking at each of them. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from ...engine.bands import Bands
from ...engine.job import Reason, State
from ...engine.limits import LAST_MS
from ...engine.store import Stats
from .histories import used_bytes
from .partitions import PartitionState


def count(state: PartitionState, edges_ms: Sequence[int], from_now: bool, now_ms: int) -> Stats:
    """All counts at one moment."""
    jobs = list(state.jobs(now_ms))
    states = Counter(status.state for _, status in jobs)
    reasons = Counter(status.reason for _, status in jobs)
    scheduled_ms = [record.time_ms for record, status in jobs if status.state is State.SCHEDULED]
    base_ms = now_ms + 1 if from_now else 0
    bounds_ms = [*(base_ms + edge_ms for edge_ms in edges_ms), LAST_MS + 1]
    return Stats(
        scheduled=states[State.SCHEDULED],
        ready=states[State.READY],
        leased=states[State.LEASED],
        done=states[State.DONE],
        dead=states[State.DEAD],
        cancelled=states[State.CANCELLED],
        broken=0,
        next_due_at_ms=min(scheduled_ms, default=None),
        oldest_ready_at_ms=min((status.at_ms for _, status in jobs if status.state is State.READY), default=None),
        paused_until_ms=state.paused_until_ms if state.paused_until_ms > now_ms else None,
        waiting=state.wait_until_ms > now_ms,
        dead_by_reason={reason.value: reasons[reason] for reason in Reason},
        now_ms=now_ms,
        bands=tuple(
            sum(1 for time_ms in scheduled_ms if low_ms <= time_ms < high_ms) for low_ms, high_ms in pairwise(bounds_ms)
        ),
        history_bytes=used_bytes(state, now_ms),
        history_dropped=state.history_dropped,
    )


def banded(parts: Sequence[tuple[PartitionState, int]], edges_ms: Sequence[int], now_ms: int) -> Bands:
    """The scheduled jobs of all parts by due time. With each part: how many bands begin while its topic is paused."""
    kinds = {kind: [0] * len(edges_ms) for kind in ("counts", "retries", "paused")}  # the last: all after the last edge
    by_partition: list[int] = []
    for state, paused_bands in parts:
        counted = 0
        for record, status in state.jobs(now_ms):
            if status.state is State.SCHEDULED and record.time_ms >= edges_ms[0]:
                band = sum(1 for edge_ms in edges_ms[1:] if edge_ms <= record.time_ms)
                kind = "paused" if band < paused_bands else "retries" if record.attempts > 0 else "counts"
                kinds[kind][band] += 1
                counted += kind == "counts" and band < len(edges_ms) - 1
        by_partition.append(counted)
    return Bands(
        now_ms=now_ms,
        counts=tuple(kinds["counts"][:-1]),
        retries=tuple(kinds["retries"][:-1]),
        paused=tuple(kinds["paused"][:-1]),
        later=sum(of_kind[-1] for of_kind in kinds.values()),
        by_partition=tuple(by_partition),
    )
