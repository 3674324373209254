"""The commands `events` and `watch`: what happens, line by line, until Ctrl-C."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import msgspec
import typer

from ..api import answers as r
from ..client import calls
from .exit_codes import FAILURE
from .jobs import Id, Topic
from .output import Output, Printer, safe
from .session import Session, connected

EVENTS_EXAMPLES = ("dueline events", "dueline events orders payments", "dueline events -o jsonl --count 100")
WATCH_EXAMPLES = ("dueline watch orders order-1042", "dueline watch orders order-1042 -o jsonl")

ENDED = ("done", "dead", "cancelled")


@connected
def events(
    session: Session,
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Default: all topics.")] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="Stop after this many events.")] = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="CURSOR", help="Continue after the event with this cursor.")
    ] = None,
) -> None:
    """Show what happens to jobs and topics, as it happens. Stop it with Ctrl-C.

    A `gap` event means that events before it may be missing, for example because a server was killed."""
    left = count
    for event in session.client.events(*(topics or ()), after=after):
        if event.event == "hello":
            continue
        show(session.printer, event)
        left = None if left is None else left - 1
        if left == 0:
            return


@connected
def watch(session: Session, topic: Topic, id: Id) -> None:
    """Show what happens to one job, until it has ended. Exits with 1 if it is dead or cancelled, 3 if it is gone."""
    state = None
    for event in session.client.events(topic):
        if event.event in ("hello", "gap"):
            before, state = state, _state(session, topic, id)
            if state != before:
                show(session.printer, event)
        elif event.id == id:
            show(session.printer, event)
            state = event.state or state
        if state in ENDED:
            if state != "done":
                raise typer.Exit(FAILURE)
            return


def _state(session: Session, topic: str, id: str) -> str:
    """The job's state. It is read after each gap, because its end may be among the missing events."""
    return session.call(calls.get(topic, id)).value.state


def show(printer: Printer, event: r.Event) -> None:
    """One line per event; with JSON output, the event as the API has it."""
    if printer.output is not Output.TABLE:
        printer.line(msgspec.json.encode(event))
        return
    printer.line(safe(" ".join(_words(event))).replace("\n", "\\n").encode())


def _words(event: r.Event) -> Iterator[str]:
    at = datetime.now() if event.at_ms is None else datetime.fromtimestamp(event.at_ms / 1000)
    yield at.strftime("%H:%M:%S.%f")[:-3]
    if event.event in ("gap", "hello"):
        yield {"gap": f"-- gap ({event.reason}): events may be missing before this", "hello": "-- watching"}[
            event.event
        ]
        return
    yield f"{event.what:<9}"
    yield event.topic or ""
    if event.id is not None:
        yield event.id
    if event.attempt is not None:
        yield f"attempt {event.attempt}"
    if event.reason is not None:
        yield f"({event.reason})"
    if event.by is not None:
        yield f"{'to' if event.what == 'delivered' else 'by'} {event.by}"
    if event.error is not None:
        yield event.error
