"""The command `list`: the jobs of a topic, page by page."""

from __future__ import annotations

from typing import Annotated

import typer

from ..api import answers as r
from ..client import calls
from . import tables
from .jobs import DueAfter, DueBefore, Topic, now_ms
from .paging import All, Cursor, Limit, show_pages
from .session import Session, connected

LIST_EXAMPLES = (
    "dueline list emails",
    "dueline list emails --state scheduled --due-before 2026-12-24T18:00:00Z --all",
    "dueline list emails --tag monthly --body -o jsonl",
)


@connected
def list_jobs(
    session: Session,
    topic: Topic,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="scheduled|ready|leased|done|dead|cancelled", help="Only jobs in this state."),
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only jobs with this tag.")] = None,
    merge_key: Annotated[str | None, typer.Option("--merge-key", help="Only the groups of this key.")] = None,
    due_after: DueAfter = None,
    due_before: DueBefore = None,
    body: Annotated[bool, typer.Option("--body", help="Include the bodies.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
    all: All = False,
) -> None:
    """List the jobs of a topic that match every condition; without one, all jobs."""

    def page(at: str | None) -> calls.Call[r.JobPage]:
        return calls.list_jobs(topic, state, tag, due_after, due_before, at, limit, body, merge_key)

    def page_table(pages: list[r.JobPage]) -> tables.Listing:
        return tables.jobs([job for page in pages for job in page.jobs], now_ms(), body)

    show_pages(session, page, "jobs", page_table, cursor, all)
