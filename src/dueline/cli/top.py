"""The command `top`: watches the topics on a terminal; prints them once for programs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from ..api import answers as r
from ..client import calls
from ..client.calls import Answer
from . import tables
from .jobs import now_ms
from .output import Output, merged
from .session import Session, connected
from .values import duration

TOP_EXAMPLES = ("dueline top", "dueline top --every 500ms", "dueline top --once -o json")

SHOWN = 40
DEFAULT_EVERY_MS = 2_000
LEAST_EVERY_MS = 100


class Rates:
    """How fast the number of live jobs of each topic changes between two samples."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._at_s: float | None = None

    def look(self, topics: tuple[r.Topic, ...], at_s: float) -> dict[str, float]:
        """Change in jobs per second for every topic of the last sample; positive means growth."""
        live = {t.topic: t.counts.scheduled + t.counts.ready + t.counts.leased for t in topics}
        passed_s = at_s - self._at_s if self._at_s is not None else 0.0
        rates = {
            name: (number - self._before[name]) / passed_s for name, number in live.items() if name in self._before
        }
        self._before, self._at_s = live, at_s
        return rates if passed_s > 0 else {}


def read_topics(session: Session) -> tuple[bytes, tuple[r.Topic, ...]]:
    """All topics, as one answer."""
    pages: list[Answer[r.TopicPage]] = []
    cursor: str | None = None
    while not pages or cursor is not None:
        pages.append(session.call(calls.topics(cursor, 500)))
        cursor = pages[-1].value.next_cursor
    raw = pages[0].raw if len(pages) == 1 else merged((page.raw for page in pages), "topics")
    return raw, tuple(topic for page in pages for topic in page.value.topics)


def read_limits(session: Session) -> tuple[r.LimitUse, ...]:
    """The limits of this namespace, as the process that answers counts them."""
    return session.call(calls.info()).value.limits_in_use


def urgency(topic: r.Topic) -> tuple[int, int, str]:
    """Topics with the most waiting work first."""
    return (-topic.counts.ready, -topic.counts.leased - topic.counts.scheduled, topic.topic)


def refusing(limits: Sequence[r.LimitUse]) -> str:
    """The limits that have refused something, such as "max_polls 12 (limit 5)"; empty if none has."""
    named = ((one, f"{one.limit} of {one.token_id}" if one.token_id else one.limit) for one in limits if one.refused)
    return ", ".join(f"{name} {one.refused} (limit {one.max:g})" for one, name in named)


def screen(
    session: Session,
    topics: tuple[r.Topic, ...],
    rates: dict[str, float] | None,
    limits: Sequence[r.LimitUse] = (),
) -> RenderableType:
    """The table of the most urgent topics with a line of totals, and a line of limits that refuse."""
    shown = sorted(topics, key=urgency)[:SHOWN]
    live = sum(t.counts.scheduled + t.counts.ready + t.counts.leased for t in topics)
    total = f"{session.url}   {len(topics)} topics   {live} live jobs   {sum(t.counts.dead for t in topics)} dead"
    parts: list[RenderableType] = [Text(total, style="bold"), tables.topics(shown, now_ms(), rates)]
    if refused := refusing(limits):
        parts.insert(1, Text(f"refused by limits: {refused}", style="yellow"))
    if len(topics) > SHOWN:
        parts.append(Text(f"and {len(topics) - SHOWN} more: dueline topics --all", style="dim"))
    return Group(*parts)


@connected
def top(
    session: Session,
    every: Annotated[
        int | None, typer.Option("--every", parser=duration, metavar="DURATION", help="Refresh interval; default 2s.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
) -> None:
    """Watch the topics: counts, the oldest ready job, the next due time, the rate of change. A limit that refuses
    calls has its own line. Ctrl-C ends it."""
    raw, topics = read_topics(session)
    if once or session.printer.output is not Output.TABLE or not session.printer.out.is_terminal:
        limits = read_limits(session)
        answer = {**msgspec.json.decode(raw, type=dict[str, msgspec.Raw]), "limits_in_use": limits}
        session.printer.result(msgspec.json.encode(answer), screen(session, topics, None, limits), rows="topics")
        return
    every_s = max(DEFAULT_EVERY_MS if every is None else every, LEAST_EVERY_MS) / 1000
    rates = Rates()
    rates.look(topics, time.monotonic())
    try:
        with Live(screen(session, topics, {}), console=session.printer.out, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every_s)
                _, topics = read_topics(session)
                shown = screen(session, topics, rates.look(topics, time.monotonic()), read_limits(session))
                live.update(shown, refresh=True)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None
