"""The queries of the calls that show what happens: forecast, charts, open groups. No I/O."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..bounds import MAX_EDGES
from .requests import Ms, Request


class GetForecast(Request, frozen=True, kw_only=True):
    """The query of a forecast."""

    edges_ms: Annotated[
        list[Ms],
        Meta(
            min_length=2,
            max_length=MAX_EDGES,
            description="Count the jobs due between these times (Unix ms, ascending, joined with commas).",
            examples=[[1_767_225_600_000, 1_767_229_200_000, 1_767_232_800_000]],
        ),
    ]


class GetCharts(Request, frozen=True, kw_only=True):
    """The query of the charts."""

    hours: Annotated[int, Meta(ge=1, le=24, description="How far back.")] = 24


class ListGroups(Request, frozen=True, kw_only=True):
    """The query of the list of open merge groups."""

    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
