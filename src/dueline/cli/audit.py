"""The command `audit`: who changed what, page by page."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..api import answers as r
from ..client import calls
from . import tables
from .jobs import now_ms
from .paging import All, Cursor, Limit, show_pages
from .session import Session, connected
from .values import duration

AUDIT_EXAMPLES = (
    "dueline audit",
    "dueline audit --since 24h --action delete_topic",
    "dueline audit --who local --all -o jsonl",
)


@connected
def audit(
    session: Session,
    since: Annotated[
        int | None,
        typer.Option("--since", parser=duration, metavar="DURATION", help="Only entries this recent, such as 24h."),
    ] = None,
    who: Annotated[
        str | None,
        typer.Option(
            "--who", metavar="ID", help='Only calls with the token of this id; "local": calls on the store itself.'
        ),
    ] = None,
    action: Annotated[
        str | None, typer.Option("--action", metavar="NAME", help="Only this operation, such as delete_topic.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    all: All = False,
) -> None:
    """List who changed what, newest first: topics, tokens, push targets, cancelled and deleted jobs.

    With --namespace, only calls in that namespace."""
    since_ms = None if since is None else max(0, now_ms() - since)

    def page(at: str | None) -> calls.Call[r.AuditPage]:
        return calls.audit(session.namespace, who, action, since_ms, at, limit)

    def page_table(pages: list[r.AuditPage]) -> tables.Listing:
        return audit_table([entry for page in pages for entry in page.entries], now_ms())

    show_pages(session, page, "entries", page_table, cursor, all)


def audit_table(entries: list[r.AuditEntry], now: int) -> tables.Listing:
    made = tables.Listing("WHEN", "WHO", "ADDRESS", "ACTION", "TOPIC", "RESULT", "DETAILS", free=("DETAILS",))
    for one in entries:
        made.add(
            tables.distance(one.at_ms, now),
            " ".join(filter(None, (one.who, one.who_name))) or tables.NOTHING,
            one.address or tables.NOTHING,
            one.action,
            tables.NOTHING if one.topic is None else f"{one.namespace}/{one.topic}",
            one.code or "ok",
            " ".join(f"{name}={_shown(value)}" for name, value in one.details.items()),
        )
    return made


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
