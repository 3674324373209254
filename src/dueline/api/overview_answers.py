"""The answers that show what happens: forecast. No I/O."""

from __future__ import annotations

import msgspec


class TopicForecast(msgspec.Struct, frozen=True):
    """One topic's share of a forecast."""

    topic: str
    counts: tuple[int, ...]


class Forecast(msgspec.Struct, frozen=True):
    """How many scheduled jobs fall due from each of `edges_ms` on and before the next one. `paused`: those that fall
    due while their topic is paused; `counts`: all others. `later`: all from the last edge on. `retries`: always null,
    because the store does not keep retry waits apart; `counts` includes them. `topics`: the largest ones, at most 8.

    The forecast of all topics is kept for a while: it was counted at `at_ms`, for `edges_ms`, which may be a little
    earlier than those of the request. `complete` false: only the first `topics_counted` topics were counted."""

    at_ms: int
    edges_ms: tuple[int, ...]
    counts: tuple[int, ...]
    retries: tuple[int, ...] | None
    paused: tuple[int, ...]
    later: int
    topics: tuple[TopicForecast, ...]
    topics_counted: int
    complete: bool
