"""The calls that show what happens, as `calls` has those on everything else. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from ..api import answers as r
from ..api import overview_requests as vr
from .calls import Call, given


def forecast(edges_ms: Sequence[int], topic: str | None = None) -> Call[r.Forecast]:
    """The forecast of all topics, or of one."""
    query = vr.GetForecast(edges_ms=list(edges_ms))
    if topic is None:
        return Call("forecast", r.Forecast, (), query)
    return Call("topic_forecast", r.Forecast, (topic,), query)


def charts(hours: int = 24) -> Call[r.Charts]:
    return Call("charts", r.Charts, (), vr.GetCharts(hours=hours))


def groups(topic: str, cursor: str | None = None, limit: int | None = None) -> Call[r.GroupPage]:
    return Call("list_groups", r.GroupPage, (topic,), vr.ListGroups(**given(cursor=cursor, limit=limit)))


def history(topic: str, id: str) -> Call[r.History]:
    return Call("history", r.History, (topic, id))
