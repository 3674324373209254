"""Paged lists: prints one page, or all pages as one list of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Protocol, TypeVar

import typer
from rich.console import RenderableType

from ..client.calls import Answer, Call
from .output import Output, merged
from .session import Session


class Page(Protocol):
    """Any page of the API."""

    @property
    def next_cursor(self) -> str | None: ...


P = TypeVar("P", bound=Page)

Limit = Annotated[int, typer.Option("--limit", min=1, max=500, help="Rows per page.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Continue after an earlier page.")]
All = Annotated[bool, typer.Option("--all", help="All pages.")]


def show_pages(
    session: Session,
    make: Callable[[str | None], Call[P]],
    rows: str,
    table: Callable[[list[P]], RenderableType],
    cursor: str | None,
    all: bool,
) -> None:
    """Print one page and how to get the next one, or print all pages; jsonl is written page by page."""
    printer = session.printer
    pages: list[Answer[P]] = []
    while True:
        page = session.call(make(cursor))
        cursor = page.value.next_cursor
        if all and printer.output is Output.JSONL:
            printer.result(page.raw, "", rows)
        else:
            pages.append(page)
        if not all or cursor is None:
            break
    if not pages:
        return
    raw = pages[0].raw if len(pages) == 1 else merged((page.raw for page in pages), rows)
    printer.result(raw, table([page.value for page in pages]), rows)
    if cursor is not None:
        printer.note(f"more: --cursor {cursor}    or --all")
