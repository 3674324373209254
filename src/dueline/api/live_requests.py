"""The shapes of requests about what happens now: events and workers. No I/O."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .requests import MAX_PULL_TOPICS, Request

MAX_EVENT_WAIT_MS = 60_000


class ListEvents(Request, frozen=True, kw_only=True):
    """The query of the events. `topic` may be repeated; none: all topics."""

    topic: Annotated[list[str], Meta(max_length=MAX_PULL_TOPICS)] | None = None
    after: Annotated[str, Meta(description="Continue behind this event. Missing: from now on.")] | None = None
    wait_ms: (
        Annotated[
            int,
            Meta(ge=0, le=MAX_EVENT_WAIT_MS, description="Answer with one page of JSON, and wait for it this long."),
        ]
        | None
    ) = None
