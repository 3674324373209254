"""The answer about the past of a job. No I/O."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from ..durations import datetime_of
from .schema_hints import one_of


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a job. `attempt`: of a delivery, and of what came of it. `by`: the consumer that the
    pull named. `error`: of a release; of a dead job, its last one. `due_at_ms`: when it was due from then on. `reason`:
    why it died."""

    at_ms: int
    what: Annotated[
        str,
        one_of("sent", "edited", "delivered", "released", "lease_lost", "dead", "revived", "acked", "cancelled"),
    ]
    attempt: int | None = None
    by: str | None = None
    error: str | None = None
    due_at_ms: int | None = None
    reason: str | None = None

    @property
    def at(self) -> datetime:
        return datetime_of(self.at_ms)


class History(msgspec.Struct, frozen=True):
    """What happened to a job, oldest first. `dropped`: deliveries that are not among the entries, because only the
    newest ten are kept, or because the budget of histories is used up."""

    entries: tuple[HistoryEntry, ...]
    dropped: Annotated[int, Meta(ge=0)]
