"""The handlers of the calls that show what happens: forecast, charts, open groups. They only read."""

from __future__ import annotations

from ...api import answers as a
from ...api import overview_requests as vr
from ...api.reply import Reply
from ...engine.engine import Engine
from ...engine.forecasts import Forecast
from ...engine.open_groups import OpenGroup
from . import decode, encode
from .wire import Caller


class OverviewHandlers:
    """The handlers of the group `Overview` of `api.OPERATIONS`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def forecast(self, caller: Caller, request: vr.GetForecast) -> Reply:
        return Reply(_forecast(await self._engine.forecasts.namespace(caller.namespace, request.edges_ms)))

    async def topic_forecast(self, caller: Caller, request: vr.GetForecast, topic: str) -> Reply:
        return Reply(_forecast(await self._engine.forecasts.topic(caller.namespace, topic, request.edges_ms)))

    async def charts(self, caller: Caller, request: vr.GetCharts) -> Reply:
        found = await self._engine.charts.read(caller.namespace, request.hours)
        series = {name: getattr(found, name) for name in a.Series.__struct_fields__}
        return Reply(a.Charts(found.step_ms, found.from_ms, a.Series(**series)))

    async def list_groups(self, caller: Caller, request: vr.ListGroups, topic: str) -> Reply:
        cursor = decode.cursor_bytes(request.cursor)
        page = await self._engine.groups(caller.namespace, topic, cursor, request.limit)
        quiet_ms = await self._engine.quiet_ms(caller.namespace, topic)
        groups = tuple(_group(group, quiet_ms) for group in page.groups)
        return Reply(a.GroupPage(groups, encode.cursor_text(page.cursor)))


def _group(group: OpenGroup, quiet_ms: int | None) -> a.OpenGroup:
    return a.OpenGroup(
        merge_key=group.key,
        id=group.id,
        items_count=group.items_count,
        max_items=group.max_items,
        bytes=group.bytes,
        due_at_ms=group.due_at_ms,
        quiet_ms=quiet_ms,
        created_at_ms=group.created_at_ms,
        updated_at_ms=group.updated_at_ms,
    )


def _forecast(found: Forecast) -> a.Forecast:
    return a.Forecast(
        at_ms=found.at_ms,
        edges_ms=found.edges_ms,
        counts=found.counts,
        retries=found.retries,
        paused=found.paused,
        later=found.later,
        topics=tuple(a.TopicForecast(one.topic, one.counts) for one in found.topics),
        topics_counted=found.topics_counted,
        complete=found.complete,
    )
