"""Commands on topics: topics (list, delete), topic (show, set, pause, resume), namespaces."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..api import answers as r
from ..client import calls
from ..client.errors import NotFound
from . import tables
from .jobs import Topic, Yes, now_ms
from .paging import All, Cursor, Limit, show_pages
from .session import Session, connected
from .values import policy_values, time_ms

TOPICS_EXAMPLES = ("dueline topics", "dueline topics --all -o jsonl", "dueline topics delete emails")


@connected
def topics(
    session: Session,
    action: Annotated[str | None, typer.Argument(metavar="delete", help="Default: list the topics.")] = None,
    topic: Annotated[str | None, typer.Argument(metavar="TOPIC", help="For delete.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    all: All = False,
    yes: Yes = False,
) -> None:
    """List topics with their counts, or delete one that holds no jobs.

    A topic is deleted with its policy and push target; if it has either, you are asked first."""
    if action == "delete" and topic is not None:
        _delete(session, topic, yes)
        return
    if action is not None:
        raise typer.BadParameter("write `topics`, or `topics delete TOPIC`; to show one topic, use `topic`")

    def page_table(page: list[r.TopicPage]) -> tables.Listing:
        return tables.topics((topic for one in page for topic in one.topics), now_ms())

    show_pages(session, lambda at: calls.topics(at, limit), "topics", page_table, cursor, all)


TOPIC_EXAMPLES = (
    "dueline topic emails",
    'dueline topic emails set max_attempts=5 lease_ms=2m retry=\'{"ladder":["1m","10m"]}\'',
    "dueline topic emails set on_dead=emails-failed",
    "dueline topic emails pause --until 2026-12-24T18:00:00Z",
    "dueline topic emails resume",
)


@connected
def topic(
    session: Session,
    topic: Topic,
    action: Annotated[str | None, typer.Argument(metavar="set|pause|resume", help="Default: show the topic.")] = None,
    values: Annotated[
        list[str] | None, typer.Argument(metavar="K=V", help="For set; K=null restores the server default.")
    ] = None,
    until: Annotated[
        int | None, typer.Option("--until", parser=time_ms, metavar="TIME", help="For pause: resume at this time.")
    ] = None,
) -> None:
    """Show a topic, set its policy, pause or resume it."""
    if values and action != "set":
        raise typer.BadParameter(f"{' '.join(values)}: only `set` takes values")
    if until is not None and action != "pause":
        raise typer.BadParameter("--until belongs to `pause`")
    if action is None:
        answer = session.call(calls.topic(topic))
        session.printer.result(answer.raw, tables.topic(answer.value, now_ms()))
    elif action == "set":
        _set(session, topic, values or [])
    elif action in ("pause", "resume"):
        paused = session.call(calls.pause(topic, until) if action == "pause" else calls.resume(topic))
        until_text = tables.moment(paused.value.paused_until_ms, now_ms())
        session.printer.result(
            paused.raw,
            tables.facts({"topic": topic, "paused": "yes" if paused.value.paused else "no", "until": until_text}),
        )
    else:
        raise typer.BadParameter(f'"{action}": write set, pause or resume')


def _delete(session: Session, name: str, yes: bool) -> None:
    found = session.call(calls.topic(name)).value
    if found.push or any(value not in (None, []) for value in found.policy.values()):
        session.confirm(f"Delete {name} with its policy{' and its push target' if found.push else ''}?", yes)
    answer = session.call(calls.delete_topic(name))
    session.printer.result(answer.raw, tables.facts({"topic": name, "result": answer.value.result}))


NAMESPACES_EXAMPLES = ("dueline namespaces", "dueline namespaces --all -o jsonl")


@connected
def namespaces(session: Session, limit: Limit = 50, cursor: Cursor = None, all: All = False) -> None:
    """List the namespaces that have topics."""

    def page_table(pages: list[r.NamespacePage]) -> tables.Listing:
        made = tables.Listing("NAMESPACE")
        for one in (one for page in pages for one in page.namespaces):
            made.add(one.namespace)
        return made

    show_pages(session, lambda at: calls.namespaces(at, limit), "namespaces", page_table, cursor, all)


def _set(session: Session, topic: str, texts: list[str]) -> None:
    """Change some values of the policy. The API takes a whole policy, so the other values are read first and sent too.
    If the topic changes in between, the call fails with a conflict."""
    if not texts:
        raise typer.BadParameter("give at least one value, such as max_attempts=5")
    values = policy_values(texts)
    try:
        found = session.call(calls.topic(topic)).value
        policy: dict[str, Any] = {**found.policy, "version": found.version}
    except NotFound:
        policy = {}
    # A server shows policy fields that it does not accept yet as null, so nulls are left out.
    known = {name: value for name, value in policy.items() if value is not None}
    if known.get("by_worker"):
        known["by_worker"] = [name for name in known["by_worker"] if name not in values]
    answer = session.call(calls.set_topic(topic, {**known, **values}))
    session.printer.result(answer.raw, tables.topic(answer.value, now_ms()))
