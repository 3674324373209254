"""Commands on dead jobs: list, revive, purge."""

from __future__ import annotations

from typing import Annotated

import typer

from ..api import answers as r
from ..client import calls
from . import tables
from .bulk import by_filter, show_outcomes
from .jobs import DueBefore, Topic, Yes, now_ms
from .paging import All, Cursor, Limit, show_pages
from .session import Session, connected
from .tables import Listing
from .values import duration, filter_of

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID")]
Tag = Annotated[str | None, typer.Option("--tag", help="All dead jobs with this tag.")]
Every = Annotated[bool, typer.Option("--all", help="All dead jobs of the topic.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only count.")]

LIST_EXAMPLES = ("dueline dead list emails", "dueline dead list emails --all -o jsonl")


@connected
def list_dead(session: Session, topic: Topic, limit: Limit = 50, cursor: Cursor = None, all: All = False) -> None:
    """List the dead jobs of a topic and why they died."""

    def page_table(pages: list[r.DeadPage]) -> Listing:
        return tables.jobs([job for page in pages for job in page.jobs], now_ms())

    show_pages(session, lambda at: calls.dead(topic, at, limit), "jobs", page_table, cursor, all)


REVIVE_EXAMPLES = (
    "dueline dead revive emails report-7",
    "dueline dead revive emails --all --in 10m --max-attempts 3 --yes",
)


@connected
def revive(
    session: Session,
    topic: Topic,
    ids: Ids = None,
    all: Every = False,
    tag: Tag = None,
    due_before: DueBefore = None,
    in_: Annotated[
        int | None, typer.Option("--in", parser=duration, metavar="DURATION", help="Due after this long.")
    ] = None,
    max_attempts: Annotated[int | None, typer.Option("--max-attempts", help="New limit of attempts.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Revive dead jobs; their attempts count from 0 again."""
    which = _which(ids, all, tag, due_before, dry_run)
    if ids:
        show_outcomes(session, session.call(calls.revive(topic, ids, in_, max_attempts)))
        return
    by_filter(
        session, "Revive", topic, lambda dry: calls.revive_matching(topic, which, dry, in_, max_attempts), dry_run, yes
    )


PURGE_EXAMPLES = ("dueline dead purge emails report-7 --yes", "dueline dead purge emails --all --dry-run")


@connected
def purge(
    session: Session,
    topic: Topic,
    ids: Ids = None,
    all: Every = False,
    tag: Tag = None,
    due_before: DueBefore = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Delete dead jobs permanently."""
    which = _which(ids, all, tag, due_before, dry_run)
    if ids:
        session.confirm(f"Permanently delete {len(ids)} dead jobs of {topic}?", yes)
        show_outcomes(session, session.call(calls.purge(topic, ids)))
        return
    by_filter(session, "Purge", topic, lambda dry: calls.purge_matching(topic, which, dry), dry_run, yes)


def _which(
    ids: list[str] | None, all: bool, tag: str | None, due_before: int | None, dry_run: bool
) -> dict[str, object]:
    """The filter. Jobs must be selected in exactly one way."""
    which = filter_of(None, tag, None, due_before)
    if sum((bool(ids), all, bool(which))) != 1 or (ids and dry_run):
        raise typer.BadParameter("give ids, or select jobs with --all, --tag or --due-before")
    return which
