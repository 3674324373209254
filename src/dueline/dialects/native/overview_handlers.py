"""The handlers of the calls that show what happens: forecast, charts. They only read."""

from __future__ import annotations

from ...api import answers as a
from ...api import overview_requests as vr
from ...api.reply import Reply
from ...engine.engine import Engine
from ...engine.forecasts import Forecast
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


def _forecast(found: Forecast) -> a.Forecast:
    return a.Forecast(
        at_ms=found.at_ms,
        edges_ms=found.edges_ms,
        counts=found.counts,
        retries=None,
        paused=found.paused,
        later=found.later,
        topics=tuple(a.TopicForecast(one.topic, one.counts) for one in found.topics),
        topics_counted=found.topics_counted,
        complete=found.complete,
    )
