"""The shapes of requests about what happens now: events and workers. No I/O."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from .requests import MAX_PULL_TOPICS, Count, Ms, Request

MAX_EVENT_WAIT_MS = 60_000
MAX_RUNNING = 50
Text = Annotated[str, Meta(max_length=255)]


class Running(Request, frozen=True, kw_only=True):
    """A job that a worker works on."""

    topic: Text
    id: Annotated[str, Meta(max_length=512)]
    since_ms: Ms


class PutWorker(Request, frozen=True, kw_only=True):
    """What a worker reports about itself, every 10 s."""

    host: Text
    pid: Count
    version: Text
    topics: Annotated[list[Text], Meta(max_length=MAX_PULL_TOPICS)]
    concurrency: Count
    started_at_ms: Ms
    running: Annotated[tuple[Running, ...], Meta(max_length=MAX_RUNNING, description="The oldest ones.")] = ()


class ListEvents(Request, frozen=True, kw_only=True):
    """The query of the events. `topic` may be repeated; none: all topics."""

    topic: Annotated[list[str], Meta(max_length=MAX_PULL_TOPICS)] | None = None
    after: Annotated[str, Meta(description="Continue after this event. Missing: from now on.")] | None = None
    wait_ms: (
        Annotated[
            int,
            Meta(ge=0, le=MAX_EVENT_WAIT_MS, description="Answer with one page of JSON, and wait for it this long."),
        ]
        | None
    ) = None
