"""Commands on push targets: push show, set, remove, pause, resume, attempts.

Secrets are never passed as arguments, which other users can see, and never printed. They are read from a file, or a new
one is written to a file. The server masks secrets (whsec_...last4); sending a masked secret back keeps the stored one.
"""

from __future__ import annotations

import base64
import os
import secrets as randomness
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from ..api import answers as r
from ..bounds import MAX_SECRETS
from ..client import calls
from ..client.errors import NotFound
from . import tables
from .jobs import Topic, Yes, now_ms
from .paging import All, Cursor, Limit, show_pages
from .session import Session, connected
from .values import TOO_DEEP, duration, pairs

FIELDS = (
    "url",
    "service",
    "method",
    "headers",
    "timeout_ms",
    "concurrency",
    "rate_per_s",
    "success",
    "retry",
    "breaker",
    "secrets",
    "paused",
)
STATE_STYLES = {"ok": "green", "open": "red", "half_open": "yellow", "paused": "yellow"}

SHOW_EXAMPLES = ("dueline push show orders", "dueline push show orders -o json")


@connected
def show(session: Session, topic: Topic) -> None:
    """Show a topic's push target and its current state."""
    answer = session.call(calls.push(topic))
    session.printer.result(answer.raw, push_table(topic, answer.value))


SET_EXAMPLES = (
    'dueline push set orders url=https://example.com/hook retry=\'{"ladder":["2m","10m","1h"]}\'',
    "dueline push set orders timeout_ms=5s concurrency=4 rate_per_s=50 breaker=null",
    "dueline push set orders headers=@headers.json secrets=@secrets.txt",
    "dueline push set orders --new-secret secret.txt",
)


@connected
def set_push(
    session: Session,
    topic: Topic,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="K=V", help=f"K: {' '.join(FIELDS)}. K=null: the default; K=@FILE: from a file."),
    ] = None,
    new_secret: Annotated[
        Path | None,
        typer.Option(
            "--new-secret",
            metavar="FILE",
            help="Generate a secret, write it to this new file, and sign with it and the newest existing one.",
        ),
    ] = None,
) -> None:
    """Set a topic's push target, or change some of its values and keep the rest."""
    changes = target_values(values or [])
    if not changes and new_secret is None:
        raise typer.BadParameter("give at least one value, such as url=https://example.com/hook")
    if new_secret is not None and "secrets" in changes:
        raise typer.BadParameter("give secrets or --new-secret, not both")
    try:
        shown = msgspec.json.decode(session.call(calls.push(topic)).raw, type=dict[str, Any])
    except NotFound:
        shown = {}
        if changes.get("url") is None and changes.get("service") is None:
            raise typer.BadParameter("the topic has no target yet: give url=URL or service=NAME") from None
    target = {name: shown[name] for name in FIELDS if name in shown} | changes
    for name, other in (("url", "service"), ("service", "url")):
        if changes.get(name) is not None and other not in changes:
            target.pop(other, None)
    if new_secret is not None:
        target["secrets"] = [write_secret(new_secret), *(target.get("secrets") or [])][:MAX_SECRETS]
    answer = session.call(
        calls.set_push(topic, {name: value for name, value in target.items() if is_sent(name, value)})
    )
    session.printer.result(answer.raw, push_table(topic, answer.value))


REMOVE_EXAMPLES = ("dueline push remove orders --yes",)


@connected
def remove(session: Session, topic: Topic, yes: Yes = False) -> None:
    """Remove a topic's push target, with its secrets and its log of calls. The jobs stay and can be pulled."""
    session.confirm(f"Remove the push target of {topic}, with its secrets and its log?", yes)
    answer = session.call(calls.remove_push(topic))
    session.printer.result(answer.raw, tables.facts({"topic": topic, "result": answer.value.result}))


PAUSE_EXAMPLES = ("dueline push pause orders",)


@connected
def pause(session: Session, topic: Topic) -> None:
    """Stop calling a push target until it is resumed. Sends are still accepted, and jobs can be pulled."""
    answer = session.call(calls.pause_push(topic))
    session.printer.result(answer.raw, _paused(answer.value))


RESUME_EXAMPLES = ("dueline push resume orders",)


@connected
def resume(session: Session, topic: Topic) -> None:
    """Resume calling a push target."""
    answer = session.call(calls.resume_push(topic))
    session.printer.result(answer.raw, _paused(answer.value))


ATTEMPTS_EXAMPLES = (
    "dueline push attempts orders",
    "dueline push attempts orders --id order-1042",
    "dueline push attempts orders --all -o jsonl",
)


@connected
def attempts(
    session: Session,
    topic: Topic,
    id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Only calls for this job.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
    all: All = False,
) -> None:
    """List the calls to a push target, newest first."""

    def page_table(pages: list[r.AttemptPage]) -> tables.Listing:
        return attempts_table(attempt for page in pages for attempt in page.attempts)

    show_pages(session, lambda at: calls.attempts(topic, id, at, limit), "attempts", page_table, cursor, all)


# --- values -----------------------------------------------------------------------------------------------------------


def target_values(texts: list[str]) -> dict[str, Any]:
    """K=V texts of a target. A value is JSON, else a duration for a *_ms key, else text; @FILE reads it from a file."""
    values: dict[str, Any] = {}
    for key, text in pairs(texts, "set").items():
        if key not in FIELDS:
            raise typer.BadParameter(f'"{key}": write one of {" ".join(FIELDS)}')
        from_file = text.startswith("@")
        if key == "secrets" and not from_file and text not in ("null", "[]"):
            raise typer.BadParameter("secrets: write secrets=@FILE; an argument can be seen by other users")
        values[key] = _value(key, _read(Path(text[1:])) if from_file else text)
    return values


def _value(key: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        if key == "secrets":
            return text.split()
        return duration(text) if key.endswith("_ms") else text
    except RecursionError:
        raise typer.BadParameter(f"{key}: is {TOO_DEEP}") from None


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as wrong:
        raise typer.BadParameter(f"cannot read {path}: {wrong}") from wrong


def is_sent(name: str, value: Any) -> bool:
    """Whether to send a value. Null means the default and is not sent, except where it means "none"."""
    return value is not None or name == "breaker"


def write_secret(path: Path) -> str:
    """Write a new secret to a new file that only its owner can read. This comes first, so that the secret is never
    known to the server alone."""
    secret = "whsec_" + base64.b64encode(randomness.token_bytes(32)).decode("ascii")
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret + "\n")
    except OSError as wrong:
        raise typer.BadParameter(f"cannot write {path}: {wrong}", param_hint="--new-secret") from wrong
    return secret


# --- tables -----------------------------------------------------------------------------------------------------------


def push_table(topic: str, push: r.Push) -> Table:
    """Everything about one target."""
    return tables.facts(
        {
            "topic": topic,
            "state": Text(push.state, style=STATE_STYLES.get(push.state, "")),
            "url": push.url,
            "service": push.service,
            "method": push.method,
            "headers": " ".join(f"{name}={text}" for name, text in push.headers.items()),
            "timeout": tables.age(push.timeout_ms),
            "concurrency": push.concurrency,
            "in flight": push.in_flight,
            "rate": None if push.rate_per_s is None else f"{push.rate_per_s:g}/s",
            "success": "2xx" if push.success is None else " ".join(map(str, push.success)),
            "retry": push.retry,
            "breaker": _breaker(push.breaker),
            "secrets": " ".join(push.secrets),
            "last error": push.last_error,
        }
    )


def _breaker(breaker: dict[str, Any] | None) -> str:
    if breaker is None:
        return "none"
    return f"after {breaker.get('failures')} failures, for {tables.age(breaker.get('open_ms'))}"


def _paused(paused: r.Paused) -> Table:
    return tables.facts({"topic": paused.topic, "paused": "yes" if paused.paused else "no"})


def attempts_table(attempts: Iterable[r.Attempt]) -> tables.Listing:
    made = tables.Listing(
        *("WHEN", "ID", "ATTEMPT", "STATUS", "TOOK", "ERROR"), right=("ATTEMPT", "STATUS", "TOOK"), free=("ERROR",)
    )
    for one in attempts:
        status = Text(tables.NOTHING if one.status is None else str(one.status), style="red" if one.error else "green")
        when = tables.distance(one.at_ms, now_ms())
        made.add(when, one.id, one.attempt, status, f"{one.duration_ms}ms", one.error or "")
    return made
