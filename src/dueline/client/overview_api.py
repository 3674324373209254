"""The client methods that show what happens. No I/O.

forecast charts groups
"""

from __future__ import annotations

from collections.abc import Sequence

from ..api import answers as r
from . import overview_calls as calls
from .calls import Call
from .method import Pages, method, pages
from .times import Moment, moment_ms


class OverviewApi:
    """The methods that show what happens. Client and AsyncClient share them."""

    @method
    def forecast(self, edges: Sequence[Moment], topic: str | None = None) -> Call[r.Forecast]:
        """How many scheduled jobs fall due between these moments (2 to 64, ascending), in all topics or in one.

        The forecast of all topics may be a few seconds old; `at_ms` and `edges_ms` say what was counted."""
        return calls.forecast([moment_ms(edge, "edges") for edge in edges], topic)

    @method
    def charts(self, hours: int = 24) -> Call[r.Charts]:
        """What happened in the namespace in the last hours (1 to 24), minute by minute, on all servers."""
        return calls.charts(hours)

    @pages
    def groups(self, topic: str, page: int = 500) -> Pages[r.OpenGroup]:
        """The merge groups of a topic that are filling up."""
        return Pages(lambda cursor: calls.groups(topic, cursor, page), _groups)


def _groups(page: r.GroupPage) -> Sequence[r.OpenGroup]:
    return page.groups
