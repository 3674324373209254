"""The fences of a partition: which occurrences of which schedules it has decided (engine.fence). No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...engine.fence import GONE_KEEP_MS, Fence, Occurrence
from ...engine.job import State
from ...engine.store import Code, SendOutcome

if TYPE_CHECKING:
    from .change import Change


@dataclass(slots=True)
class StoredFence:
    """`gone_at_ms`: since when the schedule no longer sends here; None: it does."""

    version: int
    at_ms: int
    gone_at_ms: int | None = None

    @property
    def ends_ms(self) -> int | None:
        return None if self.gone_at_ms is None else self.gone_at_ms + GONE_KEEP_MS


def decided(change: Change, occurrence: Occurrence) -> SendOutcome | None:
    """The outcome if the fence decides it; None: the occurrence may be sent."""
    fence = change.state.fences.get(occurrence.schedule)
    if fence is None or occurrence.version > fence.version:
        code = Code.KEPT if fence is not None and occurrence.at_ms <= fence.at_ms else None
    elif occurrence.version < fence.version or fence.gone_at_ms is not None:
        code = Code.VERSION_MISMATCH
    else:
        code = Code.KEPT if occurrence.at_ms <= fence.at_ms else None
    return None if fence is None or code is None else SendOutcome(code, State.DONE, fence.at_ms, fence.version)


def sent(change: Change, occurrence: Occurrence) -> None:
    """The occurrence became a job."""
    _write(change, Fence(occurrence.schedule, occurrence.version, occurrence.at_ms))


def write(change: Change, fences: Sequence[Fence]) -> list[Fence]:
    return [_write(change, fence) for fence in fences]


def _write(change: Change, new: Fence) -> Fence:
    stored = change.state.fences.get(new.schedule)
    if stored is None:
        stored = change.state.fences[new.schedule] = StoredFence(new.version, new.at_ms)
    elif new.version > stored.version:
        stored.version, stored.gone_at_ms = new.version, None
    if new.version == stored.version:
        stored.at_ms = max(stored.at_ms, new.at_ms)
        if new.gone and stored.gone_at_ms is None:
            stored.gone_at_ms = change.now_ms
            change.work_ms.append(change.now_ms + GONE_KEEP_MS)
    return shown(new.schedule, stored)


def shown(schedule: str, stored: StoredFence) -> Fence:
    return Fence(schedule, stored.version, stored.at_ms, stored.gone_at_ms is not None)
