"""Commands on one job, from the sender's side: send, get, history, cancel, fire, reschedule."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import typer
from msgspec import UNSET

from ..api.requests import Merge
from ..client import NewJob, calls, overview_calls
from . import tables
from .session import Session, connected
from .values import BodyAs, body_fields, duration, filter_of, one_time, pairs, time_ms

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
Id = Annotated[str, typer.Argument(metavar="ID")]
In = Annotated[
    int | None,
    typer.Option("--in", parser=duration, metavar="DURATION", help="Due after this long, such as 90s, 1.5h."),
]
At = Annotated[
    int | None,
    typer.Option("--at", parser=time_ms, metavar="TIME", help="Due at this time: RFC 3339, or ms since 1970."),
]
DueAfter = Annotated[
    int | None, typer.Option("--due-after", parser=time_ms, metavar="TIME", help="Only jobs due at this time or later.")
]
DueBefore = Annotated[
    int | None, typer.Option("--due-before", parser=time_ms, metavar="TIME", help="Only jobs due before this time.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Body = Annotated[
    str | None, typer.Argument(metavar="BODY|-", help="The body; - reads standard input; null if missing.")
]
BodyType = Annotated[BodyAs, typer.Option("--as", help="Type of BODY; auto: JSON if valid, else text, else bytes.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="May be given several times.")]
Headers = Annotated[list[str] | None, typer.Option("--header", metavar="K=V", help="May be given several times.")]
Ttl = Annotated[
    int | None,
    typer.Option("--ttl", parser=duration, metavar="DURATION", help="A job expires this long after its due time."),
]
LeaseTime = Annotated[
    int | None, typer.Option("--lease", parser=duration, metavar="DURATION", help="How long a pull leases a job.")
]
MaxAttempts = Annotated[int | None, typer.Option("--max-attempts", help="Attempts before a job is dead.")]

SEND_EXAMPLES = (
    'dueline send emails \'{"to": "ann"}\' --in 10m',
    "dueline send reports hello --at 2026-12-24T18:00:00Z --id report-7 --tag monthly",
    "cat picture.png | dueline send pictures - --as bytes",
    "dueline send digests '{\"comment\": 7}' --merge-key ann --quiet 5m --max-wait 1h",
    "dueline send emails --from jobs.jsonl",
)


def now_ms() -> int:
    """This machine's clock, used only to display ages."""
    return time.time_ns() // 1_000_000


@connected
def send(
    session: Session,
    topic: Topic,
    body: Body = None,
    in_: In = None,
    at: At = None,
    id: Annotated[str | None, typer.Option("--id", help="The job's id; generated if not given.")] = None,
    merge_key: Annotated[
        str | None, typer.Option("--merge-key", help="Add an item to the open group of this key, or open one.")
    ] = None,
    quiet: Annotated[
        int | None,
        typer.Option(
            "--quiet", parser=duration, metavar="DURATION", help="The group is due this long after its newest item."
        ),
    ] = None,
    max_wait: Annotated[
        int | None,
        typer.Option(
            "--max-wait",
            parser=duration,
            metavar="DURATION",
            help="The group is due at most this long after its first item.",
        ),
    ] = None,
    max_items: Annotated[
        int | None, typer.Option("--max-items", help="The group is due now if it has this many items.")
    ] = None,
    update: Annotated[
        str | None,
        typer.Option(
            "--update", metavar="once|always", help="Which --in or --at applies: the first item's or the newest's."
        ),
    ] = None,
    on_conflict: Annotated[
        str | None, typer.Option("--on-conflict", metavar="reject|keep|replace", help="What to do if the id exists.")
    ] = None,
    tag: Tags = None,
    header: Headers = None,
    ttl: Ttl = None,
    lease: LeaseTime = None,
    max_attempts: MaxAttempts = None,
    body_as: BodyType = BodyAs.AUTO,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE|-", help="Send many jobs: one per line of this file, each an object as in the API."
        ),
    ] = None,
) -> None:
    """Send a job. Without --in or --at it is due now."""
    grouping = (merge_key, quiet, max_wait, max_items, update)
    options = (body, in_, at, id, on_conflict, tag, header, ttl, lease, max_attempts, *grouping)
    if from_ is not None:
        from .bulk import send_file

        if any(option is not None for option in options):
            raise typer.BadParameter(
                "--from cannot be combined with other options: each line of the file describes a whole job"
            )
        send_file(session, topic, from_)
        return
    when = one_time(in_, at)
    if merge_key is None and any(option is not None for option in grouping):
        raise typer.BadParameter("--quiet, --max-wait, --max-items and --update need --merge-key")
    if merge_key is not None and id is not None:
        raise typer.BadParameter("--merge-key cannot be combined with --id: the server generates a group's id")
    raw, encoded = body_fields(body_argument(body), body_as)
    merge, policy, conflict = None, cast("Any", update), cast("Any", on_conflict)  # texts that the API checks
    if merge_key is not None:
        merge = Merge(merge_key, quiet_ms=quiet, max_wait_ms=max_wait, max_items=max_items, update=policy)
    job = NewJob(
        id=id,
        merge=merge,
        delay_ms=when.get("delay_ms"),
        at_ms=when.get("at_ms"),
        body=raw,
        body_base64=encoded,
        lease_ms=UNSET if lease is None else lease,
        ttl_ms=UNSET if ttl is None else ttl,
        max_attempts=msgspec.UNSET if max_attempts is None else max_attempts,
        on_conflict=conflict,
        tags=tuple(tag or ()),
        headers=pairs(header, "--header") if header else None,
    )
    answer = session.call(calls.send(topic, job))
    session.printer.result(answer.raw, tables.sent(answer.value, now_ms()))


def body_argument(body: str | None) -> bytes:
    """The bytes of a body on the command line; - reads standard input."""
    if body is None:
        return b"null"
    # Bytes that are not UTF-8 arrive in an argument as surrogates; this restores them.
    return sys.stdin.buffer.read() if body == "-" else body.encode("utf-8", "surrogateescape")


GET_EXAMPLES = ("dueline get emails report-7", "dueline get emails report-7 -o json")


@connected
def get(session: Session, topic: Topic, id: Id) -> None:
    """Show a job: its state, times, attempts and body."""
    answer = session.call(calls.get(topic, id))
    session.printer.result(answer.raw, tables.job(answer.value, now_ms()))


HISTORY_EXAMPLES = ("dueline history emails report-7", "dueline history emails report-7 -o jsonl")


@connected
def history(session: Session, topic: Topic, id: Id) -> None:
    """Show what happened to a job: its deliveries, their consumers, errors, edits and its end."""
    answer = session.call(overview_calls.history(topic, id))
    session.printer.result(answer.raw, tables.history(answer.value), rows="entries")
    if answer.value.dropped:
        session.printer.note(f"{answer.value.dropped} more deliveries are not kept")


CANCEL_EXAMPLES = (
    "dueline cancel emails report-7",
    "dueline cancel emails --tag monthly --dry-run",
    "dueline cancel digests --merge-key ann --yes",
    "dueline cancel emails --state scheduled --due-after 2026-12-31 --yes",
)


@connected
def cancel(
    session: Session,
    topic: Topic,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID")] = None,
    merge_key: Annotated[
        str | None, typer.Option("--merge-key", help="The groups of this key, except leased ones.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="All jobs with this tag.")] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="scheduled|ready|leased", help="All jobs in this state.")
    ] = None,
    due_after: DueAfter = None,
    due_before: DueBefore = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be cancelled.")] = False,
    yes: Yes = False,
) -> None:
    """Cancel jobs by id, or all that match (asks for confirmation first)."""
    from .bulk import by_filter, show_outcomes

    which = filter_of(state, tag, due_after, due_before)
    if ids and (which or dry_run or merge_key is not None):
        raise typer.BadParameter("give ids or conditions, not both")
    if merge_key is not None:
        if which:
            raise typer.BadParameter(
                "--merge-key cannot be combined with other conditions: it selects groups in any state"
            )
        by_filter(session, "Cancel", topic, lambda dry: calls.cancel_groups(topic, merge_key, dry), dry_run, yes)
        return
    if not ids and not which:
        raise typer.BadParameter(
            "give ids, or select the jobs with --merge-key, --tag, --state, --due-after, --due-before"
        )
    if not ids:
        by_filter(session, "Cancel", topic, lambda dry: calls.cancel_matching(topic, which, dry), dry_run, yes)
    elif len(ids) == 1:
        answer = session.call(calls.cancel(topic, ids[0]))
        session.printer.result(answer.raw, tables.outcomes([answer.value]))
    else:
        show_outcomes(session, session.call(calls.cancel_many(topic, ids)))


FIRE_EXAMPLES = ("dueline fire emails report-7",)


@connected
def fire(session: Session, topic: Topic, id: Id) -> None:
    """Make a job due now."""
    answer = session.call(calls.fire(topic, id))
    session.printer.result(answer.raw, tables.outcomes([answer.value]))


RESCHEDULE_EXAMPLES = (
    "dueline reschedule emails report-7 --in 1h",
    "dueline reschedule emails report-7 --at 2026-12-24T18:00:00Z --version 1",
)


@connected
def reschedule(
    session: Session,
    topic: Topic,
    id: Id,
    in_: In = None,
    at: At = None,
    version: Annotated[int | None, typer.Option("--version", help="Fail if the job has another version.")] = None,
) -> None:
    """Move a job's due time; its id stays the same."""
    changes: dict[str, Any] = one_time(in_, at)
    if not changes:
        raise typer.BadParameter("give --in or --at")
    if version is not None:
        changes["version"] = version
    answer = session.call(calls.patch(topic, id, changes))
    session.printer.result(answer.raw, tables.job(answer.value, now_ms()))
