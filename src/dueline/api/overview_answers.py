"""The answers that show what happens: forecast, charts, open groups. No I/O."""

from __future__ import annotations

import msgspec


class TopicForecast(msgspec.Struct, frozen=True):
    """One topic's share of a forecast."""

    topic: str
    counts: tuple[int, ...]


class Forecast(msgspec.Struct, frozen=True):
    """How many scheduled jobs fall due from each of `edges_ms` on and before the next one. `paused`: those that fall
    due while their topic is paused; `retries`: of the other topics, jobs that wait for another attempt; `counts`: all
    others. `later`: all from the last edge on. `topics`: the largest ones, at most 8, with their part of `counts`.

    The forecast of all topics is kept for a while: it was counted at `at_ms`, for `edges_ms`, which may be a little
    earlier than those of the request. `complete` false: only the first `topics_counted` topics were counted; if there
    are no more than 5,000, ask again a moment later."""

    at_ms: int
    edges_ms: tuple[int, ...]
    counts: tuple[int, ...]
    retries: tuple[int, ...]
    paused: tuple[int, ...]
    later: int
    topics: tuple[TopicForecast, ...]
    topics_counted: int
    complete: bool


class Series(msgspec.Struct, frozen=True):
    """One value per step. Null: not known. `sends`: jobs created, replaced and merged. `failures`: releases, leases
    that expired, and deliveries that ended a job as exhausted or rejected. `dead`: jobs that died, of any reason.
    `pending`: scheduled, ready and leased jobs at the end of the step. `late_p50_ms`, `late_p99_ms`: from due to
    delivered, within the precision of the histogram's buckets."""

    sends: tuple[int | None, ...]
    deliveries: tuple[int | None, ...]
    acks: tuple[int | None, ...]
    failures: tuple[int | None, ...]
    dead: tuple[int | None, ...]
    pending: tuple[int | None, ...]
    late_p50_ms: tuple[float | None, ...]
    late_p99_ms: tuple[float | None, ...]


class Charts(msgspec.Struct, frozen=True):
    """What happened in a namespace, minute by minute: value i is for the minute that begins at from_ms + i * step_ms.
    The last minute is not over. All servers of the store are counted."""

    step_ms: int
    from_ms: int
    series: Series


class OpenGroup(msgspec.Struct, frozen=True):
    """A merge group that is filling up: later sends of its key join it. `id` is that of its job. `bytes`: of all
    items. `quiet_ms`: of the topic's policy; a send may name another one."""

    merge_key: str
    id: str
    items_count: int
    max_items: int
    bytes: int
    due_at_ms: int
    quiet_ms: int | None
    created_at_ms: int
    updated_at_ms: int


class GroupPage(msgspec.Struct, frozen=True):
    """One page of open groups. Even an empty page may have a cursor; null = this is the last page."""

    groups: tuple[OpenGroup, ...]
    next_cursor: str | None = None
